/* The points of one metric. What x is shows only when all reports were seen: every candidate is kept beside
 * a point until then, and what most reports have is x. Made metrics (lags, intervals, rates) come of the
 * same points. */
#include "view/points.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "view/index.h"
#include "view/scan.h"
#include "view/values.h"

enum { CANDIDATES_MAX = 4 };

enum axis { AXIS_STEP, AXIS_EPOCH, AXIS_NUMBER, AXIS_TIME, AXIS_RELATIVE, AXES, AXIS_METRIC = AXES };
static const char *const axis_names[AXES] = {"step", "epoch", "number", "time", "relative"};

static const struct {
    const char *names[CANDIDATES_MAX];
    size_t n;
} candidates[AXES] = {
    [AXIS_STEP] = {{"step", "global_step", "iteration", "training_iteration"}, 4},
    [AXIS_EPOCH] = {{"epoch"}, 1},
};

static const char *const made_names[MADE] = {"@interval", "@lag", "@rate"};

/* What is gathered of one metric. */
struct gathered_metric {
    const char *metric;
    size_t metric_size;
    struct points *points;
    double *xs; /* n_names for each point; owned */
    size_t room;
    /* of the report at hand */
    double value;
    bool has_value;
};

struct point_gathering {
    const struct view_query *query; /* of all, but for the metric */
    const struct view_facts *facts;
    struct gathered_metric *items; /* n */
    size_t n;
    enum made made; /* of the one metric there is then */
    enum axis axis;
    const char *names[CANDIDATES_MAX];
    size_t n_names, name_sizes[CANDIDATES_MAX];
    bool decided;                 /* which of the names it is: the first, if any */
    struct points_before *before; /* NULL: all reports are at hand */
    struct view_scan rest;        /* reports that are read too; of none: zeros */
    uint64_t rows, have[CANDIDATES_MAX];
    struct values_shape shape;
    double row_xs[CANDIDATES_MAX]; /* of the report at hand */
};

static int find_axis(const char *text) {
    if (text == NULL) return AXIS_STEP;
    int axis = str_find(text, axis_names, AXES);
    const char *name;
    if (axis >= 0) return axis;
    return str_prefix(text, "metric:", &name) && *name != '\0' ? AXIS_METRIC : -1;
}

enum made points_made(const char *metric) {
    return (enum made)str_find(metric, made_names, MADE);
}

int points_check_query(const struct view_query *query, ty_error *err) {
    if (query->metric == NULL || query->metric[0] == '\0')
        return ty_fail(err, TY_EUSAGE, "metric: which one? `trainyard metrics NAME` lists them");
    if (find_axis(query->x) < 0)
        return ty_fail(err, TY_EUSAGE, "x: '%.80s' is not step, epoch, number, time, relative or metric:NAME",
                       query->x);
    if (query->buckets < 0 || query->buckets > VIEW_BUCKETS_MAX)
        return ty_fail(err, TY_EUSAGE, "buckets: %d is not between 1 and %d", query->buckets, VIEW_BUCKETS_MAX);
    if (query->from > query->to)
        return ty_fail(err, TY_EUSAGE, "from: %g is above to, %g", query->from, query->to);
    return 0;
}

/* -- one report after the other */

/* A value of the report at hand: one of the metrics, or a candidate for x; it may be both. Any other is passed
 * over in the reports that follow. */
static bool on_value(void *context, const struct value *value) {
    struct point_gathering *gathering = context;
    bool number = value->type == VALUE_NUMBER, wanted = false;
    for (size_t i = 0; i < gathering->n; i++) {
        struct gathered_metric *gathered = &gathering->items[i];
        if (!value_is_named(value, gathered->metric, gathered->metric_size)) continue;
        wanted = true;
        gathered->has_value = value_is_number(value);
        gathered->value = number ? value->number : (double)NAN;
    }
    for (size_t i = 0; i < gathering->n_names; i++)
        if (value_is_named(value, gathering->names[i], gathering->name_sizes[i])) {
            wanted = true;
            gathering->row_xs[i] = number ? value->number : (double)NAN;
        }
    if (!wanted) values_pass(&gathering->shape, value);
    return true;
}

