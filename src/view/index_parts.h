/* What an index is made of, for the files that make it: index.c reads the reports, index_rows.c puts their
 * values into buckets, index_cache.c keeps them, index_asked.c tells what they come to. */
#ifndef VIEW_INDEX_PARTS_H
#define VIEW_INDEX_PARTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "view/drawings.h"
#include "view/facts.h"
#include "view/index.h"
#include "view/scan.h"
#include "view/series.h"
#include "view/values.h"

enum {
    INDEX_METRICS = 500,
    INDEX_SLOTS = 65536,
    INDEX_VERSION = 3,
    INDEX_NAME_BYTES = 1025,
    FINEST_SCALE = 128
};

/* X(enumerator, name): each x that has buckets; from INDEX_STEP_X on, what reports call theirs. The first that
 * most of them have, up to the epoch, is the step. */
#define INDEX_AXES(X)                                 \
    X(INDEX_NUMBER, "number")                         \
    X(INDEX_TIME, "time")                             \
    X(INDEX_STEP_X, "step")                           \
    X(INDEX_GLOBAL_STEP, "global_step")               \
    X(INDEX_ITERATION, "iteration")                   \
    X(INDEX_TRAINING_ITERATION, "training_iteration") \
    X(INDEX_EPOCH, "epoch")                           \
    X(INDEX_AXES_N, NULL)

enum index_axis {
#define X(name, text) name,
    INDEX_AXES(X)
#undef X
};

extern const char *const index_axis_names[];

/* Buckets side by side: slot i holds the x from (base + i) / scale on. */
struct index_row {
    struct view_bucket *slots; /* n of `room`, owned */
    size_t n, room;
    int64_t base;
    double scale; /* a power of two */
};

struct index_metric {
    char *name; /* owned */
    size_t name_size;
    enum index_axis axis;                   /* whose x its values are; INDEX_AXES_N: none */
    struct index_row rows[2][INDEX_AXES_N]; /* of what counts, and of what was lost */
    struct view_bucket gathered;            /* values of the group, whose x are the group's */
    int64_t report;                         /* id of the last with a value, which it is */
    double value;
};

/* Reports behind each other with the same metrics, whose x fall into the same slot of every row, as those of
 * all ranks with the same number mostly do. Their values are gathered first and go into the rows together. */
struct index_group {
    uint64_t n, with[INDEX_AXES_N]; /* reports; those that have an x */
    int64_t last;                   /* id of the last of them */
    bool lost;
    struct {
        double low, high; /* x; NAN: they have none */
        double scale;     /* of the finest of their rows */
        int64_t slot;     /* at that scale */
    } axes[INDEX_AXES_N];
    size_t n_values, values[INDEX_METRICS]; /* places of their metrics */
};

/* What the cache keeps in front. */
struct index_head {
    uint32_t version;
    uint32_t unlike; /* bits: axes whose x is not the number of every report, which need buckets of their own */
    uint64_t device, inode;
    int64_t first;                     /* event, ns */
    int64_t last;                      /* id of the last report that it has */
    uint64_t rows, with[INDEX_AXES_N]; /* reports; those that have an x */
    uint64_t n_attempts, n_metrics;
};

struct view_index {
    char *run_path, *cache; /* owned; the cache's file, NULL: none */
    bool cached;            /* there is to be one, and it was not looked for yet */
    struct scan_sample sample;
    struct facts_kept answering; /* facts of those who ask; `facts` are the index's own */
    struct drawings drawings;
    struct scan_rows rows;   /* of the step at hand, kept for the next: their pages are many */
    pthread_mutex_t growing; /* of the thread that reads more, or keeps what there is; taken before `lock` */
    pthread_mutex_t lock;    /* over what queries read while it grows */
    struct index_head head;
    struct view_facts facts;
    const struct view_facts *counting; /* by which the reports at hand count: `facts`, or those of an answer */
    struct index_metric *metrics;      /* owned */
    struct hash *places;               /* name -> place + 1 */
    size_t n_slots;                    /* of all rows */
    struct index_group group;          /* behind head.last, and in no row yet */
    /* told without the lock, which its thread has for long */
    _Atomic uint64_t there; /* reports, when it was last looked */
    _Atomic int64_t done;   /* id of the last report that it had then; -1: it was not looked yet */
    int64_t kept;           /* id of the last that the cache has */
    bool follows;           /* there were more reports than when it had looked before, or may be */
    bool outrun;            /* and more of them than a step reads */
    double drawn;           /* how far the drawing at hand is, 0 to 1 */
    /* the report at hand */
    int64_t report;
    double xs[INDEX_AXES_N];
    struct values_shape shape;
    size_t members[VALUES_MEMBERS];         /* place of the metric that each is + 1; 0: to be looked up */
    size_t n_values, values[INDEX_METRICS]; /* places of its metrics; SIZE_MAX: memory is short */
};

/* -- index_rows.c */

enum index_axis index_axis_of(const char *name, size_t size);
/* Leaves the index without metrics and ready for new ones, unless memory is short: then without `places`. */
void index_free_metrics(struct view_index *index);
/* Begins anew: the journal is another one, or another attempt took reports back. */
void index_forget(struct view_index *index);
/* Takes the name, also where it fails: -ENOMEM. */
int index_add_metric(struct view_index *index, char *name);
/* Room for n slots, and some more: a row that grows slot by slot is not copied each time. */
int index_reserve(struct index_row *row, size_t n);
/* The report at hand, which lies behind those before; of the axes `has` those that it has an x of. -ENOMEM. */
int index_add(struct view_index *index, const struct journal_report *report, bool lost,
              const bool has[INDEX_AXES_N]);
/* Only now the index has all reports that were added. -ENOMEM, and it has none. */
int index_end_group(struct view_index *index);

/* -- index_asked.c */

/* Whether there are buckets of such: of ranks, and of made metrics, there are none. */
bool index_has_buckets(const struct view_query *query);

/* -- index_cache.c */

/* Takes over what the cache has of the run, which may be none of it. */
void index_cache_read(struct view_index *index);
/* Whether the cache lacks more than an eighth of what it could have. */
bool index_cache_lags(const struct view_index *index);

#endif
