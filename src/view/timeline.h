/* Where the time of a run went, and what happened in it. */
#ifndef VIEW_TIMELINE_H
#define VIEW_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "view/facts.h"
#include "view/summary.h"

/* X(name, text): the whole run, share by share */
#define VIEW_SHARES(X)            \
    X(SHARE_TRAINING, "training") \
    X(SHARE_START, "start")       \
    X(SHARE_LOST, "lost work")    \
    X(SHARE_WAITING, "waiting")   \
    X(VIEW_SHARES_N, NULL)

enum view_share {
#define X(name, text) name,
    VIEW_SHARES(X)
#undef X
};

const char *view_share_name(enum view_share share);

enum { VIEW_SLOWEST = 20 };

struct view_rank_start {
    int rank;
    double spawn, loader, rendezvous, total; /* seconds; NAN: not known */
};

/* Five quantiles of one phase over the ranks. */
struct view_quantiles {
    double least, lower, median, upper, greatest; /* NAN: not known */
};

struct view_timeline {
    double began, seconds;
    double shares[VIEW_SHARES_N]; /* seconds; they add up to `seconds` */
    struct view_quantiles spawn, loader, rendezvous;
    struct view_rank_start slowest[VIEW_SLOWEST];
    size_t n_slowest;
    /* Its phases are the start of the last attempt, as all that is said of ranks. */
    struct view_summary summary;
    struct facts_kept *kept; /* of which it is, until it is done; NULL: of its own */
    struct view_facts own;
};

/* Of the kept facts, or where none are kept (NULL) of its own. */
int view_timeline_read(const char *name, const char *run_path, struct facts_kept *kept,
                       struct view_timeline *timeline, ty_error *err);
void view_timeline_done(struct view_timeline *timeline);
/* {"began", "seconds", "shares": [{"share", "seconds"}], "start_up": [as in the summary], "quantiles": {...},
 * "slowest": [{"rank", "spawn", "loader", "rendezvous", "seconds"}], "attempts": [history]} */
void view_timeline_encode(const struct view_timeline *timeline, struct buffer *out);

struct view_events {
    int64_t after;    /* this sequence */
    size_t limit;     /* so many at most */
    const char *kind; /* NULL: any */
};

/* {"last", "events": [{"sequence", "time", "kind", "attempt",
 * "rank", "node", "data": {values of the kind}}]}. */
int view_events_encode(const char *run_path, const struct view_events *which, struct buffer *out,
                       ty_error *err);

/* [{"number", "attempt", "time", "name", "score", "rank": place by score, from 1, "bytes": or null,
 * "metrics"}], the newest first. */
int view_checkpoints_encode(const char *run_path, struct buffer *out, ty_error *err);

#endif