/* The candidates for x are kept beside the point; which of them it is shows at the end (settle). */
static int add_point(const struct point_gathering *gathering, struct gathered_metric *gathered,
                     const struct journal_report *report) {
    struct points *points = gathered->points;
    if (points->n == gathered->room) {
        size_t room = gathered->room == 0 ? 1024 : gathered->room * 2;
        size_t row = (gathering->n_names + 1) * sizeof *gathered->xs;
        if (ARRAY_RESIZE(points->items, room) < 0 || array_resize(&gathered->xs, room, row) < 0) return -ENOMEM;
        gathered->room = room;
    }
    memcpy(gathered->xs + points->n * gathering->n_names, gathering->row_xs,
           gathering->n_names * sizeof *gathered->xs);
    points->items[points->n++] =
        (struct point){.value = gathered->value,
                       .id = report->id,
                       .time = report->time,
                       .number = report->number,
                       .attempt = report->attempt,
                       .rank = report->rank,
                       .lost = !view_facts_count(gathering->facts, report->attempt, report->number)};
    return 0;
}

/* Whether nothing of the report is asked for: it is of another rank, and by which name it has x is known. */
static bool is_idle(const struct point_gathering *gathering, const struct journal_report *report) {
    const struct idset *ranks = gathering->query->ranks;
    bool known = gathering->decided || gathering->n_names == 0;
    return known && gathering->made != MADE_LAG && ranks != NULL && !idset_has(ranks, report->rank);
}

/* A made metric has a point for each report, whose value is made of all of them later. */
static int on_report(void *context, const struct journal_report *report) {
    struct point_gathering *gathering = context;
    if (is_idle(gathering, report)) return 0;
    for (size_t i = 0; i < gathering->n; i++) {
        gathering->items[i].has_value = gathering->made != MADE_NONE;
        gathering->items[i].value = (double)NAN;
    }
    for (size_t i = 0; i < gathering->n_names; i++)
        gathering->row_xs[i] = (double)NAN;
    if (gathering->made == MADE_NONE || gathering->n_names > 0)
        (void)values_each_like(&gathering->shape, report->metrics, report->metrics_size, on_value, gathering);
    gathering->rows++;
    for (size_t i = 0; i < gathering->n_names; i++)
        if (!isnan(gathering->row_xs[i])) gathering->have[i]++;
    if (report->rank < 0 || report->rank >= IDSET_MAX) return 0;
    int result = 0;
    for (size_t i = 0; i < gathering->n && result == 0; i++)
        if (gathering->items[i].has_value) result = add_point(gathering, &gathering->items[i], report);
    return result;
}

/* -- made metrics */

