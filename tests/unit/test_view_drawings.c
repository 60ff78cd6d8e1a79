/* Lines that an index has no buckets for are made in the background, of all reports. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "view/index.h"
#include "view/points.h"
#include "view/series.h"
#include "view_world.h"

/* The buckets of a line as the specification has them, of all its points, which are by x. */
static struct view_line expect_line(const struct points *points, int rank, bool lost, size_t most) {
    struct view_line line = {
        .rank = rank, .lost = lost, .buckets = calloc(points->n + most, sizeof *line.buckets)};
    size_t n = 0, xs = 0;
    double before = NAN;
    for (size_t pass = 0; pass < 2; pass++) {
        before = NAN;
        n = 0;
        for (size_t i = 0; i < points->n; i++) {
            const struct point *point = &points->items[i];
            if (point->lost != lost || (rank >= 0 && point->rank != rank)) continue;
            n += point->x != before;
            before = point->x;
            size_t place = xs <= most ? n - 1 : points_bucket(point->x, points->from, points->to, most);
            if (pass > 0) view_bucket_add(&line.buckets[place], point->x, point->value, point->rank, point->id);
        }
        xs = n;
    }
    for (size_t i = 0; i < (xs <= most ? xs : most); i++)
        if (!view_bucket_is_empty(&line.buckets[i])) line.buckets[line.n++] = line.buckets[i];
    return line;
}

static void assert_line(const struct view_line *expected, const struct view_line *found) {
    assert_int_equal(found->rank, expected->rank);
    assert_int_equal(found->lost, expected->lost);
    assert_int_equal(found->n, expected->n);
    for (size_t i = 0; i < found->n; i++) {
        const struct view_bucket *a = &expected->buckets[i], *b = &found->buckets[i];
        assert_near(a->x, b->x);
        assert_near(a->x_last, b->x_last);
        assert_int_equal(b->n, a->n);
        assert_int_equal(b->nonfinite, a->nonfinite);
        if (a->n == 0) continue;
        assert_near(a->min, b->min);
        assert_near(a->max, b->max);
        assert_near(a->sum / (double)a->n, b->sum / (double)b->n);
        assert_near(a->first, b->first);
        assert_near(a->last, b->last);
        assert_int_equal(b->rank_min, a->rank_min);
        assert_int_equal(b->rank_max, a->rank_max);
    }
}

/* Whether the lines are those of all reports, each of which is read. */
static void assert_drawn(const char *path, const struct view_query *query, const struct view_series *series) {
    CLEANUP(view_facts_done) struct view_facts facts;
    CLEANUP(points_done) struct points points;
    size_t n = 0, most = query->buckets > 0 ? (size_t)query->buckets : VIEW_BUCKETS;
    assert_true(series->exact);
    assert_near(1, series->scanned);
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_int_equal(
        points_gather_between(path, query, series->x, &facts, 0, (int64_t)facts.reports, &points, NULL), 0);
    for (int rank = query->what == VIEW_RANKS ? 0 : -1; rank < (query->what == VIEW_RANKS ? points.n_ranks : 0);
         rank++)
        for (int lost = 0; lost < (query->history == VIEW_ALL ? 2 : 1); lost++) {
            struct view_line expected = expect_line(&points, rank, lost > 0, most);
            if (expected.n > 0) {
                assert_true(n < series->n_lines);
                assert_line(&expected, &series->lines[n++]);
            }
            free(expected.buckets);
        }
    assert_int_equal(series->n_lines, n);
}

