/* A plot: its lines (plot_lines.h) and marks, and their JSON. They are of the index where that has what is
 * asked for, or of a drawing that was made in the background, else of the reports. Heat maps and histograms are
 * in heat.c. */
#include "view/series.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "view/drawings.h"
#include "view/encode.h"
#include "view/index.h"
#include "view/plot_lines.h"
#include "view/points.h"

struct view_query view_query_new(const char *metric) {
    return (struct view_query){.metric = metric, .from = (double)NAN, .to = (double)NAN};
}

/* -- lines */

/* A line of each chosen rank, or one of all; what later attempts took back has lines of its own (VIEW_ALL). */
static int add_lines(struct view_series *series, const struct points *points, const struct view_query *query) {
    bool of_ranks = query->what == VIEW_RANKS;
    struct plot_means means = {0};
    struct plot_lines lines;
    int n = of_ranks ? plot_means_add(&means, points) : 0;
    if (of_ranks && n == 0) n = plot_means_choose(&means, VIEW_LINES_MAX);
    int result =
        n < 0 ? n : plot_lines_begin(&lines, query, of_ranks ? &means : NULL, points->from, points->to);
    free(means.items);
    if (result < 0) return result;
    result = plot_lines_add(&lines, points);
    series->n_ranks = (size_t)n;
    series->lines = plot_lines_end(&lines, &series->n_lines);
    return series->lines == NULL ? -ENOMEM : result;
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

/* A mark beyond the range is none: the points behind it are there to find the marks within (points.h,
 * n_all). */
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

/* One mark for all of them, at the first: where it began is what somebody looks for. */
static int mark_nonfinite(struct view_series *series, const struct point *first, uint64_t n) {
    if (first == NULL) return 0;
    return add_mark(series, first->x, VIEW_MARK_NONFINITE,
                    str_format("not finite first at rank %d, report %llu; %llu in all", first->rank,
                               (unsigned long long)first->number, (unsigned long long)n));
}

enum { MARKS_MAX = 200 };

static int by_mark(const void *a, const void *b) {
    const struct view_mark *x = a, *y = b;
    return (x->x > y->x) - (x->x < y->x);
}

/* Of what the facts tell of, the newest of each kind where there are too many: each is looked for among all
 * points. The first attempt has no mark, as it begins where the run does. */
static int add_marks(struct view_series *series, const struct points *points, const struct view_facts *facts) {
    size_t n = facts->n_attempts, from = n > MARKS_MAX ? n - MARKS_MAX : 1;
    int result = 0;
    for (size_t i = from; i < n && result == 0; i++) {
        double x = find_x(points, facts->attempts[i].attempt, 0);
        if (!isnan(x))
            result =
                add_mark(series, x, VIEW_MARK_ATTEMPT, str_format("attempt %d", facts->attempts[i].attempt));
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

/* Reports behind `after` up to `last`, of which there may be none: that is asked of no journal. */
static int gather_between(const struct index_answer *answer, const struct view_query *query, int64_t after,
                          int64_t last, struct points *points, ty_error *err) {
    if (last > after)
        return points_gather_between(answer->run_path, query, answer->piece.x, answer->facts, after, last,
                                     points, err);
    *points = (struct points){.exact = true, .from = (double)NAN, .to = (double)NAN};
    return 0;
}

static int add_points(struct view_line *line, const struct points *points, bool lost, double from, double to) {
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->lost != lost || point->x < from || point->x > to) continue;
        struct view_bucket *bucket = plot_line_add(line);
        if (bucket == NULL) return -ENOMEM;
        view_bucket_add(bucket, point->x, point->value, point->rank, point->id);
    }
    return 0;
}

/* A bucket that reaches beyond the range is read again, report by report, but for one of very many. */
static int add_edge(const struct index_answer *answer, const struct view_bucket *edge, bool lost,
                    struct view_line *line, ty_error *err) {
    struct points points;
    if (edge->id_last - edge->id_first >= VIEW_WHOLE) {
        struct view_bucket *bucket = plot_line_add(line);
        if (bucket == NULL) return -ENOMEM;
        *bucket = *edge;
        return 0;
    }
    struct view_query query = *answer->query;
    query.from = edge->x > answer->from ? edge->x : answer->from;
    query.to = edge->x_last < answer->to ? edge->x_last : answer->to;
    int result = gather_between(answer, &query, edge->id_first - 1, edge->id_last, &points, err);
    if (result == 0) result = add_points(line, &points, lost, query.from, query.to);
    points_done(&points);
    return result;
}

/* The buckets in the range are the piece's own, unless others stand in front of them; one at each end that
 * reaches out of it is read again, and what no bucket has yet is added as points. Then all are folded into as
 * many buckets as are asked for. */
static int merge_line(const struct index_answer *answer, struct index_piece *piece, bool lost,
                      struct view_series *series, ty_error *err) {
    size_t most = answer->query->buckets > 0 ? (size_t)answer->query->buckets : VIEW_BUCKETS, first = 0;
    if (ARRAY_GROW(series->lines, series->n_lines) < 0) return -ENOMEM;
    struct view_line *line = &series->lines[series->n_lines++];
    *line = (struct view_line){.rank = -1, .lost = lost};
    while (first < piece->n && piece->buckets[first].x < answer->from)
        first++;
    size_t end = first;
    while (end < piece->n && piece->buckets[end].x_last <= answer->to)
        end++;
    bool has_front = first > 0 && is_selected(answer, &piece->buckets[first - 1]);
    bool has_back = end < piece->n && is_selected(answer, &piece->buckets[end]);
    const struct view_bucket back = has_back ? piece->buckets[end] : (struct view_bucket){0};
    int result = has_front ? add_edge(answer, &piece->buckets[first - 1], lost, line, err) : 0;
    if (first == 0) {
        line->buckets = TAKE(piece->buckets);
    } else if (result == 0) {
        if (ARRAY_RESIZE(line->buckets, line->n + end - first) < 0) return -ENOMEM;
        memcpy(line->buckets + line->n, piece->buckets + first, (end - first) * sizeof *line->buckets);
    }
    line->n += end - first;
    if (result == 0 && has_back) result = add_edge(answer, &back, lost, line, err);
    if (result == 0) result = add_points(line, &answer->rest, lost, answer->from, answer->to);
    if (result < 0) return result;
    plot_line_fold(line, answer->from, answer->to, most);
    (void)ARRAY_RESIZE(line->buckets, line->n); /* of an index it may have had some megabytes */
    return 0;
}

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

/* The first that is not finite is among the reports of the first bucket that has one, or behind all buckets. 1:
 * it was found. */
static int find_first(const struct index_answer *answer, struct point *first, ty_error *err) {
    int64_t most = VIEW_WHOLE;
    uint64_t n = 0;
    const struct point *found = NULL;
    for (size_t i = 0; i < answer->piece.n && found == NULL; i++) {
        const struct view_bucket *bucket = &answer->piece.buckets[i];
        struct points points;
        if (bucket->nonfinite == 0 || !is_selected(answer, bucket)) continue;
        int result = read_bucket(answer, bucket, &most, &points, err);
        if (result < 0) return result;
        found = find_nonfinite(&points, &n);
        if (found != NULL) *first = *found;
        points_done(&points);
    }
    if (found != NULL) return 1;
    found = find_nonfinite(&answer->rest, &n);
    if (found != NULL) *first = *found;
    return found != NULL;
}

/* Where all that is asked for are few reports, they are read; `*points` are then these. 1: answered, in *series
 * or with *points; 0: the index has not enough. */
static int answer_by_index(struct index_answer *answer, struct view_series *series, struct points *points,
                           struct drawing_told *told, ty_error *err) {
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
    int found = find_first(answer, &told->nonfinite, err);
    result = found < 0 ? found : merge_line(answer, &answer->piece, false, series, err);
    for (size_t i = 0; found > 0 && result == 0 && i < series->lines->n; i++)
        told->n_nonfinite += series->lines->buckets[i].nonfinite;
    if (result == 0 && query->history == VIEW_ALL) {
        result = merge_line(answer, &answer->lost, true, series, err);
        if (series->lines[series->n_lines - 1].n == 0) free(series->lines[--series->n_lines].buckets);
    }
    return result < 0 ? result : 1;
}

/* -- together */

/* `told`: by an index or a drawing, which the lines are of; NULL: they are of the points. */
static int mark(const struct view_facts *facts, const struct points *points, const struct drawing_told *told,
                struct view_series *series) {
    uint64_t n = told != NULL ? told->n_nonfinite : 0;
    const struct point *first = n > 0 ? &told->nonfinite : NULL;
    if (told == NULL) first = find_nonfinite(points, &n);
    int result = mark_nonfinite(series, first, n);
    return result < 0 ? result : add_marks(series, points, facts);
}

static int draw_points(struct view_series *series, const struct points *points,
                       const struct view_query *query) {
    series->exact = points->exact;
    series->scanned = points->scanned;
    series->x = points->x;
    return add_lines(series, points, query);
}

/* Marks are found among the points, or a sample of them. */
static int draw_series(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                       struct view_series *series, ty_error *err) {
    struct index_answer answer = {.run_path = run_path, .query = query, .facts = facts};
    struct drawings *drawings = index_drawings(query->index);
    const struct drawing_request request = drawings_request(run_path, query, facts);
    struct drawing_answer drawing = {0};
    struct points points = {0};
    bool drawn = false; /* of an index, or in the background */
    enum index_standing standing =
        query->index != NULL ? index_follow(query->index, query, facts) : INDEX_IS_STALE;
    int result = standing != INDEX_IS_STALE ? answer_by_index(&answer, series, &points, &drawing.told, err) : 0;
    drawn = result > 0 && series->n_lines > 0;
    if (result == 0 && request.x != NULL) {
        result = drawings_take(drawings, &request, series, &drawing, err);
        drawn = result > 0;
    }
    bool marked = facts->n_attempts > 1 || facts->n_checkpoints > 0 || facts->n_faults > 0;
    if (result == 0 || (drawn && marked)) result = points_gather(run_path, query, facts, &points, err);
    if (result >= 0 && !drawn) {
        result = draw_points(series, &points, query);
        series->behind = !series->exact && drawings != NULL && drawings_want(drawings, &request);
    }
    if (result >= 0) result = mark(facts, &points, drawn ? &drawing.told : NULL, series);
    if (facts->reports > VIEW_WHOLE &&
        (standing != INDEX_IS_RIGHT || (int64_t)facts->reports - answer.piece.last > VIEW_WHOLE / 2))
        series->behind = true;
    points_done(&points);
    points_done(&answer.rest);
    free(answer.piece.buckets);
    free(answer.lost.buckets);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* How many of the metrics are gathered from one reading of the reports: points of all lie in memory. 1: these
 * are a made metric, or more reports than are read whole, of which an index may have what is asked for. */
static size_t n_together(const struct view_facts *facts, const char *const *metrics, size_t n) {
    enum { POINTS_TOGETHER = 1 << 17 };
    size_t most = POINTS_TOGETHER / (facts->reports + 1) + 1, plain = 0;
    if (facts->reports > VIEW_WHOLE) most = 1;
    while (plain < n && plain < most && points_made(metrics[plain]) == MADE_NONE)
        plain++;
    return plain > 0 ? plain : 1;
}

/* Of few reports: no index is asked, and none of the metrics is a made one (n_together). */
static int draw_together(const char *run_path, const struct view_query *query, const char *const *metrics,
                         size_t n, const struct view_facts *facts, struct view_series *series, ty_error *err) {
    CLEANUP_FREE struct points *points = calloc(n + 1, sizeof *points);
    if (points == NULL) return ty_fail_memory(err);
    int result = points_gather_each(run_path, query, metrics, n, facts, points, err);
    for (size_t i = 0; i < n; i++) {
        if (result >= 0) result = draw_points(&series[i], &points[i], query);
        if (result >= 0) result = mark(facts, &points[i], NULL, &series[i]);
        points_done(&points[i]);
    }
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* The facts are taken once for all metrics, so that all are of the same state of the run. */
int view_series_read_each(const char *run_path, const struct view_query *query, const char *const *metrics,
                          size_t n, struct view_series *series, ty_error *err) {
    struct facts_kept *kept = index_facts(query->index);
    struct view_facts own;
    const struct view_facts *facts;
    struct view_query each = *query;
    int result = 0;
    for (size_t i = 0; i < n; i++) {
        series[i] = (struct view_series){0};
        each.metric = metrics[i];
        if (result >= 0) result = points_check_query(&each, err);
    }
    if (result >= 0) result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    for (size_t i = 0, more; i < n && result >= 0; i += more) {
        more = n_together(facts, metrics + i, n - i);
        each.metric = metrics[i];
        result = more > 1 ? draw_together(run_path, &each, metrics + i, more, facts, series + i, err)
                          : draw_series(run_path, &each, facts, &series[i], err);
    }
    for (size_t i = 0; i < n; i++)
        series[i].reports = facts->reports;
    facts_give_back(kept, &own);
    for (size_t i = 0; i < n && result < 0; i++)
        view_series_done(&series[i]);
    return result;
}

int view_series_read(const char *run_path, const struct view_query *query, struct view_series *series,
                     ty_error *err) {
    return view_series_read_each(run_path, query, &query->metric, 1, series, err);
}

void view_series_done(struct view_series *series) {
    plot_lines_free(series->lines, series->n_lines);
    for (size_t i = 0; i < series->n_marks; i++)
        free(series->marks[i].text);
    free(series->marks);
    *series = (struct view_series){0};
}

/* -- JSON */

/* X(name, how) */
#define SERIES_COLUMNS(X)                                           \
    X(x, encode_number(out, b->x))                                  \
    X(x_last, encode_number(out, b->x_last))                        \
    X(n, encode_int(out, (int64_t)b->n))                            \
    X(nonfinite, encode_int(out, (int64_t)b->nonfinite))            \
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

/* Columns, not rows: names stand there once, and a plot's library takes arrays. */
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

static void encode_mark(const struct view_mark *mark, const char *run, const char *metric, struct buffer *out) {
    static const char *const kinds[] = {
#define X(name, text) text,
        VIEW_MARKS(X)
#undef X
    };
    buffer_text(out, "{\"run\": ");
    buffer_json_text(out, run);
    buffer_text(out, ", \"metric\": ");
    buffer_json_text(out, metric);
    buffer_text(out, ", \"x\": ");
    encode_number(out, mark->x);
    buffer_printf(out, ", \"kind\": \"%s\", \"text\": ", kinds[mark->kind]);
    buffer_json_text(out, mark->text);
    buffer_char(out, '}');
}

/* Series of a plot: of n runs, or of all metrics of these, each `apart` from the next. */
static void encode_state(const struct view_series *const *series, size_t n, size_t apart, struct buffer *out) {
    bool exact = true;
    double scanned = 1;
    for (size_t i = 0; i < n; i++) {
        exact = exact && series[i * apart]->exact;
        if (series[i * apart]->scanned < scanned) scanned = series[i * apart]->scanned;
    }
    encode_scanned(out, exact, scanned);
    buffer_text(out, ", \"x\": ");
    buffer_json_text(out, n > 0 ? series[0]->x : NULL);
    buffer_printf(out, ", \"ranks\": %zu", n > 0 ? series[0]->n_ranks : 0);
}

void view_series_encode_each(const struct view_series *const *series, const char *const *runs, size_t n_runs,
                             const char *const *metrics, size_t n_metrics, struct buffer *out) {
    size_t n = n_runs * n_metrics;
    uint64_t reports = 0;
    bool any = false;
    for (size_t run = 0; run < n_runs; run++)
        reports += series[run * n_metrics]->reports;
    buffer_char(out, '{');
    encode_state(series, n, 1, out);
    buffer_printf(out, ", \"reports\": %" PRIu64 ", \"metrics\": [", reports);
    for (size_t i = 0; i < n_metrics; i++) {
        buffer_text(out, i > 0 ? ", {\"metric\": " : "{\"metric\": ");
        buffer_json_text(out, metrics[i]);
        buffer_text(out, ", ");
        encode_state(series + i, n_runs, n_metrics, out);
        buffer_char(out, '}');
    }
    buffer_text(out, "], \"series\": [");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i]->n_lines; k++) {
            encode_next(out, &any);
            encode_line(&series[i]->lines[k], runs[i / n_metrics], metrics[i % n_metrics], out);
        }
    buffer_text(out, "], \"marks\": [");
    any = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i]->n_marks; k++) {
            encode_next(out, &any);
            encode_mark(&series[i]->marks[k], runs[i / n_metrics], metrics[i % n_metrics], out);
        }
    buffer_text(out, "]}");
}

void view_series_encode(const struct view_series *const *series, const char *const *runs, size_t n,
                        const char *metric, struct buffer *out) {
    view_series_encode_each(series, runs, n, &metric, 1, out);
}