static int by_rank(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_number(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

static int reserve_last(struct points_before *before, int rank) {
    size_t n = (size_t)rank + 1 > 2 * before->n_last ? (size_t)rank + 1 : 2 * before->n_last;
    if ((size_t)rank < before->n_last) return 0;
    if (rank >= POINTS_RANKS) return -E2BIG;
    if (ARRAY_RESIZE(before->last, n) < 0) return -ENOMEM;
    for (size_t i = before->n_last; i < n; i++)
        before->last[i] = (struct point){.rank = -1};
    before->n_last = n;
    return 0;
}

/* Reports of a rank in a row: where one is missing, in a sample, nothing is known. Of a piece (`before`) the
 * points come as the reports do, each rank's in order, and what was last before the piece is kept; else they
 * are sorted. */
static int make_intervals(struct points *points, bool rate, struct points_before *before) {
    if (points->n > 0 && before == NULL) qsort(points->items, points->n, sizeof *points->items, by_rank);
    size_t kept = 0;
    struct point last = {.rank = -1};
    for (size_t i = 0; i < points->n; i++) {
        struct point point = points->items[i];
        int result = before != NULL ? reserve_last(before, point.rank) : 0;
        if (result < 0) return result;
        if (before != NULL) last = before->last[point.rank];
        bool follows =
            last.attempt == point.attempt && last.rank == point.rank && last.number + 1 == point.number;
        if (follows) {
            double seconds = duration_seconds(point.time - last.time);
            struct point *made = &points->items[kept++];
            *made = point;
            made->value = !rate ? seconds : seconds > 0 ? 1 / seconds : (double)NAN;
        }
        last = point;
        if (before != NULL) before->last[point.rank] = point;
    }
    points->n = kept;
    return 0;
}

static struct points_firsts *find_firsts(const struct points_before *before, int attempt) {
    for (size_t i = before->n_firsts; i > 0; i--)
        if (before->firsts[i - 1].attempt == attempt) return &before->firsts[i - 1];
    return NULL;
}

/* Room for the number, in front of the others or behind them, and there for some more. */
static int reserve_first(struct points_before *before, struct points_firsts *firsts, uint64_t number) {
    enum { AHEAD = 1024 };
    if (firsts->n > 0 && number - firsts->low < firsts->n) return 0; /* one below `low` wraps around */
    uint64_t low = number, last = number, most = POINTS_NUMBERS - (before->n_times - firsts->n);
    if (firsts->n > 0 && firsts->low < number) low = firsts->low;
    if (firsts->n > 0 && firsts->low > number) last = firsts->low + firsts->n - 1;
    if (last - low >= most) return -E2BIG;
    uint64_t n = last - low + 1, ahead = last == number ? AHEAD + firsts->n / 4 : 0;
    if (ahead > most - n) ahead = most - n;
    if (ahead > UINT64_MAX - last) ahead = UINT64_MAX - last;
    nanoseconds *times = calloc(n + ahead, sizeof *times);
    if (times == NULL) return -ENOMEM;
    if (firsts->n > 0) memcpy(times + (firsts->low - low), firsts->times, firsts->n * sizeof *times);
    before->n_times += n + ahead - firsts->n;
    free(firsts->times);
    *firsts = (struct points_firsts){firsts->attempt, low, times, n + ahead};
    return 0;
}

/* When each number of an attempt was first made, by any rank: what lags are measured from. Reports of one
 * number may lie in different pieces, so that nothing is known of lags before all pieces were noted. */
static int note_firsts(struct points_before *before, const struct points *points) {
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        struct points_firsts *firsts = find_firsts(before, point->attempt);
        if (firsts == NULL) {
            if (ARRAY_GROW(before->firsts, before->n_firsts) < 0) return -ENOMEM;
            firsts = &before->firsts[before->n_firsts++];
            *firsts = (struct points_firsts){.attempt = point->attempt};
        }
        int result = reserve_first(before, firsts, point->number);
        if (result < 0) return result;
        nanoseconds *first = &firsts->times[point->number - firsts->low];
        if (*first == 0 || point->time < *first) *first = point->time;
    }
    return 0;
}

/* Without pieces the points are sorted by attempt, number and time, and `first` is the first one of its
 * number. */
static int make_lags(struct points *points, struct points_before *before) {
    int result = before != NULL && before->notes ? note_firsts(before, points) : 0;
    if (points->n > 0 && before == NULL) qsort(points->items, points->n, sizeof *points->items, by_number);
    const struct point *first = points->items;
    for (size_t i = 0; i < points->n && result == 0; i++) {
        struct point *point = &points->items[i];
        const struct points_firsts *firsts = before != NULL ? find_firsts(before, point->attempt) : NULL;
        if (first->attempt != point->attempt || first->number != point->number) first = point;
        bool noted = firsts != NULL && point->number - firsts->low < firsts->n;
        nanoseconds time = noted ? firsts->times[point->number - firsts->low] : first->time;
        bool told = before == NULL || before->tells;
        point->value = told ? duration_seconds(point->time - time) : (double)NAN;
    }
    return result;
}

void points_before_done(struct points_before *before) {
    for (size_t i = 0; i < before->n_firsts; i++)
        free(before->firsts[i].times);
    free(before->firsts);
    free(before->last);
    *before = (struct points_before){0};
}

/* -- x */

static double plain_x(const struct point_gathering *gathering, const struct point *point) {
    switch ((int)gathering->axis) {
    case AXIS_TIME:
        return duration_seconds(point->time);
    case AXIS_RELATIVE:
        return duration_seconds(point->time - gathering->facts->first);
    default:
        return (double)point->number;
    }
}

/* -- the selection */

/* Made metrics need the points of all ranks until here: a lag is one behind any of them. */
static void keep(struct points *points, const struct view_query *query) {
    size_t kept = 0;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (!(point->lost && query->history == VIEW_EFFECTIVE) && !isnan(point->x) &&
            (query->ranks == NULL || idset_has(query->ranks, point->rank)))
            points->items[kept++] = *point;
    }
    points->n = kept;
}

