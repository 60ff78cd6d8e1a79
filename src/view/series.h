/* What was reported, drawn thin without losing an extreme: points in buckets over x, each with its number,
 * least, greatest, mean, first and last value and the ranks of the extremes. The heat map and the histogram are
 * made of the same points.
 *
 * A point is a finite number that a report has under the metric's name; "a/b" is b in the object a; true and
 * false are 1 and 0. "NaN", "Infinity", "-Infinity" and numbers beyond a double are counted as not finite. All
 * else is no point. "@interval" is the seconds between two reports of a rank, "@lag" those behind the first
 * rank with the same number, "@rate" the reports of a rank a second.
 *
 * Up to VIEW_WHOLE reports are read whole. Of more, the index answers where one is given and has them; else a
 * sample of 256 blocks of neighbouring reports, and `exact` is false. */
#ifndef VIEW_SERIES_H
#define VIEW_SERIES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/idset.h"

enum { VIEW_WHOLE = 50000, VIEW_BUCKETS_MAX = 4000, VIEW_BUCKETS = 1000, VIEW_LINES_MAX = 16 };

struct view_index; /* view/index.h */

enum view_history { VIEW_EFFECTIVE, VIEW_ALL };

/* Which reports. Zero-initialised: all that count. */
struct view_selection {
    const struct idset *ranks; /* NULL: all */
    enum view_history history;
    int64_t after;                  /* reports behind this id */
    int64_t unreadable;             /* id of the first whose metrics are no JSON, as an export finds; 0: none */
    const struct view_index *index; /* has the sample that others took; NULL: none */
};

/* Cells: a line of each rank, however many they are; rows and counts: what a heat map and a histogram of more
 * are made of. */
enum view_what { VIEW_BAND, VIEW_RANKS, VIEW_CELLS, VIEW_ROWS, VIEW_COUNTS };

/* As view_query_new makes it: a band of all ranks over the step, from the lowest to the highest. */
struct view_query {
    const char *metric;
    const char *x;   /* step, epoch, number, time, relative, metric:NAME; NULL: step */
    double from, to; /* both included; NAN: the lowest, the highest */
    int buckets;     /* 0: VIEW_BUCKETS */
    enum view_what what;
    enum view_history history;
    const struct idset *ranks;      /* NULL: all */
    const struct view_index *index; /* NULL: none */
    int rows;                       /* of a heat map; 0: VIEW_ROWS_MAX */
    bool near; /* of a histogram: few values that lie far above all others have the last bin for themselves */
};

struct view_query view_query_new(const char *metric);

struct view_bucket {
    double x, x_last;
    uint64_t n, nonfinite;
    double min, max, sum, first, last; /* without a meaning where n is 0 */
    int rank_min, rank_max;
    int64_t id_first, id_last;
};

/* A bucket without points is empty: all zeros. */
static inline bool view_bucket_is_empty(const struct view_bucket *bucket) {
    return bucket->n + bucket->nonfinite == 0;
}

/* Adds a point; in the header, as an index adds hundreds of millions. */
static inline void view_bucket_add(struct view_bucket *bucket, double x, double value, int rank, int64_t id) {
    if (view_bucket_is_empty(bucket))
        *bucket = (struct view_bucket){
            .x = x, .x_last = x, .rank_min = -1, .rank_max = -1, .id_first = id, .id_last = id};
    if (x < bucket->x) bucket->x = x;
    if (x > bucket->x_last) bucket->x_last = x;
    if (!isfinite(value)) {
        bucket->nonfinite++;
        return;
    }
    bool first = bucket->n++ == 0;
    bucket->sum += value;
    if (first || value < bucket->min || (value <= bucket->min && rank < bucket->rank_min)) {
        bucket->min = value;
        bucket->rank_min = rank;
    }
    if (first || value > bucket->max || (value >= bucket->max && rank < bucket->rank_max)) {
        bucket->max = value;
        bucket->rank_max = rank;
    }
    if (first || id < bucket->id_first) {
        bucket->first = value;
        bucket->id_first = id;
    }
    if (first || id > bucket->id_last) {
        bucket->last = value;
        bucket->id_last = id;
    }
}

/* Adds what is in `from`. */
void view_bucket_merge(struct view_bucket *into, const struct view_bucket *from);

/* Of all ranks together, or of one; of what counts, or of what later attempts took back. */
struct view_line {
    int rank; /* -1: all */
    bool lost;
    struct view_bucket *buckets; /* owned, by x */
    size_t n;
};

#define VIEW_MARKS(X)                     \
    X(VIEW_MARK_ATTEMPT, "attempt")       \
    X(VIEW_MARK_CHECKPOINT, "checkpoint") \
    X(VIEW_MARK_NONFINITE, "nonfinite")   \
    X(VIEW_MARK_HUNG, "hung")             \
    X(VIEW_MARK_HARDWARE, "hardware")

