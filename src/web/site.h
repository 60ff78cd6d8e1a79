/* What a dashboard is made of while it serves. */
#ifndef WEB_SITE_H
#define WEB_SITE_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/idset.h"
#include "loop/loop.h"
#include "view/export.h"
#include "view/index.h"
#include "view/runs.h"
#include "web/dashboard.h"
#include "web/http.h"

/* -- guard.c */

/* Who may ask: the token, and no page of another origin, whatever it makes a browser send. */

enum { TOKEN_SIZE = 33 }; /* 32 hex digits: 128 bits */

struct guard {
    char token[TOKEN_SIZE];
    const char *const *hosts; /* n_hosts allowed beside those of the loopback; borrowed */
    size_t n_hosts;
    bool is_unix;
};

int guard_make_token(char token[TOKEN_SIZE], ty_error *err);

/* Whether the request came where it was meant to: Host, Origin, Sec-Fetch-Site, the peer's user. */
bool guard_origin(const struct guard *guard, const struct http_module *http,
                  const struct http_request *request);
/* Whether it has the token, in Authorization alone. Takes the same time whatever is wrong with it. */
bool guard_token(const struct guard *guard, const struct http_module *http, const struct http_request *request);

/* -- listen.c, registry.c */

/* Where the page is served: a port of this machine's loopback, or a Unix socket. */

enum { LISTEN_PORT = 8268, LISTEN_TRIES = 32 };

struct listening {
    int fd;
    bool is_unix;
    int asked, port;     /* TCP: the port that was asked for, and the one that it became */
    char host[64];       /* as it stands in a URL: "127.0.0.1", "[::1]" */
    char path[PATH_MAX]; /* Unix */
    struct stat socket;  /* what has the path, as it was made */
};

/* "127.0.0.1:8268", "localhost:0", "[::1]:8268", "8268", "unix:PATH"; NULL: the first. A port that is taken:
 * the next free one, LISTEN_TRIES of them. TY_EUSAGE for an address that others could reach. A socket that is
 * left over from one that is gone is replaced. */
int listen_open(const char *text, struct listening *listening, ty_error *err);
/* Takes the Unix socket away; the descriptor is the server's. */
void listen_close(const struct listening *listening);

/* The dashboards of this user that run: a locked file each in a directory for the user alone,
 * $XDG_RUNTIME_DIR/trainyard or /tmp/trainyard-UID. A lock that is free belongs to one that is gone. */
struct registry {
    int fd; /* holds the lock; -1: not entered */
    char path[PATH_MAX];
    char page[PATH_MAX]; /* the file that leads a browser to us; "": none */
    pid_t browser;       /* our child; 0: none, or it has ended */
};

int registry_enter(const struct listening *listening, struct registry *registry, ty_error *err);
void registry_leave(struct registry *registry);

/* Starts a browser with a file, for the user alone, that leads on to the address: so the token is in no list of
 * processes. The browser is $BROWSER, else xdg-open. */
int registry_open_browser(struct registry *registry, const char *address, ty_error *err);
/* A child has ended: it may be the browser. */
void registry_reap_browser(struct registry *registry);

/* -- lanes.c */

/* Threads for what reads files: a run's storage may be slow, or hang for good, and neither the loop nor another
 * run must wait for it. Each run has a lane; the jobs of a lane are done one after the other, so what they
 * share needs no lock, and the lanes go on beside each other, on as many threads as have work, LANE_THREADS at
 * most. */

enum { LANE_THREADS = 16 };

/* Embedded in what it is about, made by the poster. */
struct lane_job {
    struct lane_job *next;
    void (*work)(struct lane_job *job); /* in a thread */
    void (*done)(struct lane_job *job); /* on the loop, after it; frees it */
    void (*drop)(struct lane_job *job); /* frees one that will not be done any more; NULL: free does */
};

/* Embedded in what its jobs are about, zero-initialised; must outlive them. */
struct lane {
    struct lane *next;
    struct lane_job *first, *last;
    bool at_work; /* in a thread, or waiting for one */
};

struct lanes; /* opaque */

/* The threads are by `nice` nicer than the process, from their first job to their last: only root gets back
 * from that. */
int lanes_create(struct loop *loop, int nice, struct lanes **out, ty_error *err);
/* Jobs that wait are dropped. What hangs is left to its thread: false, and nothing that jobs know may be
 * freed. */
bool lanes_destroy(struct lanes *lanes);
void lane_post(struct lanes *lanes, struct lane *lane, struct lane_job *job);

/* -- what is served */

enum { SITE_STREAMS = 32, SITE_EXPORTS = 4, SITE_PATIENCE_SECONDS = 5, SITE_STALL_SECONDS = 30 };

/* What there is to tell of a run. */
struct news_known {
    bool gone;
    int error;                 /* why its journal cannot be read; 0: it can */
    int64_t reports, sequence; /* how many, and of the last event */
    nanoseconds event_time;
    int64_t sampled;        /* when usage.db was written, by its storage */
    bool held;              /* a controller has it */
    nanoseconds quiet_from; /* as its summary has it, 0: that was not read since something came */
    int64_t quiet;          /* minutes begun */
};

