/* Buckets of points: the lines of a plot. A bucket keeps its first, last, least and greatest value, each
 * with the rank that had it, so that what is drawn keeps every extreme however few buckets are left of the
 * points. A range is answered from the index where there is one, else from the reports. */
#include "view/series.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "view/encode.h"
#include "view/index.h"
#include "view/points.h"

struct view_query view_query_new(const char *metric) {
    return (struct view_query){.metric = metric, .from = (double)NAN, .to = (double)NAN};
}

/* -- buckets */

void view_bucket_merge(struct view_bucket *into, const struct view_bucket *from) {
    if (view_bucket_is_empty(from)) return;
    if (view_bucket_is_empty(into)) {
        *into = *from;
        return;
    }
    if (from->x < into->x) into->x = from->x;
    if (from->x_last > into->x_last) into->x_last = from->x_last;
    into->nonfinite += from->nonfinite;
    if (from->n == 0) return;
    bool first = into->n == 0;
    if (first || from->min < into->min || (from->min <= into->min && from->rank_min < into->rank_min)) {
        into->min = from->min;
        into->rank_min = from->rank_min;
    }
    if (first || from->max > into->max || (from->max >= into->max && from->rank_max < into->rank_max)) {
        into->max = from->max;
        into->rank_max = from->rank_max;
    }
    if (first || from->id_first < into->id_first) {
        into->first = from->first;
        into->id_first = from->id_first;
    }
    if (first || from->id_last > into->id_last) {
        into->last = from->last;
        into->id_last = from->id_last;
    }
    into->sum = first ? from->sum : into->sum + from->sum;
    into->n += from->n;
}

struct line_choice {
    int rank; /* -1: all */
    bool lost;
};

static bool belongs(const struct line_choice *choice, const struct point *point) {
    return point->lost == choice->lost && (choice->rank < 0 || point->rank == choice->rank);
}