/* Each is a sample at once, and then what the specification says, whatever there is to be drawn. */
static void test_drawings(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct view_bucket expected[2][ARRAY_SIZE(unlike_xs)] = {0};
    CLEANUP(idset_done) struct idset one = {0}, some = {0};
    static const struct {
        const char *metric, *x;
        int buckets;
        enum view_what what;
        enum view_history history;
        int ranks; /* 0: all, 1: one, 2: some */
        double from, to;
    } drawn[] = {
        {"loss", NULL, 0, VIEW_RANKS, VIEW_ALL, 0, NAN, NAN},
        {"loss", "number", 7, VIEW_RANKS, VIEW_EFFECTIVE, 0, NAN, NAN},
        {"loss", "time", 100, VIEW_RANKS, VIEW_ALL, 2, NAN, NAN},
        {"loss", "epoch", 4000, VIEW_BAND, VIEW_ALL, 1, NAN, NAN},
        {"loss", NULL, 30, VIEW_RANKS, VIEW_ALL, 0, 1000, NAN},
        {"loss", "number", 30, VIEW_BAND, VIEW_EFFECTIVE, 2, 300, 206000},
        {"loss", "metric:step", 13, VIEW_BAND, VIEW_ALL, 0, NAN, NAN},
        {"step", "metric:loss", 0, VIEW_BAND, VIEW_EFFECTIVE, 0, NAN, NAN},
        {"step", "metric:loss", 50, VIEW_RANKS, VIEW_ALL, 2, 20, 60},
        {"@interval", NULL, 20, VIEW_RANKS, VIEW_ALL, 0, NAN, NAN},
        {"@interval", "relative", 500, VIEW_BAND, VIEW_EFFECTIVE, 0, NAN, NAN},
        {"@rate", "number", 10, VIEW_BAND, VIEW_ALL, 1, NAN, NAN},
        {"@lag", NULL, 20, VIEW_RANKS, VIEW_ALL, 0, NAN, NAN},
        {"@lag", "metric:epoch", 99, VIEW_BAND, VIEW_EFFECTIVE, 1, NAN, 12},
    };
    assert_int_equal(idset_add(&one, 3), 0);
    assert_int_equal(idset_add_range(&some, 1, 4), 0);
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(drawn); i++) {
        struct view_query query = {.metric = drawn[i].metric,
                                   .x = drawn[i].x,
                                   .from = drawn[i].from,
                                   .to = drawn[i].to,
                                   .buckets = drawn[i].buckets,
                                   .what = drawn[i].what,
                                   .history = drawn[i].history,
                                   .ranks = drawn[i].ranks == 0   ? NULL
                                            : drawn[i].ranks == 1 ? &one
                                                                  : &some,
                                   .index = index};
        CLEANUP(view_series_done) struct view_series first = read_series(path, &query);
        assert_false(first.exact);
        assert_true(first.behind);
        assert_true(first.scanned > 0 && first.scanned < 1);
        grow(index);
        assert_near(1, view_index_progress(index));
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_false(series.behind);
        assert_drawn(path, &query, &series);
    }
    view_index_close(index);
    view_world_remove(path);
}

static void report_more(const char *path, int first, int last, double step, bool ends) {
    struct journal *journal = NULL;
    char metrics[96];
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    for (int n = first; n <= last; n++)
        for (int rank = 0; rank < UNLIKE_RANKS; rank++) {
            (void)snprintf(metrics, sizeof metrics, "{\"loss\":%.17g,\"step\":%.17g,\"epoch\":%d}",
                           40.0 + rank + n % 9, step + n, n);
            view_world_report(journal, (nanoseconds)(20000 + n) * NS_PER_S - rank * NS_PER_MS, 2, rank,
                              (uint64_t)(300000 + n), metrics);
        }
    if (ends)
        view_world_event(journal, 90000 * NS_PER_S, EVENT_RUN_END, 2, -1,
                         "{\"outcome\": \"succeeded\", \"status\": 0}");
    view_world_close(journal);
}

static void assert_as_many(const char *path, const struct view_query *query) {
    CLEANUP(view_facts_done) struct view_facts facts;
    CLEANUP(points_done) struct points points;
    CLEANUP(view_series_done) struct view_series series = read_series(path, query);
    struct view_bucket all = {0}, found = {0};
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_int_equal(
        points_gather_between(path, query, series.x, &facts, 0, (int64_t)facts.reports, &points, NULL), 0);
    assert_true(series.exact);
    for (size_t i = 0; i < points.n; i++)
        view_bucket_add(&all, points.items[i].x, points.items[i].value, points.items[i].rank,
                        points.items[i].id);
    for (size_t line = 0; line < series.n_lines; line++) {
        assert_true(series.lines[line].n <= (query->buckets > 0 ? (size_t)query->buckets : VIEW_BUCKETS));
        for (size_t i = 0; i < series.lines[line].n; i++)
            view_bucket_merge(&found, &series.lines[line].buckets[i]);
    }
    assert_int_equal(found.n, all.n);
    assert_int_equal(found.nonfinite, all.nonfinite);
    assert_near(all.x, found.x);
    assert_near(all.x_last, found.x_last);
    assert_near(all.min, found.min);
    assert_near(all.max, found.max);
    assert_near(all.last, found.last);
}