/* Those in the range come to the front, in their order. */
static void divide(struct points *points) {
    points->n_all = points->n;
    points->n = 0;
    for (size_t i = 0; i < points->n_all; i++) {
        struct point point = points->items[i];
        if (!(point.x >= points->from && point.x <= points->to)) continue;
        points->items[i] = points->items[points->n];
        points->items[points->n++] = point;
    }
}

static void set_range(struct points *points, const struct view_query *query) {
    points->from = query->from;
    points->to = query->to;
    for (size_t i = 0; i < points->n; i++) {
        double x = points->items[i].x;
        if (isnan(query->from) && !(x >= points->from)) points->from = x;
        if (isnan(query->to) && !(x <= points->to)) points->to = x;
        if (points->items[i].rank >= points->n_ranks) points->n_ranks = points->items[i].rank + 1;
    }
}

static int by_x(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* -- together */

/* From now on x is this name alone; none of them: the number. */
static void decide(struct point_gathering *gathering, const char *name) {
    size_t n = gathering->n_names;
    if (gathering->axis == AXIS_METRIC || n == 0 || name == NULL) return;
    gathering->decided = true;
    gathering->n_names = 0;
    for (size_t i = 0; i < n && gathering->n_names == 0; i++) {
        if (!str_equal(gathering->names[i], name)) continue;
        gathering->names[0] = gathering->names[i];
        gathering->name_sizes[0] = gathering->name_sizes[i];
        gathering->n_names = 1;
    }
    if (gathering->n_names == 0) gathering->axis = AXIS_NUMBER;
}

/* `x`: by which name the run has the query's, where an index knows it; NULL: all candidates are gathered. */
static void begin(struct point_gathering *gathering, const struct view_query *query, const char *x) {
    int axis = find_axis(query->x);
    gathering->axis = (enum axis)axis;
    gathering->made = gathering->n == 1 ? points_made(gathering->items->metric) : MADE_NONE;
    for (size_t i = 0; i < gathering->n; i++)
        gathering->items[i].metric_size = strlen(gathering->items[i].metric);
    if (axis == AXIS_METRIC) {
        gathering->names[0] = query->x + strlen("metric:");
        gathering->n_names = 1;
        gathering->decided = true;
    } else {
        gathering->n_names = candidates[axis].n;
        memcpy(gathering->names, candidates[axis].names, sizeof gathering->names);
    }
    for (size_t i = 0; i < gathering->n_names; i++)
        gathering->name_sizes[i] = strlen(gathering->names[i]);
    decide(gathering, x);
}

/* What x is shows now that all were read. */
static int settle(const struct point_gathering *gathering, const struct gathered_metric *gathered,
                  ty_error *err) {
    struct points *points = gathered->points;
    int result = 0, chosen = gathering->decided && gathering->n_names > 0 ? 0 : -1;
    /* Not decided: the first that 99 of 100 reports have. */
    for (size_t i = 0; i < gathering->n_names && chosen < 0; i++)
        if (gathering->have[i] * 100 >= gathering->rows * 99 && gathering->rows > 0) chosen = (int)i;
    points->x = gathering->axis == AXIS_METRIC ? gathering->query->x
                : chosen >= 0                  ? gathering->names[chosen]
                : gathering->n_names > 0       ? axis_names[AXIS_NUMBER]
                                               : axis_names[gathering->axis];
    for (size_t i = 0; i < points->n; i++)
        points->items[i].x = chosen >= 0 ? gathered->xs[i * gathering->n_names + (size_t)chosen]
                                         : plain_x(gathering, &points->items[i]);
    if (gathering->made == MADE_LAG) result = make_lags(points, gathering->before);
    if (gathering->made == MADE_INTERVAL || gathering->made == MADE_RATE)
        result = make_intervals(points, gathering->made == MADE_RATE, gathering->before);
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result < 0)
        return ty_fail(err, result, "there are more than %d ranks, or %d reports of each", POINTS_RANKS,
                       POINTS_NUMBERS);
    keep(points, gathering->query);
    return 0;
}