static int fill_line(const struct points *points, const struct line_choice *choice, size_t most,
                     struct view_line *line) {
    size_t n = 0, at = 0, before = SIZE_MAX; /* n: different x, up to one more than `most` */
    double last = (double)NAN;
    for (size_t i = 0; i < points->n && n <= most; i++) {
        if (!belongs(choice, &points->items[i]) || points->items[i].x == last) continue;
        last = points->items[i].x;
        n++;
    }
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
        view_bucket_add(&line->buckets[at], point->x, point->value, point->rank, point->id);
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

/* The VIEW_LINES_MAX whose means lie farthest from the median of all means; a rank without a number stands out
 * most. */
static int keep_farthest(struct rank_mean *means, size_t n) {
    CLEANUP_FREE double *sorted = calloc(n + 1, sizeof *sorted);
    size_t n_sorted = 0;
    if (sorted == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (means[i].n > 0) sorted[n_sorted++] = means[i].sum / (double)means[i].n;
    qsort(sorted, n_sorted, sizeof *sorted, compare_doubles);
    double median = n_sorted > 0 ? sorted[(n_sorted - 1) / 2] : 0;
    for (size_t i = 0; i < n; i++)
        means[i].away = means[i].n > 0 ? fabs(means[i].sum / (double)means[i].n - median) : (double)INFINITY;
    qsort(means, n, sizeof *means, by_distance);
    qsort(means, VIEW_LINES_MAX, sizeof *means, by_rank);
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
        mean->away = 1; /* the mean has points */
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
    if (kept > VIEW_LINES_MAX && keep_farthest(means, kept) < 0) {
        free(means);
        return -ENOMEM;
    }
    *chosen = means;
    *n = kept < VIEW_LINES_MAX ? kept : VIEW_LINES_MAX;
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

static double x_within(const struct points *points, const struct point *point) {
    return point->x >= points->from && point->x <= points->to ? point->x : (double)NAN;
}

/* x of the first point at or behind a place in the run; NAN where that lies out of the range, or is none. */
static double find_x(const struct points *points, int attempt, uint64_t number) {
    const struct point *best = NULL;
    for (size_t i = 0; i < points->n_all; i++) {
        const struct point *point = &points->items[i];
        if (point->lost || point->attempt < attempt || (point->attempt == attempt && point->number < number))
            continue;
        if (best == NULL || point->attempt < best->attempt ||
            (point->attempt == best->attempt && point->number < best->number))
            best = point;
    }
    return best != NULL ? x_within(points, best) : (double)NAN;
}

/* The same of a time; what nothing followed, as where a rank hangs, is told at the last point. */
static double find_x_at(const struct points *points, nanoseconds time) {
    const struct point *behind = NULL, *last = NULL;
    for (size_t i = 0; i < points->n_all; i++) {
        const struct point *point = &points->items[i];
        if (point->time >= time && (behind == NULL || point->time < behind->time)) behind = point;
        if (last == NULL || point->time > last->time) last = point;
    }
    if (behind == NULL) behind = last;
    return behind != NULL ? x_within(points, behind) : (double)NAN;
}

/* The first point in the range that is not finite, and how many are so; NULL: none. */
static const struct point *find_nonfinite(const struct points *points, uint64_t *n) {
    const struct point *first = NULL;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (isfinite(point->value) || point->lost) continue;
        if (first == NULL || point->id < first->id) first = point;
        ++*n;
    }
    return first;
}

static int mark_nonfinite(struct view_series *series, const struct point *first, uint64_t n) {
    if (first == NULL) return 0;
    return add_mark(series, first->x, VIEW_MARK_NONFINITE,
                    format("not finite first at rank %d, report %llu; %llu in all", first->rank,
                           (unsigned long long)first->number, (unsigned long long)n));
}

enum { MARKS_MAX = 200 };

static int by_mark(const void *a, const void *b) {
    const struct view_mark *x = a, *y = b;
    return (x->x > y->x) - (x->x < y->x);
}

/* Of what the facts tell of, the newest of each kind where there are too many. */
static int add_marks(struct view_series *series, const struct points *points, const struct view_facts *facts) {
    size_t n = facts->n_attempts, from = n > MARKS_MAX ? n - MARKS_MAX : 1;
    int result = 0;
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
    n = facts->n_faults;
    for (size_t i = n > MARKS_MAX ? n - MARKS_MAX : 0; i < n && result == 0; i++) {
        const struct fact_fault *fault = &facts->faults[i];
        double x = find_x_at(points, fault->time);
        if (!isnan(x)) result = add_mark(series, x, fault->kind, strdup(fault->text));
    }
    if (series->n_marks > 0) qsort(series->marks, series->n_marks, sizeof *series->marks, by_mark);
    return result;
}

/* -- by the index: its buckets, and the reports that it does not have yet */

struct index_answer {
    const char *run_path;
    const struct view_query *query;
    const struct view_facts *facts;
    struct index_piece piece, lost; /* of what counts, and of the rest where that is asked for */
    struct points rest;
    double from, to;
    int64_t first, last; /* ids of what is selected */
};

static bool is_selected(const struct index_answer *answer, const struct view_bucket *bucket) {
    return bucket->x_last >= answer->from && bucket->x <= answer->to;
}

static void widen(struct index_answer *answer, double x, double x_last) {
    if (isnan(answer->query->from) && !(x >= answer->from)) answer->from = x;
    if (isnan(answer->query->to) && !(x_last <= answer->to)) answer->to = x_last;
}

/* The ends that the query leaves open are those of all. */
static void find_ends(struct index_answer *answer) {
    const struct index_piece *pieces[] = {&answer->piece, &answer->lost};
    answer->from = answer->query->from;
    answer->to = answer->query->to;
    for (size_t p = 0; p < ARRAY_SIZE(pieces); p++)
        for (size_t i = 0; i < pieces[p]->n; i++)
            widen(answer, pieces[p]->buckets[i].x, pieces[p]->buckets[i].x_last);
    if (answer->rest.n > 0) widen(answer, answer->rest.from, answer->rest.to);
    answer->first = INT64_MAX;
    for (size_t p = 0; p < ARRAY_SIZE(pieces); p++)
        for (size_t i = 0; i < pieces[p]->n; i++) {
            const struct view_bucket *bucket = &pieces[p]->buckets[i];
            if (!is_selected(answer, bucket)) continue;
            if (bucket->id_first < answer->first) answer->first = bucket->id_first;
            if (bucket->id_last > answer->last) answer->last = bucket->id_last;
        }
}

static int gather_between(const struct index_answer *answer, const struct view_query *query, int64_t after,
                          int64_t last, struct points *points, ty_error *err) {
    if (last > after)
        return points_gather_between(answer->run_path, query, answer->piece.x, answer->facts, after, last,
                                     points, err);
    *points = (struct points){.exact = true, .from = (double)NAN, .to = (double)NAN};
    return 0;
}

/* An empty bucket behind the others; NULL when memory is short. */
static struct view_bucket *add_bucket(struct view_line *line, size_t *room) {
    if (line->n == *room) {
        size_t wanted = *room * 2 + 1024;
        struct view_bucket *grown = reallocarray(line->buckets, wanted, sizeof *grown);
        if (grown == NULL) return NULL;
        line->buckets = grown;
        *room = wanted;
    }
    line->buckets[line->n] = (struct view_bucket){0};
    return &line->buckets[line->n++];
}

static int add_points(struct view_line *line, const struct points *points, bool lost, double from, double to,
                      size_t *room) {
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->lost != lost || point->x < from || point->x > to) continue;
        struct view_bucket *bucket = add_bucket(line, room);
        if (bucket == NULL) return -ENOMEM;
        view_bucket_add(bucket, point->x, point->value, point->rank, point->id);
    }
    return 0;
}