/* What comes is in the next answer; what came unasked is the background's; when the run is over all is as if it
 * had been drawn then. */
static void test_drawings_of_a_run_that_goes_on(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct view_bucket expected[2][ARRAY_SIZE(unlike_xs)] = {0};
    static const char *const metrics[] = {"loss", "step", "@interval"}, *const xs[] = {NULL, "metric:loss",
                                                                                       "time"};
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    struct view_query queries[ARRAY_SIZE(metrics)];
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        queries[i] = view_query_new(metrics[i]);
        queries[i].x = xs[i];
        queries[i].buckets = 50;
        queries[i].what = i == 1 ? VIEW_BAND : VIEW_RANKS;
        queries[i].history = VIEW_ALL;
        queries[i].index = index;
        CLEANUP(view_series_done) struct view_series sample = read_series(path, &queries[i]);
        assert_false(sample.exact);
    }
    grow(index);
    for (int more = 0; more < 6; more++) {
        report_more(path, 300 * more, 300 * more + 299, more % 2 > 0 ? -5000 * more : 500000, false);
        for (size_t i = 0; i < ARRAY_SIZE(queries); i++)
            assert_as_many(path, &queries[i]);
    }
    report_more(path, 3000, 3000 + VIEW_WHOLE / UNLIKE_RANKS + 1, 0, false);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        CLEANUP(view_series_done) struct view_series sample = read_series(path, &queries[i]);
        assert_false(sample.exact);
        assert_true(sample.behind);
    }
    grow(index);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++)
        assert_as_many(path, &queries[i]);
    report_more(path, 20000, 20010, 0, true);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        CLEANUP(view_series_done) struct view_series series = read_series(path, &queries[i]);
        assert_true(series.exact);
        assert_true(series.behind);
    }
    grow(index);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        CLEANUP(view_series_done) struct view_series series = read_series(path, &queries[i]);
        assert_false(series.behind);
        assert_drawn(path, &queries[i], &series);
    }
    view_index_close(index);
    view_world_remove(path);
}

struct growing {
    struct view_index *index;
    _Atomic bool over;
};

static void *grow_on(void *context) {
    struct growing *growing = context;
    while (!growing->over)
        if (view_index_grow(growing->index, NULL) < 0) return growing;
    return NULL;
}

/* Whoever asks meanwhile gets what there is: all that was reported, or a sample that says so. */
static void test_drawings_that_are_asked_for_as_they_are_made(void **state) {
    (void)state;
    char path[64];
    struct growing growing = {0};
    struct view_bucket expected[2][UNLIKE_XS] = {0};
    static const char *const metrics[] = {"loss", "step", "@interval", "@rate"};
    struct view_query queries[ARRAY_SIZE(metrics)];
    pthread_t thread;
    void *failed = NULL;
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &growing.index, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, grow_on, &growing), 0);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        queries[i] = view_query_new(metrics[i]);
        queries[i].what = i % 2 > 0 ? VIEW_BAND : VIEW_RANKS;
        queries[i].x = i % 2 > 0 ? "metric:loss" : "number";
        queries[i].buckets = 50;
        queries[i].index = growing.index;
    }
    for (int more = 0; more < 4; more++) {
        size_t n_exact = 0;
        report_more(path, 100 * more, 100 * more + 99, 500000, more == 3);
        while (n_exact < ARRAY_SIZE(queries)) {
            size_t i = n_exact;
            CLEANUP(view_series_done) struct view_series series = read_series(path, &queries[i]);
            struct view_heat heat;
            assert_int_equal(view_heat_read(path, &queries[i], 0, &heat, NULL), 0);
            view_heat_done(&heat);
            if (!series.exact) continue;
            assert_as_many(path, &queries[i]);
            n_exact++;
        }
    }
    growing.over = true;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    view_index_close(growing.index);
    view_world_remove(path);
}