/* Reads once. What was gathered before is forgotten, but for the memory. */
static int scan(const char *run_path, struct point_gathering *gathering, struct view_scan *scan,
                ty_error *err) {
    for (size_t i = 0; i < gathering->n; i++)
        gathering->items[i].points->n = 0;
    gathering->rows = 0;
    memset(gathering->have, 0, sizeof gathering->have);
    int result = view_scan(run_path, scan, on_report, gathering, err);
    if (result == 0 && gathering->rest.last > gathering->rest.after)
        result = view_scan(run_path, &gathering->rest, on_report, gathering, err);
    if (result == -ENOMEM) return ty_fail_memory(err);
    for (size_t i = 0; i < gathering->n && result == 0; i++) {
        result = settle(gathering, &gathering->items[i], err);
        gathering->items[i].points->exact = scan->exact;
        gathering->items[i].points->scanned = scan->scanned;
    }
    return result;
}

/* The reports between the last of a sample before the range and the first behind it. Most runs report x in
 * rising order; elsewhere it is a guess, and the answer says that it is not exact. */
static bool narrow(const struct view_query *query, const struct points *points, struct view_scan *scan) {
    int64_t after = 0, last = 0;
    if (isnan(query->from) && isnan(query->to)) return false;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->x < query->from && point->id > after) after = point->id;
        if (point->x > query->to && (last == 0 || point->id < last)) last = point->id;
    }
    if (last == 0) last = scan->last;
    if (last <= after) return false;
    scan->after = after > SCAN_BLOCK ? after - SCAN_BLOCK : 0;
    scan->last = last;
    return true;
}

/* Those in the range, by x. Most reports come by rising x: what is sorted already is not sorted again. */
static void select_points(const struct point_gathering *gathering, struct points *points, bool sorts) {
    set_range(points, gathering->query);
    divide(points);
    bool sorted = true;
    for (size_t i = 1; i < points->n && sorted && sorts; i++)
        sorted = by_x(&points->items[i - 1], &points->items[i]) <= 0;
    if (!sorted) qsort(points->items, points->n, sizeof *points->items, by_x);
}

/* A sample is of one metric. Where only a part of the range was seen in it, a second sample, or all, is read of
 * where the range lies; the share is then that of the part. */
static int gather(const char *run_path, struct point_gathering *gathering, struct view_scan *reading,
                  ty_error *err) {
    struct points *points = gathering->items[0].points;
    int result = scan(run_path, gathering, reading, err);
    if (result == 0 && !points->exact && narrow(gathering->query, points, reading)) {
        double share = (double)(reading->last - reading->after), there = (double)gathering->facts->reports;
        reading->sample = NULL; /* which is of all */
        decide(gathering, points->x);
        result = scan(run_path, gathering, reading, err);
        points->exact = false;
        points->scanned = share > 0 && there > 0 ? points->scanned * share / there : 1;
    }
    for (size_t i = 0; i < gathering->n; i++) {
        struct gathered_metric *gathered = &gathering->items[i];
        free(gathered->xs);
        if (result < 0)
            points_done(gathered->points);
        else
            select_points(gathering, gathered->points, !reading->piece);
    }
    return result;
}

/* Where the index knows in which reports the range lies, and they are few, these are all that is read. Made
 * metrics also need others, which may lie anywhere. */
