/* A request on its way: api.c has the loop's part, answers.c what a thread makes of the request, download.c
 * replies that are sent while a thread still makes them, parameters.c the query. */
#ifndef WEB_API_H
#define WEB_API_H

#include "base/idset.h"
#include "view/export.h"
#include "view/series.h"
#include "web/site.h"
#include "web/url.h"

enum { SERIES_RUNS = 16 };

struct api_call;

struct route {
    const char *path;
    /* In the thread: the body goes to call->out. Negative with the message otherwise. Of several runs it is
     * called in the lane of each, and reads that one. */
    int (*answer)(struct api_call *call, ty_error *err);
    const char *parameters; /* all that it takes, separated by blanks */
    const char *type;       /* NULL: JSON */
    const char *file;       /* an export, which writes to call->pipe; saved under this ending */
    /* On the loop, behind an answer that is not all yet; it has the call. */
    void (*then)(struct api_call *call);
};

struct found_run {
    char id[VIEW_ID_SIZE];
    char *name, *path;
    bool exposed; /* it belongs into /metrics */
};

struct api_call {
    struct lane_job job;
    struct site *site;
    struct http_request *request; /* NULL: it is gone, or was answered */
    const struct route *route;
    struct site_run *run;  /* of the path, or of `runs` the one that is at hand; or NULL */
    char id[VIEW_ID_SIZE]; /* as the path has it */
    struct url_query query;
    struct site_run *runs[SERIES_RUNS]; /* n_runs that the query names */
    size_t n_runs, n_read;
    struct view_series *series; /* n_series, of each run that was read one for each metric; owned */
    size_t n_series;
    bool behind[SERIES_RUNS]; /* the index of each is to grow; without `runs` the first is the path's */
    int rank;                 /* of logs/rank-N */
    bool looked, openmetrics, acts;
    bool deleted;       /* the run was, when the thread was done */
    struct buffer body; /* of an action */
    struct buffer out;
    const char *type;
    ty_error err;
    int result;
    char *asked;       /* path and query, where the answer may be one that is kept; owned, or NULL */
    uint64_t told;     /* of the run, when it was asked */
    nanoseconds spent; /* of a processor, by the answer */
    struct loop_timer patience;
    struct found_run *found; /* by a look at the list; n_found; owned */
    size_t n_found;
    struct exposed_run **exposed; /* n_exposed, NULL for one that was not read in time; owned */
    size_t n_exposed;
    struct lane own; /* of what belongs to no run's, or may take long */
    int pipe[2];
    struct loop_watch pipe_watch;
    bool exporting, streaming, finished;
    bool left; /* an export that was given up while its thread is at it */
};

/* -- api.c, the loop's */
/* In a thread of `lane`; call->route is what it works for. */
void call_post(struct api_call *call, struct lane *lane);
/* The same, and an answer of 503 when there is none after SITE_PATIENCE_SECONDS. */
void call_post_patiently(struct api_call *call, struct lane *lane);
/* Answers with the error of the thread. */
void call_fail(struct api_call *call);
/* Answers with an error, and frees the call. */
void call_refuse(struct api_call *call, unsigned status, const char *message);
void call_free(struct api_call *call);

/* -- kept.c: in the thread */
/* True: the body is what somebody else was told who asked for the same a moment ago. */
bool kept_take(struct api_call *call);
void kept_add(const struct api_call *call);

/* -- expose.c */
void expose_begin(struct api_call *call);
int answer_exposed(struct api_call *call, ty_error *err);

/* -- answers.c */
extern const struct route route_exposed; /* the runs of call->exposed, for Prometheus */
extern const struct route route_look;    /* the list of runs, for an ID that is not known */
/* What the path names, its ID and rank in the call; NULL: nothing. */
const struct route *route_find(struct api_call *call, const char *path);

/* -- download.c: a route with a `file`. The thread writes into a pipe as fast as the client takes it. */
int answer_csv(struct api_call *call, ty_error *err);
int answer_jsonl(struct api_call *call, ty_error *err);
int answer_trace(struct api_call *call, ty_error *err);
int answer_whole_log(struct api_call *call, ty_error *err);
int answer_profile(struct api_call *call, ty_error *err);
void download_begin(struct api_call *call);
/* One of two ends, the thread's and the pipe's; the second ends the reply, and frees the call. */
void download_end(struct api_call *call);
/* The pipe's end: all is sent, or the client went in the midst. */
void download_close(struct api_call *call);
/* Nothing has come for too long: a reply that has begun breaks off, and another download may have its place. */
void download_give_up(struct api_call *call);

/* -- parameters.c: TY_EUSAGE with what is allowed. Where the query lacks the parameter, *value stays as it
 * is for a whole number, and is NaN for a real one, 0 for a choice. */
/* Borrowed from the query; NULL without it. */
const char *parameter_text(const struct api_call *call, const char *name);
int parameter_whole(const struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *value,
                    ty_error *err);
/* "from" and "to", in this order. */
int parameter_range(const struct api_call *call, double *from, double *to, ty_error *err);
/* The same of reports' numbers; *to 0: to the last. */
int parameter_numbers(const struct api_call *call, uint64_t *from, uint64_t *to, ty_error *err);
/* The index of its value in the NULL-terminated list. */
int parameter_choice(const struct api_call *call, const char *name, const char *const *allowed, int *value,
                     ty_error *err);
/* 0 or 1; false without it. */
int parameter_flag(const struct api_call *call, const char *name, bool *value, ty_error *err);
int parameter_history(const struct api_call *call, enum view_history *history, ty_error *err);
/* *ranks: `set`, or NULL. */
int parameter_ranks(const struct api_call *call, const char *name, struct idset *set,
                    const struct idset **ranks, ty_error *err);
/* Only those of the route. */
int parameters_check(const struct api_call *call, ty_error *err);

#endif