/* Whether the cells are the means of all these points, in the columns that the heat map has. */
static void assert_means(const struct points *points, const struct view_heat *heat) {
    size_t n = (size_t)points->n_ranks * heat->columns;
    double *sums = calloc(n, sizeof *sums), *counts = calloc(n, sizeof *counts);
    double *means = calloc(heat->rows * heat->columns, sizeof *means), least = NAN, greatest = NAN;
    assert_true(sums != NULL && counts != NULL && means != NULL);
    for (size_t i = 0; i < heat->rows * heat->columns; i++)
        means[i] = NAN;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        size_t column = points_bucket(point->x, heat->from, heat->to, heat->columns);
        if (isnan(point->value)) continue;
        sums[(size_t)point->rank * heat->columns + column] += point->value;
        counts[(size_t)point->rank * heat->columns + column]++;
    }
    for (size_t i = 0; i < n; i++) {
        if (!(counts[i] > 0)) continue;
        double mean = sums[i] / counts[i];
        double *most = &means[i / heat->columns / heat->ranks_per_row * heat->columns + i % heat->columns];
        *most = fmax(*most, mean);
        least = fmin(least, mean);
        greatest = fmax(greatest, mean);
    }
    free(sums);
    free(counts);
    assert_near(least, heat->min);
    assert_near(greatest, heat->max);
    for (size_t i = 0; i < heat->rows * heat->columns; i++) {
        double expected = isnan(means[i]) ? 0 : 1 + (means[i] - least) / (greatest - least) * 254;
        if (fabs(expected - heat->cells[i]) > 1.001)
            fail_msg("cell %zu: %d is not %g", i, heat->cells[i], expected);
    }
    free(means);
}

/* All points of a query, each of which is read. */
static void gather_all(const char *path, const struct view_query *query, const char *x, struct points *points) {
    CLEANUP(view_facts_done) struct view_facts facts;
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_int_equal(points_gather_between(path, query, x, &facts, 0, (int64_t)facts.reports, points, NULL), 0);
}

static void assert_cells(const char *path, const struct view_query *query, const struct view_heat *heat) {
    CLEANUP(points_done) struct points points;
    gather_all(path, query, heat->x, &points);
    assert_int_equal(heat->columns, query->buckets);
    assert_int_equal(heat->n_ranks, points.n_ranks);
    assert_near(points.from, heat->from);
    assert_near(points.to, heat->to);
    assert_means(&points, heat);
}

/* A heat map likewise. */
static void test_cells(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct view_bucket expected[2][UNLIKE_XS] = {0};
    static const struct {
        const char *metric, *x;
        int columns, rows;
        enum view_history history;
        double from;
    } drawn[] = {
        {"loss", "number", 20, 0, VIEW_EFFECTIVE, NAN},   {"loss", NULL, 600, 4, VIEW_ALL, NAN},
        {"loss", "number", 30, 0, VIEW_ALL, 1000},        {"@interval", "number", 40, 2, VIEW_EFFECTIVE, NAN},
        {"@lag", "relative", 50, 0, VIEW_EFFECTIVE, NAN}, {"@rate", "epoch", 10, 0, VIEW_ALL, NAN}};
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(drawn); i++) {
        struct view_query query = view_query_new(drawn[i].metric);
        struct view_heat sample, heat;
        query.x = drawn[i].x;
        query.from = drawn[i].from;
        query.buckets = drawn[i].columns;
        query.history = drawn[i].history;
        query.index = index;
        assert_int_equal(view_heat_read(path, &query, drawn[i].rows, &sample, NULL), 0);
        assert_false(sample.exact);
        assert_true(sample.behind);
        view_heat_done(&sample);
        grow(index);
        assert_int_equal(view_heat_read(path, &query, drawn[i].rows, &heat, NULL), 0);
        assert_true(heat.exact);
        assert_false(heat.behind);
        assert_cells(path, &query, &heat);
        view_heat_done(&heat);
    }
    view_index_close(index);
    view_world_remove(path);
}

/* -- of so many ranks that not all of their columns are kept */

enum { MANY_RANKS = 1500, MANY_NUMBERS = 80 };

