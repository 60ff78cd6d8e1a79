/* Buckets of points. What is drawn keeps every extreme, whatever is left of the rest. */
#include "view/series.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "view/encode.h"
#include "view/points.h"

struct view_query view_query_new(const char *metric) {
    return (struct view_query){.metric = metric, .from = (double)NAN, .to = (double)NAN};
}

/* -- buckets */

static void take_point(struct view_bucket *bucket, const struct point *point) {
    if (bucket->n + bucket->nonfinite == 0)
        *bucket = (struct view_bucket){.x = point->x, .x_last = point->x, .rank_min = -1, .rank_max = -1};
    bucket->x_last = point->x;
    if (!isfinite(point->value)) {
        bucket->nonfinite++;
        return;
    }
    double value = point->value;
    bool first = bucket->n++ == 0;
    if (first || value < bucket->min || (value <= bucket->min && point->rank < bucket->rank_min)) {
        bucket->min = value;
        bucket->rank_min = point->rank;
    }
    if (first || value > bucket->max || (value >= bucket->max && point->rank < bucket->rank_max)) {
        bucket->max = value;
        bucket->rank_max = point->rank;
    }
    if (first || point->id < bucket->id_first) {
        bucket->first = value;
        bucket->id_first = point->id;
    }
    if (first || point->id > bucket->id_last) {
        bucket->last = value;
        bucket->id_last = point->id;
    }
    bucket->sum += value;
}

struct line_choice {
    int rank; /* -1: all */
    bool lost;
};

static bool belongs(const struct line_choice *choice, const struct point *point) {
    return point->lost == choice->lost && (choice->rank < 0 || point->rank == choice->rank);
}

/* How many different x there are, up to one more than `most`. */
static size_t count_xs(const struct points *points, const struct line_choice *choice, size_t most) {
    size_t n = 0;
    double last = (double)NAN;
    for (size_t i = 0; i < points->n && n <= most; i++) {
        if (!belongs(choice, &points->items[i]) || points->items[i].x == last) continue;
        last = points->items[i].x;
        n++;
    }
    return n;
}

static int fill_line(const struct points *points, const struct line_choice *choice, size_t most,
                     struct view_line *line) {
    size_t n = count_xs(points, choice, most), at = 0, before = SIZE_MAX;
    bool each = n <= most;
    *line = (struct view_line){.rank = choice->rank, .lost = choice->lost};
    line->buckets = calloc((each ? n : most) + 1, sizeof *line->buckets);
    if (line->buckets == NULL) return -ENOMEM;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (!belongs(choice, point)) continue;
        size_t place = each ? 0 : points_bucket(point->x, points->from, points->to, most);
        bool same = line->n > 0 && (each ? line->buckets[at].x == point->x : place == before);
        if (!same) at = line->n++;
        before = place;
        take_point(&line->buckets[at], point);
    }
    return 0;
}

/* -- lines */

static int add_line(struct view_series *series, const struct points *points, struct line_choice choice,
                    size_t most, bool even_empty) {
    if (ARRAY_GROW(series->lines, series->n_lines) < 0) return -ENOMEM;
    struct view_line *line = &series->lines[series->n_lines];
    if (fill_line(points, &choice, most, line) < 0) return -ENOMEM;
    if (line->n > 0 || even_empty)
        series->n_lines++;
    else
        free(line->buckets);
    return 0;
}

struct rank_mean {
    int rank;
    uint64_t n;
    double sum, away;
};