enum view_mark_kind {
#define X(name, text) name,
    VIEW_MARKS(X)
#undef X
};

struct view_mark {
    double x;
    enum view_mark_kind kind;
    char *text; /* owned */
};

struct view_series {
    bool exact;
    double scanned;   /* share of the reports that were looked at */
    bool behind;      /* many reports are in no index: one would help, or more of it */
    uint64_t reports; /* that there were */
    const char *x;    /* what was taken for it: "step", "global_step", "number", ...; the query's or static */
    struct view_line *lines; /* owned */
    size_t n_lines, n_ranks; /* ranks: how many there are to draw; more than lines where some were left out */
    struct view_mark *marks; /* owned, by x */
    size_t n_marks;
};

int view_series_read(const char *run_path, const struct view_query *query, struct view_series *series,
                     ty_error *err);
/* The same of n metrics in place of the query's: of a run that is read whole they are read together. */
int view_series_read_each(const char *run_path, const struct view_query *query, const char *const *metrics,
                          size_t n, struct view_series *series, ty_error *err);
void view_series_done(struct view_series *series);

/* The reply of n runs beside each other: {"exact", "scanned", "x", "ranks", "reports", "metrics", "series",
 * "marks"}, of which "series" are [{"run", "metric", "rank", "lost", "x": [], "x_last": [], "n": [],
 * "nonfinite": [], "min": [], "max": [], "mean": [], "first": [], "last": [], "rank_min": [],
 * "rank_max": []}, ...], "marks" are [{"run", "metric", "x", "kind", "text"}, ...], and "metrics" say what the
 * first four are for each: [{"metric", "exact", "scanned", "x", "ranks"}, ...]. */
void view_series_encode(const struct view_series *const *series, const char *const *runs, size_t n,
                        const char *metric, struct buffer *out);
/* The same of several metrics; of each run they are behind each other. */
void view_series_encode_each(const struct view_series *const *series, const char *const *runs, size_t n_runs,
                             const char *const *metrics, size_t n_metrics, struct buffer *out);

/* -- the names of what was reported */

struct view_metric {
    char *name;            /* owned; flattened: "a/b" */
    uint64_t n, nonfinite; /* points; of the sample where that is all that was read */
    double min, max, sum;  /* without a meaning where n is 0 */
    double last;           /* of the lowest rank that made the newest report with it */
    uint64_t ranks;        /* that reported it */
    bool text;             /* no number was among its values */
};

struct view_metrics {
    bool exact;
    double scanned;
    struct view_metric *items; /* owned; most reported first, then as they appeared */
    size_t n;
};

/* All reports with `whole`, however long that takes. */
int view_metrics_read(const char *run_path, const struct view_selection *selection, bool whole,
                      struct view_metrics *metrics, ty_error *err);
void view_metrics_done(struct view_metrics *metrics);
/* [{"name", "group", "n", "nonfinite", "last", "ranks"}, ...] */
void view_metrics_encode(const struct view_metrics *metrics, struct buffer *out);

/* -- ranks over time */

enum { VIEW_ROWS_MAX = 512, VIEW_COLUMNS_MAX = 600, VIEW_BINS_MAX = 1000 };

/* A cell is the mean of a rank in a column, a row of several ranks the greatest of theirs; 0 is none, 1 to 255
 * lie evenly from min to max. */
struct view_heat {
    bool exact;
    double scanned;
    bool behind; /* as of a series */
    const char *x;
    double from, to, min, max;
    size_t rows, columns, ranks_per_row, n_ranks;
    uint8_t *cells; /* owned; row by row */
};

/* The query's buckets are the columns, of which a run that goes on may have fewer; rows 0: VIEW_ROWS_MAX. */
int view_heat_read(const char *run_path, const struct view_query *query, int rows, struct view_heat *heat,
                   ty_error *err);
void view_heat_done(struct view_heat *heat);
/* {"exact", "scanned", "x", "from", "to", "min", "max", "rows", "columns", "ranks_per_row", "ranks", "cells":
 * base64} */
void view_heat_encode(const struct view_heat *heat, struct buffer *out);

struct view_histogram {
    bool exact;
    double scanned, min, max;
    bool behind; /* as of a series */
    double near; /* where the last bin begins, unless that is one like the others: NAN */
    size_t bins;
    double *edges;          /* owned; bins + 1; of no value none is set */
    uint64_t *all, *chosen; /* owned; of all ranks, and of the query's, NULL where it names none */
};

int view_histogram_read(const char *run_path, const struct view_query *query, int bins,
                        struct view_histogram *histogram, ty_error *err);
void view_histogram_done(struct view_histogram *histogram);
/* {"exact", "scanned", "edges": [], "all": [], "chosen": []} */
void view_histogram_encode(const struct view_histogram *histogram, struct buffer *out);

#endif