/* Numbers from `first` to `last` of all ranks, of which rank 0 is `behind` numbers late. */
static void report_many(const char *path, int first, int last, int behind, bool ends) {
    struct journal *journal = NULL;
    char metrics[64];
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    for (int n = first; n <= last + behind; n++)
        for (int rank = 0; rank < MANY_RANKS; rank++) {
            int number = rank == 0 ? n - behind : n;
            if (number < first || number > last) continue;
            (void)snprintf(metrics, sizeof metrics, "{\"v\":%d}",
                           rank == 1234 && number == 40 ? 5000 : number * 10 + rank % 7);
            view_world_report(journal, n * NS_PER_S + rank * NS_PER_MS, 1, rank, (uint64_t)number, metrics);
        }
    if (ends)
        view_world_event(journal, 90000 * NS_PER_S, EVENT_RUN_END, 1, -1,
                         "{\"outcome\": \"succeeded\", \"status\": 0}");
    view_world_close(journal);
}

static void write_many(char path[64], int behind, bool ends) {
    view_world_make(path);
    struct journal *journal = view_world_open(path, MANY_RANKS);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1500}");
    view_world_close(journal);
    report_many(path, 1, MANY_NUMBERS, behind, ends);
}

static struct view_heat read_heat(const char *path, const struct view_query *query) {
    struct view_heat heat;
    assert_int_equal(view_heat_read(path, query, 100, &heat, NULL), 0);
    return heat;
}

/* Exact, though a rank is some way behind the others; a sample where it is so far behind that its columns are
 * rows already. */