static void find_range(struct point_gathering *gathering, struct view_scan *reading) {
    const struct view_query *query = gathering->query;
    int64_t there = (int64_t)gathering->facts->reports;
    struct index_span span;
    if (query->index == NULL || gathering->made != MADE_NONE || there <= VIEW_WHOLE ||
        !index_find(query->index, query, &span) || span.first > span.last)
        return;
    int64_t after = span.first > INDEX_MARGIN ? span.first - INDEX_MARGIN : 0, last = span.last + INDEX_MARGIN;
    int64_t rest = span.have > last ? span.have : last;
    if (last - after + (there > rest ? there - rest : 0) > VIEW_WHOLE) return;
    *reading = (struct view_scan){.after = after, .last = last < there ? last : there};
    gathering->rest = (struct view_scan){.after = rest, .last = there};
}

int points_gather(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                  struct points *points, ty_error *err) {
    struct gathered_metric gathered = {.metric = query->metric, .points = points};
    struct point_gathering gathering = {.query = query, .facts = facts, .items = &gathered, .n = 1};
    *points = (struct points){0};
    int result = points_check_query(query, err);
    if (result < 0) return result;
    begin(&gathering, query, query->index != NULL ? index_x(query->index, query->x) : NULL);
    /* Made metrics compare a report with those of the same rank or number, which lie about as many reports
     * apart as there are ranks. */
    int64_t wanted = gathering.made == MADE_NONE ? 0 : (int64_t)facts->replay.n_workers * 3;
    if (wanted < SCAN_BLOCK) wanted = SCAN_BLOCK;
    struct view_scan reading = {.last = (int64_t)facts->reports,
                                .most = VIEW_WHOLE,
                                .block = wanted < VIEW_WHOLE / 2 ? wanted : VIEW_WHOLE / 2,
                                .sample = query->index != NULL ? index_sample(query->index) : NULL,
                                .began = facts->first};
    find_range(&gathering, &reading);
    return gather(run_path, &gathering, &reading, err);
}

int points_gather_each(const char *run_path, const struct view_query *query, const char *const *metrics,
                       size_t n, const struct view_facts *facts, struct points *points, ty_error *err) {
    struct point_gathering gathering = {.query = query, .facts = facts, .n = n};
    struct view_scan reading = {.last = (int64_t)facts->reports};
    CLEANUP_FREE struct gathered_metric *items = calloc(n + 1, sizeof *items);
    if (items == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        points[i] = (struct points){0};
        items[i] = (struct gathered_metric){.metric = metrics[i], .points = &points[i]};
    }
    gathering.items = items;
    begin(&gathering, query, NULL);
    return gather(run_path, &gathering, &reading, err);
}

int points_gather_between(const char *run_path, const struct view_query *query, const char *x,
                          const struct view_facts *facts, int64_t after, int64_t last, struct points *points,
                          ty_error *err) {
    struct gathered_metric gathered = {.metric = query->metric, .points = points};
    struct point_gathering gathering = {.query = query, .facts = facts, .items = &gathered, .n = 1};
    struct view_scan reading = {.after = after, .last = last};
    *points = (struct points){0};
    begin(&gathering, query, x);
    return gather(run_path, &gathering, &reading, err);
}

int points_gather_next(struct points_pass *pass, struct points *points, ty_error *err) {
    struct gathered_metric gathered = {.metric = pass->query->metric, .points = points};
    struct point_gathering gathering = {
        .query = pass->query, .facts = pass->facts, .items = &gathered, .n = 1, .before = pass->before};
    struct view_scan reading = {.after = pass->after, .last = pass->last, .piece = true, .given = pass->rows};
    *points = (struct points){0};
    begin(&gathering, pass->query, pass->x);
    int result = gather(pass->run_path, &gathering, &reading, err);
    if (result >= 0) pass->after = reading.last;
    return result;
}

/* floor(n (x - from) / (to - from)), at least 0 and n - 1 at most: `to` itself is of the last bucket. */
size_t points_bucket(double x, double from, double to, size_t n) {
    if (!(to > from)) return 0;
    double shrink = isfinite((to - from) * (double)n) ? 1 : 0x1p-20; /* at the ends of a double */
    double at = floor((x * shrink - from * shrink) * (double)n / (to * shrink - from * shrink));
    return at < (double)(n - 1) ? (size_t)(at > 0 ? at : 0) : n - 1;
}

void points_done(struct points *points) {
    free(points->items);
    *points = (struct points){0};
}