/* A bucket that reaches beyond the range is read again, report by report, but for one of very many. */
static int add_edge(const struct index_answer *answer, const struct view_bucket *edge, bool lost,
                    struct view_line *line, size_t *room, ty_error *err) {
    struct points points;
    if (edge->id_last - edge->id_first >= VIEW_WHOLE) {
        struct view_bucket *bucket = add_bucket(line, room);
        if (bucket == NULL) return -ENOMEM;
        *bucket = *edge;
        return 0;
    }
    struct view_query query = *answer->query;
    query.from = edge->x > answer->from ? edge->x : answer->from;
    query.to = edge->x_last < answer->to ? edge->x_last : answer->to;
    int result = gather_between(answer, &query, edge->id_first - 1, edge->id_last, &points, err);
    if (result == 0) result = add_points(line, &points, lost, query.from, query.to, room);
    points_done(&points);
    return result;
}

static int by_bucket(const void *a, const void *b) {
    const struct view_bucket *x = a, *y = b;
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return (x->id_first > y->id_first) - (x->id_first < y->id_first);
}

/* Buckets of one x, then those of one place in the drawing, become one. */
static void fold(struct view_line *line, double from, double to, size_t most) {
    size_t n = 0;
    if (line->n == 0) return;
    bool sorted = true;
    for (size_t i = 1; i < line->n && sorted; i++)
        sorted = by_bucket(&line->buckets[i - 1], &line->buckets[i]) <= 0;
    if (!sorted) qsort(line->buckets, line->n, sizeof *line->buckets, by_bucket);
    for (size_t i = 1; i < line->n; i++) {
        if (line->buckets[i].x <= line->buckets[n].x_last)
            view_bucket_merge(&line->buckets[n], &line->buckets[i]);
        else
            line->buckets[++n] = line->buckets[i];
    }
    line->n = n + 1;
    if (line->n <= most) return;
    size_t at = 0, before = points_bucket(line->buckets[0].x, from, to, most);
    for (size_t i = 1; i < line->n; i++) {
        size_t place = points_bucket(line->buckets[i].x, from, to, most);
        if (place == before)
            view_bucket_merge(&line->buckets[at], &line->buckets[i]);
        else
            line->buckets[++at] = line->buckets[i];
        before = place;
    }
    line->n = at + 1;
}

static int merge_line(const struct index_answer *answer, const struct index_piece *piece, bool lost,
                      struct view_series *series, ty_error *err) {
    size_t most = answer->query->buckets > 0 ? (size_t)answer->query->buckets : VIEW_BUCKETS, room = 0;
    if (ARRAY_GROW(series->lines, series->n_lines) < 0) return -ENOMEM;
    struct view_line *line = &series->lines[series->n_lines++];
    *line = (struct view_line){.rank = -1, .lost = lost};
    int result = 0;
    for (size_t i = 0; i < piece->n && result == 0; i++) {
        const struct view_bucket *bucket = &piece->buckets[i];
        if (!is_selected(answer, bucket)) continue;
        if (bucket->x < answer->from || bucket->x_last > answer->to) {
            result = add_edge(answer, bucket, lost, line, &room, err);
        } else {
            struct view_bucket *copy = add_bucket(line, &room);
            if (copy == NULL) return -ENOMEM;
            *copy = *bucket;
        }
    }
    if (result == 0) result = add_points(line, &answer->rest, lost, answer->from, answer->to, &room);
    if (result == 0) fold(line, answer->from, answer->to, most);
    return result;
}

/* Where all that is asked for are few reports, they are read; `*points` are then these. 1: answered, in *series
 * or with *points; 0: the index has not enough. */