static void test_cells_of_many_ranks(void **state) {
    (void)state;
    static const struct {
        const char *metric, *x;
        int behind;
        bool drawn;
    } cases[] = {{"v", "number", 0, true},
                 {"@interval", "relative", 10, true},
                 {"@lag", "number", 10, true},
                 {"v", "metric:v", 0, false},
                 {"v", "number", 40, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[64];
        struct view_index *index = NULL;
        write_many(path, cases[i].behind, true);
        assert_int_equal(view_index_open(path, false, &index, NULL), 0);
        struct view_query query = view_query_new(cases[i].metric);
        query.x = cases[i].x;
        query.buckets = 400;
        query.index = index;
        CLEANUP(view_heat_done) struct view_heat sample = read_heat(path, &query);
        assert_false(sample.exact);
        assert_true(sample.behind);
        grow(index);
        CLEANUP(view_heat_done) struct view_heat heat = read_heat(path, &query);
        assert_int_equal(heat.exact, cases[i].drawn);
        assert_false(heat.behind);
        assert_int_equal(heat.rows, 100);
        if (heat.exact) assert_cells(path, &query, &heat);
        view_index_close(index);
        view_world_remove(path);
    }
}

static void assert_grown(const char *path, const struct view_query *query) {
    CLEANUP(view_heat_done) struct view_heat heat = read_heat(path, query);
    CLEANUP(points_done) struct points points;
    gather_all(path, query, heat.x, &points);
    assert_true(heat.exact);
    assert_true(heat.columns <= (size_t)query->buckets && heat.columns > (size_t)query->buckets * 3 / 4);
    assert_near(points.from, heat.from);
    assert_true(heat.to >= points.to);
    assert_means(&points, &heat);
}

/* What comes is in the next answer as long as there is room for it; then all is made anew, and once more when
 * the run is over. */
static void test_cells_of_many_ranks_that_go_on(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    write_many(path, 0, false);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    struct view_query query = view_query_new("v");
    query.x = "number";
    query.buckets = 400;
    query.index = index;
    CLEANUP(view_heat_done) struct view_heat sample = read_heat(path, &query);
    assert_true(sample.behind);
    grow(index);
    assert_grown(path, &query);
    report_many(path, MANY_NUMBERS + 1, MANY_NUMBERS + 5, 0, false);
    assert_grown(path, &query);
    report_many(path, MANY_NUMBERS + 6, MANY_NUMBERS + 25, 0, false);
    CLEANUP(view_heat_done) struct view_heat again = read_heat(path, &query);
    assert_false(again.exact);
    assert_true(again.behind);
    grow(index);
    assert_grown(path, &query);
    report_many(path, MANY_NUMBERS + 26, MANY_NUMBERS + 30, 0, true);
    assert_grown(path, &query);
    grow(index);
    CLEANUP(view_heat_done) struct view_heat heat = read_heat(path, &query);
    assert_false(heat.behind);
    assert_cells(path, &query, &heat);
    view_index_close(index);
    view_world_remove(path);
}

/* -- counts of values */

/* Whether as many values lie below each edge as the bins in front of it have, as far as values are not at the
 * edge itself. */
static void assert_bins(const struct points *points, const struct idset *ranks,
                        const struct view_histogram *histogram, const uint64_t *counts) {
    uint64_t found = 0;
    for (size_t edge = 0; edge <= histogram->bins; edge++) {
        uint64_t below = 0, at = 0;
        for (size_t i = 0; i < points->n; i++) {
            const struct point *point = &points->items[i];
            if (!isfinite(point->value) || (ranks != NULL && !idset_has(ranks, point->rank))) continue;
            below += point->value < histogram->edges[edge];
            at += point->value <= histogram->edges[edge];
        }
        if (edge == histogram->bins) at = below = at; /* the greatest value is in the last bin */
        if (found < below || found > at)
            fail_msg("%llu values below edge %zu, %g, and not %llu", (unsigned long long)found, edge,
                     histogram->edges[edge], (unsigned long long)below);
        if (edge < histogram->bins) found += counts[edge];
    }
}

static void assert_counted(const char *path, const struct view_query *query) {
    struct view_histogram histogram;
    struct view_query all = *query;
    CLEANUP(points_done) struct points points;
    const char *x = query->x != NULL ? query->x : "step";
    all.ranks = NULL;
    gather_all(path, &all, x, &points);
    assert_int_equal(view_histogram_read(path, query, 30, &histogram, NULL), 0);
    assert_true(histogram.exact);
    assert_near(1, histogram.scanned);
    assert_bins(&points, NULL, &histogram, histogram.all);
    if (query->ranks != NULL) assert_bins(&points, query->ranks, &histogram, histogram.chosen);
    double width = (histogram.max - histogram.min) / 30;
    for (size_t i = 0; i <= 30 && !query->near; i++)
        if (fabs(histogram.edges[i] - (histogram.min + width * (double)i)) > width / 10)
            fail_msg("edge %zu of %g to %g is %g", i, histogram.min, histogram.max, histogram.edges[i]);
    view_histogram_done(&histogram);
}

/* A sample at once, then all, and what comes is in the next answer. */
static void test_counts_of_values(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct view_bucket expected[2][UNLIKE_XS] = {0};
    CLEANUP(idset_done) struct idset one = {0};
    static const struct {
        const char *metric, *x;
        enum view_history history;
        double from;
        bool near;
    } cases[] = {{"loss", NULL, VIEW_EFFECTIVE, NAN, false},
                 {"loss", NULL, VIEW_EFFECTIVE, NAN, true},
                 {"step", "number", VIEW_ALL, 300, false},
                 {"@interval", "number", VIEW_EFFECTIVE, NAN, true},
                 {"@lag", "relative", VIEW_ALL, NAN, false}};
    struct view_query queries[ARRAY_SIZE(cases)];
    assert_int_equal(idset_add(&one, 3), 0);
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct view_histogram sample;
        queries[i] = view_query_new(cases[i].metric);
        queries[i].x = cases[i].x;
        queries[i].history = cases[i].history;
        queries[i].from = cases[i].from;
        queries[i].near = cases[i].near;
        queries[i].ranks = i % 2 > 0 ? &one : NULL;
        queries[i].index = index;
        assert_int_equal(view_histogram_read(path, &queries[i], 30, &sample, NULL), 0);
        assert_false(sample.exact);
        assert_true(sample.behind);
        view_histogram_done(&sample);
    }
    grow(index);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_counted(path, &queries[i]);
    report_more(path, 0, 299, 500000, false); /* values that none was as great as */
    for (size_t i = 0; i + 1 < ARRAY_SIZE(cases); i++)
        assert_counted(path, &queries[i]);
    report_more(path, 300, 310, 0, true);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct view_histogram grown;
        assert_int_equal(view_histogram_read(path, &queries[i], 30, &grown, NULL), 0);
        assert_int_equal(grown.exact, i + 1 < ARRAY_SIZE(cases)); /* a number's first may still come */
        assert_int_equal(grown.behind, !grown.exact);
        view_histogram_done(&grown);
    }
    grow(index);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_counted(path, &queries[i]);
    view_index_close(index);
    view_world_remove(path);
}