/* What those who watch a run were told, and when to look again. */
struct news {
    size_t n_streams;
    struct news_known told;
    int directory, logs; /* inotify's, -1: none */
    bool dirty, looking;
    bool anew; /* somebody came who was told of no log yet */
    struct loop_timer timer;
    nanoseconds spent;                   /* of a processor, on what there was to tell last */
    nanoseconds looked, heard, scan_due; /* heard: when something came last */
    struct idset written;                /* ranks whose logs were, as the kernel tells */
    struct hash *sizes;                  /* owned; what was told of the logs, by rank; NULL: nothing */
};

/* The same of the list of runs. */
struct list_news {
    size_t n_streams;
    uint64_t told; /* the list's cursor */
    bool failed;   /* and that its storage cannot be read */
    bool looking;
    struct loop_timer timer;
};

/* Answers of a moment ago, of any run; threads take and add them under the lock. */
enum { KEPT_ANSWERS = 8 };
struct kept_answers {
    pthread_mutex_t lock;
    struct kept_answer {
        char *asked;        /* path and query; owned; NULL: none */
        uint64_t told;      /* of its run, when it was asked */
        nanoseconds until;  /* monotonic */
        struct buffer body; /* JSON */
    } items[KEPT_ANSWERS];
    size_t next; /* that gives its place to another */
};

/* A run that was asked for; there until the end. */
struct site_run {
    struct site *site;
    char id[VIEW_ID_SIZE];
    char *name, *path; /* owned */
    uint64_t told;     /* how often those who watch it were told something */
    struct lane lane, index_lane;
    struct view_index *index; /* owned; grows in its lane; NULL: nobody has asked about the run yet */
    bool indexing;
    bool index_again;                 /* there is more to do than the step at hand may know of */
    nanoseconds index_due;            /* behind a step that failed: not before */
    struct indexing_job *index_rests; /* owned, between two steps; NULL: none does */
    nanoseconds index_told;
    struct view_counts *counts; /* owned; for /metrics, in its lane; NULL: nobody has asked for that */
    size_t n_left;              /* of its exports */
    struct news news;
};

struct site {
    /* A copy, as a thread that hangs outlives the call; the texts are the caller's. */
    struct dashboard_config config;
    const struct http_module *http;
    struct http_server *server;
    struct loop *loop;
    struct loop_listener listener;
    struct loop_watch watch;
    struct loop_timer timer;
    struct guard guard;
    struct stat token_file; /* as it was written */
    struct listening listening;
    struct lanes *lanes, *export_lanes, *index_lanes; /* of answers; of downloads; of what nobody waits for */
    struct lane list_lane;
    struct view_runs *list; /* the list lane's */
    struct kept_answers kept;
    struct list_news list_news;
    struct hash *runs; /* ID -> struct site_run */
    struct site_stream *streams;
    size_t n_streams, n_exports;
    size_t n_left; /* exports that were given up, and threads are still at */
    int inotify;
    struct loop_watch inotify_watch;
    struct loop_timer inotify_rest;
    struct loop_timer comment; /* keeps streams alive */
};

/* The server's next turn, after something was written outside of one. */
void site_stir(struct site *site);

/* -- api.c, answers.c, download.c: web/api.h */
/* Whether a path is one of an action, by POST, or of one that is read. */
bool api_is_action(const char *path);
bool api_is_read(const char *path);
void api_request(struct site *site, struct http_request *request);
void api_gone(struct http_request *request);
void api_drained(struct http_request *request);
/* Replies with {"error": message}. */
void api_fail(struct site *site, struct http_request *request, unsigned status, const char *message);
/* The path takes others, as Allow lists them. */
void api_refuse_method(struct site *site, struct http_request *request, const char *allow);

/* -- kept.c: web/api.h */
void kept_forget(struct kept_answer *kept);

/* -- stream.c */
struct site_stream; /* opaque */
/* Answers with events, of one run or of the list (NULL). */
void stream_begin(struct site *site, struct http_request *request, struct site_run *run);
void stream_gone(struct site *site, struct http_request *request);
void stream_close(struct site *site); /* says bye */
/* An event to all who watch the run, or the list (NULL). */
void stream_tell(struct site *site, struct site_run *run, const char *event, const char *data);

/* -- news.c: looks at what changed, while somebody watches */
int news_open(struct site *site, ty_error *err);
void news_close(struct site *site);    /* behind the lanes */
void news_begin(struct site_run *run); /* for one more, who is told of all there is */
void news_end(struct site_run *run);
/* Somebody was answered about the run, for so much of a processor: the dearer, the longer the news wait. */
void news_spend(struct site_run *run, nanoseconds spent);
void list_news_begin(struct site *site);
void list_news_end(struct site *site);

/* -- indexing.c: makes the run's index in the background, and tells how far it is; of a run that is gone
 * nothing is kept. */
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