static int answer_by_index(struct index_answer *answer, struct view_series *series, struct points *points,
                           ty_error *err) {
    const struct view_query *query = answer->query;
    int result = query->index != NULL ? index_take(query->index, query, false, &answer->piece) : 0;
    if (result > 0 && query->history == VIEW_ALL) result = index_take(query->index, query, true, &answer->lost);
    if (result <= 0) return result;
    int64_t there = (int64_t)answer->facts->reports, after = answer->piece.last;
    if (there - after > VIEW_WHOLE) return 0;
    result = gather_between(answer, query, after, there, &answer->rest, err);
    if (result < 0) return result;
    find_ends(answer);
    int64_t first = answer->first, last = answer->rest.n > 0 ? there : answer->last;
    if (first <= last && last - first < VIEW_WHOLE - 2 * INDEX_MARGIN) {
        struct view_query ends = *query;
        ends.from = answer->from;
        ends.to = answer->to;
        last = last + INDEX_MARGIN < there ? last + INDEX_MARGIN : there;
        result =
            gather_between(answer, &ends, first > INDEX_MARGIN ? first - INDEX_MARGIN : 0, last, points, err);
        points->exact = true;
        points->scanned = 1;
        return result < 0 ? result : 1;
    }
    series->exact = true;
    series->scanned = 1;
    series->x = answer->piece.x;
    result = merge_line(answer, &answer->piece, false, series, err);
    if (result == 0 && query->history == VIEW_ALL) {
        result = merge_line(answer, &answer->lost, true, series, err);
        if (series->lines[series->n_lines - 1].n == 0) free(series->lines[--series->n_lines].buckets);
    }
    return result < 0 ? result : 1;
}

/* -- together */

/* The reports of a bucket of the index, by its x, up to `most` of them. */
static int read_bucket(const struct index_answer *answer, const struct view_bucket *bucket, int64_t *most,
                       struct points *points, ty_error *err) {
    struct view_query query = *answer->query;
    query.from = bucket->x > answer->from ? bucket->x : answer->from;
    query.to = bucket->x_last < answer->to ? bucket->x_last : answer->to;
    int64_t after = bucket->id_first > INDEX_MARGIN ? bucket->id_first - INDEX_MARGIN : 0,
            last = bucket->id_last + INDEX_MARGIN;
    if (last - after > *most) last = after + *most;
    *most -= last - after;
    return gather_between(answer, &query, after, last, points, err);
}

/* As the index counts them; which was the first is in the reports of the first bucket that has one. */
static int mark_nonfinite_of(const struct index_answer *answer, struct view_series *series, ty_error *err) {
    uint64_t n = 0, n_found = 0;
    int64_t most = VIEW_WHOLE;
    int result = 0;
    bool found = false;
    for (size_t i = 0; i < series->n_lines; i++)
        for (size_t at = 0; at < series->lines[i].n && !series->lines[i].lost; at++)
            n += series->lines[i].buckets[at].nonfinite;
    for (size_t i = 0; i < answer->piece.n && n > 0 && !found && result == 0; i++) {
        const struct view_bucket *bucket = &answer->piece.buckets[i];
        struct points points;
        if (bucket->nonfinite == 0 || !is_selected(answer, bucket)) continue;
        result = read_bucket(answer, bucket, &most, &points, err);
        const struct point *first = find_nonfinite(&points, &n_found);
        found = first != NULL;
        if (result == 0) result = mark_nonfinite(series, first, n);
        points_done(&points);
    }
    if (found || result < 0) return result;
    return mark_nonfinite(series, find_nonfinite(&answer->rest, &n_found), n);
}

/* Marks are found among the points, or a sample of them. */
static int draw_series(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                       struct view_series *series, ty_error *err) {
    struct index_answer answer = {.run_path = run_path, .query = query, .facts = facts};
    struct points points = {0};
    int result = answer_by_index(&answer, series, &points, err);
    bool merged = result > 0 && series->n_lines > 0;
    bool marked = facts->n_attempts > 1 || facts->n_checkpoints > 0 || facts->n_faults > 0;
    if (result == 0 || (merged && marked)) result = points_gather(run_path, query, facts, &points, err);
    if (result >= 0 && !merged) {
        series->exact = points.exact;
        series->scanned = points.scanned;
        series->x = points.x;
        result = add_lines(series, &points, query);
    }
    if (result >= 0 && merged) {
        result = mark_nonfinite_of(&answer, series, err);
    } else if (result >= 0) {
        uint64_t n = 0;
        const struct point *first = find_nonfinite(&points, &n);
        result = mark_nonfinite(series, first, n);
    }
    if (result >= 0) result = add_marks(series, &points, facts);
    series->behind =
        facts->reports > VIEW_WHOLE && (int64_t)facts->reports - answer.piece.last > VIEW_WHOLE / 2;
    points_done(&points);
    points_done(&answer.rest);
    free(answer.piece.buckets);
    free(answer.lost.buckets);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

int view_series_read(const char *run_path, const struct view_query *query, struct view_series *series,
                     ty_error *err) {
    struct facts_kept *kept = index_facts(query->index);
    struct view_facts own;
    const struct view_facts *facts;
    *series = (struct view_series){0};
    int result = points_check_query(query, err);
    if (result >= 0) result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    result = draw_series(run_path, query, facts, series, err);
    facts_give_back(kept, &own);
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
