/* What a dashboard is made of while it serves. */
#ifndef WEB_SITE_H
#define WEB_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "loop/loop.h"
#include "view/index.h"
#include "view/runs.h"
#include "web/dashboard.h"
#include "web/guard.h"
#include "web/http.h"
#include "web/lanes.h"
#include "web/listen.h"

enum { SITE_STREAMS = 32, SITE_EXPORTS = 4, SITE_PATIENCE_SECONDS = 5 };

/* What somebody who watches a run was told last, and when to look again. */
struct news {
    size_t n_streams;
    int directory, logs; /* inotify's, -1: none */
    bool dirty, looking;
    struct loop_timer timer;
    nanoseconds looked;
    int64_t last_report, last_sequence;
    int64_t sampled; /* when usage.db was written, by its storage */
    bool gone;
    struct hash *log_sizes; /* of the logs that changed: name -> size that was told */
};

/* A run that was asked for; there until the end. */
struct site_run {
    struct site *site;
    char id[VIEW_ID_SIZE];
    char *name, *path; /* owned */
    struct lane lane, index_lane;
    struct view_index *index; /* owned; grows in its lane */
    bool indexing, index_failed;
    struct indexing_job *index_rests; /* owned, between two steps; NULL: none does */
    nanoseconds index_told;
    struct news news;
};

struct site {
    struct dashboard_config
        config; /* a copy, as a thread that hangs outlives the call; the texts are the caller's */
    const struct http_module *http;
    struct http_server *server;
    struct loop *loop;
    struct loop_watch watch;
    struct loop_timer timer;
    struct guard guard;
    struct listening listening;
    struct lanes *lanes, *index_lanes; /* of who waits for an answer; of what nobody waits for */
    struct lane list_lane;
    struct view_runs *list; /* the list lane's */
    struct hash *runs;      /* ID -> struct site_run */
    struct site_stream *streams;
    size_t n_streams, n_exports;
    int inotify;
    struct loop_watch inotify_watch;
    struct loop_timer inotify_rest;
    struct loop_timer comment; /* keeps streams alive */
};

/* The server's next turn, after something was written outside of one. */
void site_stir(struct site *site);

/* -- api.c, answers.c, download.c: web/api.h */
bool api_is_action(const char *path);
void api_request(struct site *site, struct http_request *request);
void api_gone(struct http_request *request);
void api_drained(struct http_request *request);
/* Replies with {"error": message}. */
void api_fail(struct site *site, struct http_request *request, unsigned status, const char *message);
/* Notes a run of the list; the loop's. NULL when memory is short. */
struct site_run *site_run_note(struct site *site, const char *id, const char *name, const char *path);

/* -- stream.c */
struct site_stream; /* opaque */
/* Answers with events, of one run or of the list (NULL). */
void stream_begin(struct site *site, struct http_request *request, struct site_run *run);
void stream_gone(struct site *site, struct http_request *request);
int stream_open(struct site *site, ty_error *err);
void stream_close(struct site *site); /* says bye */
/* An event to all who watch the run. */
void stream_tell(struct site_run *run, const char *event, const char *data);

/* -- indexing.c: makes the run's index in the background, and tells how far it is. */
void indexing_begin(struct site_run *run);
void indexing_close(struct site *site);

/* What the page may do to a run, with --allow-actions: end it as Ctrl-C does, and have the stacks of its
 * workers saved. Runs of other users are never acted on. Both wait, and belong into a thread. */

/* The body of the request must be {"confirm": NAME}. TY_EUSAGE. */
int action_check(const struct buffer *body, const char *name, const char *run_path, ty_error *err);
/* The first Ctrl-C: {"running": whether there was somebody to tell}. */
int action_stop(const char *run_path, struct buffer *out, ty_error *err);
/* Behind this they are in logs/rank-N.stack: {}. */
int action_stacks(const char *run_path, struct buffer *out, ty_error *err);

#endif