/* Lags among numbers that no run makes: they are drawn where they lie close together, else not at all. */
static void test_lags_of_any_numbers(void **state) {
    (void)state;
    static const struct {
        uint64_t from[2]; /* of the first half of the reports, of the second */
        bool drawn;
    } cases[] = {{{1, 1 + VIEW_WHOLE / 2}, true},
                 {{UINT64_MAX - VIEW_WHOLE, UINT64_MAX - VIEW_WHOLE / 2}, true},
                 {{UINT64_MAX - VIEW_WHOLE / 2, 5}, false},
                 {{5, UINT64_MAX - VIEW_WHOLE / 2}, false},
                 {{UINT64_C(1) << 63, 1}, false},
                 {{UINT64_C(1) << 32, UINT64_C(1) << 31}, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[64];
        struct view_index *index = NULL;
        view_world_make(path);
        struct journal *journal = view_world_open(path, 2);
        view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
        for (int half = 0; half < 2; half++)
            for (int n = 0; n < VIEW_WHOLE / 2; n++)
                for (int rank = 0; rank < 2; rank++)
                    view_world_report(journal, (n + rank * half) * NS_PER_MS, 1, rank,
                                      cases[i].from[half] + (uint64_t)n, "{}");
        view_world_close(journal);
        assert_int_equal(view_index_open(path, false, &index, NULL), 0);
        struct view_query query = view_query_new("@lag");
        query.x = "time";
        query.index = index;
        CLEANUP(view_series_done) struct view_series sample = read_series(path, &query);
        assert_true(sample.behind);
        grow(index);
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_int_equal(series.exact, cases[i].drawn);
        double most = 0;
        for (size_t k = 0; k < series.lines[0].n && series.exact; k++)
            most = fmax(most, series.lines[0].buckets[k].max);
        assert_near(cases[i].drawn ? 1e-3 : 0, most);
        view_index_close(index);
        view_world_remove(path);
    }
}

/* Of many ranks those are drawn that stand out of all, not those of a sample; what is drawn has an end. */
static void test_which_ranks_are_drawn(void **state) {
    (void)state;
    enum { RANKS = 40, NUMBERS = 2000 };
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    struct journal *journal = view_world_open(path, RANKS);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 40}");
    for (int n = 1; n <= NUMBERS; n++)
        for (int rank = 0; rank < RANKS; rank++) {
            char metrics
                [64]; /* each rank has one value that makes its mean, and which of its reports has it differs */
            (void)snprintf(metrics, sizeof metrics, "{\"v\":%d,\"step\":%d}",
                           n == 3 + 7 * rank ? (rank % 2 > 0 ? 1 : -1) * 1000 * rank : 0, n);
            view_world_report(journal, n * NS_PER_S, 1, rank, (uint64_t)n, metrics);
        }
    view_world_close(journal);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    struct view_query query = view_query_new("v");
    query.what = VIEW_RANKS;
    query.index = index;
    CLEANUP(view_series_done) struct view_series sample = read_series(path, &query);
    assert_false(sample.exact);
    grow(index);
    CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
    assert_true(series.exact);
    assert_int_equal(series.n_ranks, RANKS);
    assert_int_equal(series.n_lines, VIEW_LINES_MAX);
    for (int i = 0; i < VIEW_LINES_MAX; i++)
        assert_int_equal(series.lines[i].rank, RANKS - VIEW_LINES_MAX + i);
    int n_exact = 0, n_refused = 0;
    for (int i = 0; i < 40; i++) {
        query.buckets = 2000 + i;
        CLEANUP(view_series_done) struct view_series first = read_series(path, &query);
        assert_false(first.exact);
        n_refused += !first.behind;
        grow(index);
        CLEANUP(view_series_done) struct view_series second = read_series(path, &query);
        assert_int_equal(second.exact, first.behind);
        n_exact += second.exact;
    }
    assert_true(n_exact > 0 && n_refused > 0);
    view_index_close(index);
    view_world_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawings),
        cmocka_unit_test(test_drawings_of_a_run_that_goes_on),
        cmocka_unit_test(test_drawings_that_are_asked_for_as_they_are_made),
        cmocka_unit_test(test_which_ranks_are_drawn),
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_cells_of_many_ranks),
        cmocka_unit_test(test_cells_of_many_ranks_that_go_on),
        cmocka_unit_test(test_counts_of_values),
        cmocka_unit_test(test_lags_of_any_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