static int compare_doubles(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int by_distance(const void *a, const void *b) {
    const struct rank_mean *x = a, *y = b;
    if (x->away != y->away) return x->away > y->away ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_rank(const void *a, const void *b) {
    const struct rank_mean *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Distance of each mean from the median of the means; a rank without a number stands out most. */
static int measure_distances(struct rank_mean *means, size_t n) {
    CLEANUP_FREE double *sorted = calloc(n + 1, sizeof *sorted);
    size_t n_sorted = 0;
    if (sorted == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (means[i].n > 0) sorted[n_sorted++] = means[i].sum / (double)means[i].n;
    qsort(sorted, n_sorted, sizeof *sorted, compare_doubles);
    double median = n_sorted > 0 ? sorted[(n_sorted - 1) / 2] : 0;
    for (size_t i = 0; i < n; i++)
        means[i].away = means[i].n > 0 ? fabs(means[i].sum / (double)means[i].n - median) : (double)INFINITY;
    return 0;
}

/* The ranks that have points, in order; those that are farthest from the rest where there are too many. */
static int choose_ranks(const struct points *points, struct rank_mean **chosen, size_t *n, size_t *n_all) {
    struct rank_mean *means = calloc((size_t)points->n_ranks + 1, sizeof *means);
    size_t kept = 0;
    if (means == NULL) return -ENOMEM;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->rank < 0) continue;
        struct rank_mean *mean = &means[point->rank];
        mean->away = 1; /* it has points */
        if (!isfinite(point->value)) continue;
        mean->n++;
        mean->sum += point->value;
    }
    for (int rank = 0; rank < points->n_ranks; rank++) {
        if (means[rank].away <= 0) continue;
        means[rank].rank = rank;
        means[kept++] = means[rank];
    }
    *n_all = kept;
    if (kept > VIEW_LINES_MAX) {
        if (measure_distances(means, kept) < 0) {
            free(means);
            return -ENOMEM;
        }
        qsort(means, kept, sizeof *means, by_distance);
        kept = VIEW_LINES_MAX;
        qsort(means, kept, sizeof *means, by_rank);
    }
    *chosen = means;
    *n = kept;
    return 0;
}

static int add_lines(struct view_series *series, const struct points *points, const struct view_query *query) {
    size_t most = query->buckets > 0 ? (size_t)query->buckets : VIEW_BUCKETS, n = 1;
    CLEANUP_FREE struct rank_mean *ranks = NULL;
    if (query->what == VIEW_RANKS && choose_ranks(points, &ranks, &n, &series->n_ranks) < 0) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int rank = query->what == VIEW_RANKS ? ranks[i].rank : -1;
        if (add_line(series, points, (struct line_choice){rank, false}, most, rank < 0) < 0) return -ENOMEM;
        if (query->history == VIEW_ALL &&
            add_line(series, points, (struct line_choice){rank, true}, most, false) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* -- marks */

static int add_mark(struct view_series *series, double x, enum view_mark_kind kind, char *text) {
    if (text == NULL || ARRAY_GROW(series->marks, series->n_marks) < 0) {
        free(text);
        return -ENOMEM;
    }
    series->marks[series->n_marks++] = (struct view_mark){x, kind, text};
    return 0;
}

static char *format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *pattern, ...) {
    char *text;
    va_list args;
    va_start(args, pattern);
    if (vasprintf(&text, pattern, args) < 0) text = NULL;
    va_end(args);
    return text;
}

/* x of the first point at or behind a place in the run; NAN where there is none. */
static double find_x(const struct points *points, int attempt, uint64_t number) {
    const struct point *best = NULL;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->lost || point->attempt < attempt || (point->attempt == attempt && point->number < number))
            continue;
        if (best == NULL || point->attempt < best->attempt ||
            (point->attempt == best->attempt && point->number < best->number))
            best = point;
    }
    return best != NULL ? best->x : (double)NAN;
}

/* The first point of all that is not finite, and how many there are. */
static int mark_nonfinite(struct view_series *series, const struct points *points) {
    const struct point *first = NULL;
    uint64_t n = 0;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (isfinite(point->value) || point->lost) continue;
        if (first == NULL || point->id < first->id) first = point;
        n++;
    }
    if (first == NULL) return 0;
    return add_mark(series, first->x, VIEW_MARK_NONFINITE,
                    format("not finite first at rank %d, report %llu; %llu in all", first->rank,
                           (unsigned long long)first->number, (unsigned long long)n));
}

enum { MARKS_MAX = 200 };

/* Hangs are found by their time: the first point behind it. */
static double find_x_at(const struct points *points, nanoseconds time) {
    const struct point *best = NULL;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->time >= time && (best == NULL || point->time < best->time)) best = point;
    }
    return best != NULL ? best->x : points->n > 0 ? points->to : (double)NAN;
}

static int by_mark(const void *a, const void *b) {
    const struct view_mark *x = a, *y = b;
    return (x->x > y->x) - (x->x < y->x);
}

/* The newest of each kind where there are too many. */
static int add_marks(struct view_series *series, const struct points *points, const struct view_facts *facts) {
    size_t n = facts->n_attempts, from = n > MARKS_MAX ? n - MARKS_MAX : 1;
    int result = mark_nonfinite(series, points);
    for (size_t i = from; i < n && result == 0; i++) {
        double x = find_x(points, facts->attempts[i].attempt, 0);
        if (!isnan(x))
            result = add_mark(series, x, VIEW_MARK_ATTEMPT, format("attempt %d", facts->attempts[i].attempt));
    }
    n = facts->n_checkpoints;
    for (size_t i = n > MARKS_MAX ? n - MARKS_MAX : 0; i < n && result == 0; i++) {
        const struct fact_checkpoint *checkpoint = &facts->checkpoints[i];
        double x = find_x(points, checkpoint->attempt, checkpoint->number);
        if (!isnan(x)) result = add_mark(series, x, VIEW_MARK_CHECKPOINT, strdup(checkpoint->name));
    }
    for (size_t i = 0; i < facts->n_hung && i < MARKS_MAX && result == 0; i++) {
        double x = find_x_at(points, facts->hung[i].time);
        if (!isnan(x)) result = add_mark(series, x, VIEW_MARK_HUNG, strdup(facts->hung[i].text));
    }
    if (series->n_marks > 0) qsort(series->marks, series->n_marks, sizeof *series->marks, by_mark);
    return result;
}

/* -- together */

int view_series_read(const char *run_path, const struct view_query *query, struct view_series *series,
                     ty_error *err) {
    struct view_facts facts;
    struct points points;
    *series = (struct view_series){0};
    int result = points_check_query(query, err);
    if (result >= 0) result = view_facts_read(run_path, &facts, err);
    if (result < 0) return result;
    result = points_gather(run_path, query, &facts, &points, err);
    if (result >= 0) {
        series->exact = points.exact;
        series->scanned = points.scanned;
        series->x = points.x;
        if (add_lines(series, &points, query) < 0 || add_marks(series, &points, &facts) < 0)
            result = ty_fail_memory(err);
        points_done(&points);
    }
    view_facts_done(&facts);
    if (result < 0) view_series_done(series);
    return result;
}

void view_series_done(struct view_series *series) {
    for (size_t i = 0; i < series->n_lines; i++)
        free(series->lines[i].buckets);
    for (size_t i = 0; i < series->n_marks; i++)
        free(series->marks[i].text);
    free(series->lines);
    free(series->marks);
    *series = (struct view_series){0};
}

/* -- JSON */

/* X(name, how) */
#define SERIES_COLUMNS(X)                                           \
    X(x, encode_number(out, b->x))                                  \
    X(x_last, encode_number(out, b->x_last))                        \
    X(n, encode_count(out, b->n))                                   \
    X(nonfinite, encode_count(out, b->nonfinite))                   \
    X(min, encode_number_if(out, b->n > 0, b->min))                 \
    X(max, encode_number_if(out, b->n > 0, b->max))                 \
    X(mean, encode_number_if(out, b->n > 0, b->sum / (double)b->n)) \
    X(first, encode_number_if(out, b->n > 0, b->first))             \
    X(last, encode_number_if(out, b->n > 0, b->last))               \
    X(rank_min, encode_rank(out, b->rank_min))                      \
    X(rank_max, encode_rank(out, b->rank_max))

#define X(name, how)                                                             \
    static void encode_##name(struct buffer *out, const struct view_bucket *b) { \
        how;                                                                     \
    }
SERIES_COLUMNS(X)
#undef X

static const struct {
    const char *name;
    void (*encode)(struct buffer *out, const struct view_bucket *bucket);
} columns[] = {
#define X(name, how) {#name, encode_##name},
    SERIES_COLUMNS(X)
#undef X
};

static void encode_line(const struct view_line *line, const char *run, const char *metric, struct buffer *out) {
    buffer_text(out, "{\"run\": ");
    buffer_json_text(out, run);
    buffer_text(out, ", \"metric\": ");
    buffer_json_text(out, metric);
    buffer_text(out, ", \"rank\": ");
    encode_rank(out, line->rank);
    buffer_printf(out, ", \"lost\": %s", line->lost ? "true" : "false");
    for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
        buffer_printf(out, ", \"%s\": [", columns[i].name);
        for (size_t at = 0; at < line->n; at++) {
            if (at > 0) buffer_char(out, ',');
            columns[i].encode(out, &line->buckets[at]);
        }
        buffer_char(out, ']');
    }
    buffer_char(out, '}');
}

void view_series_encode_lines(const struct view_series *series, const char *run, const char *metric,
                              struct buffer *out) {
    for (size_t i = 0; i < series->n_lines; i++) {
        if (i > 0) buffer_text(out, ", ");
        encode_line(&series->lines[i], run, metric, out);
    }
}

void view_series_encode_marks(const struct view_series *series, const char *run, struct buffer *out) {
    static const char *const kinds[] = {
#define X(name, text) text,
        VIEW_MARKS(X)
#undef X
    };
    for (size_t i = 0; i < series->n_marks; i++) {
        const struct view_mark *mark = &series->marks[i];
        buffer_text(out, i > 0 ? ", {\"run\": " : "{\"run\": ");
        buffer_json_text(out, run);
        buffer_text(out, ", \"x\": ");
        encode_number(out, mark->x);
        buffer_printf(out, ", \"kind\": \"%s\", \"text\": ", kinds[mark->kind]);
        buffer_json_text(out, mark->text);
        buffer_char(out, '}');
    }
}

void view_series_encode(const struct view_series *const *series, const char *const *runs, size_t n,
                        const char *metric, struct buffer *out) {
    bool exact = true;
    double scanned = 1;
    for (size_t i = 0; i < n; i++) {
        exact = exact && series[i]->exact;
        if (series[i]->scanned < scanned) scanned = series[i]->scanned;
    }
    buffer_printf(out, "{\"exact\": %s, \"scanned\": ", exact ? "true" : "false");
    encode_number(out, scanned);
    buffer_text(out, ", \"x\": ");
    buffer_json_text(out, n > 0 ? series[0]->x : NULL);
    buffer_printf(out, ", \"ranks\": %zu, \"series\": [", n > 0 ? series[0]->n_ranks : 0);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && series[i]->n_lines > 0) buffer_text(out, ", ");
        view_series_encode_lines(series[i], runs[i], metric, out);
    }
    buffer_text(out, "], \"marks\": [");
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (any && series[i]->n_marks > 0) buffer_text(out, ", ");
        any = any || series[i]->n_marks > 0;
        view_series_encode_marks(series[i], runs[i], out);
    }
    buffer_text(out, "]}");
}
