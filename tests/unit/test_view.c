/* What a journal is turned into: buckets keep every extreme at every zoom, what a later attempt took back does
 * not count, and made metrics are right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "journal/usage_db.h"
#include "view/encode.h"
#include "view/export.h"
#include "view/index.h"
#include "view/points.h"
#include "view/ranks.h"
#include "view/runs.h"
#include "view/series.h"
#include "view/timeline.h"
#include "view/values.h"
#include "view_world.h"

static char a_path[64], b_path[64];

static int set_up(void **state) {
    (void)state;
    view_world_make(a_path);
    view_world_a(a_path);
    view_world_make(b_path);
    view_world_b(b_path);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    view_world_remove(a_path);
    view_world_remove(b_path);
    return 0;
}

static struct view_series read_series(const char *path, const struct view_query *query) {
    struct view_series series;
    ty_error err = {0};
    if (view_series_read(path, query, &series, &err) < 0) fail_msg("%s", err.message);
    return series;
}

static void assert_near(double expected, double found) {
    if (!(fabs(expected - found) <= 1e-9)) fail_msg("%.17g is not %.17g", found, expected);
}

static void test_ten_buckets(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    query.buckets = 10;
    CLEANUP(view_series_done) struct view_series series = read_series(a_path, &query);
    assert_true(series.exact);
    assert_string_equal(series.x, "step");
    assert_int_equal(series.n_lines, 1);
    assert_int_equal(series.lines[0].n, 10);
    for (int i = 0; i < 10; i++) {
        assert_near(i * 100 + 1, series.lines[0].buckets[i].x);
        assert_near(i * 100 + 100, series.lines[0].buckets[i].x_last);
    }
    const struct view_bucket *first = &series.lines[0].buckets[0];
    assert_int_equal(first->n, 800);
    assert_near(2.0 / 101, first->min);
    assert_int_equal(first->rank_min, 0);
    assert_near(1.007, first->max);
    assert_int_equal(first->rank_max, 7);
    assert_near(0.0874455702, round(first->sum / 800 * 1e10) / 1e10);
    assert_near(1.0, first->first);
    assert_near(2.0 / 101 + 0.007, first->last);
    const struct view_bucket *spike = &series.lines[0].buckets[4];
    assert_int_equal(spike->n, 800);
    assert_near(99, spike->max);
    assert_int_equal(spike->rank_max, 5);
    assert_near(0.1316866796, round(spike->sum / 800 * 1e10) / 1e10);
    const struct view_bucket *hole = &series.lines[0].buckets[6];
    assert_int_equal(hole->n, 799);
    assert_int_equal(hole->nonfinite, 1);
    assert_int_equal(series.n_marks, 1);
    assert_near(700, series.marks[0].x);
    assert_non_null(strstr(series.marks[0].text, "rank 2"));
}

static void test_zoom_is_exact(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    query.from = 491;
    query.to = 510;
    query.buckets = 1000;
    CLEANUP(view_series_done) struct view_series series = read_series(a_path, &query);
    assert_int_equal(series.lines[0].n, 20);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(series.lines[0].buckets[i].n, 8);
        if (series.lines[0].buckets[i].max > 90) assert_near(500, series.lines[0].buckets[i].x);
    }
    assert_near(99, series.lines[0].buckets[9].max);
}

static void test_buckets_that_do_not_divide(void **state) {
    (void)state;
    static const int from[] = {1, 144, 287, 430, 572, 715, 858}, to[] = {143, 286, 429, 571, 714, 857, 1000};
    static const int n[] = {1144, 1144, 1144, 1136, 1143, 1144, 1144};
    struct view_query query = view_query_new("loss");
    query.buckets = 7;
    CLEANUP(view_series_done) struct view_series series = read_series(a_path, &query);
    assert_int_equal(series.lines[0].n, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_near(from[i], series.lines[0].buckets[i].x);
        assert_near(to[i], series.lines[0].buckets[i].x_last);
        assert_int_equal(series.lines[0].buckets[i].n, n[i]);
    }
}

static double value_at(const char *metric, int rank, double x) {
    CLEANUP(idset_done) struct idset ranks = {0};
    assert_int_equal(idset_add(&ranks, rank), 0);
    struct view_query query = view_query_new(metric);
    query.x = "number";
    query.from = query.to = x;
    query.ranks = &ranks;
    CLEANUP(view_series_done) struct view_series series = read_series(a_path, &query);
    assert_int_equal(series.lines[0].n, 1);
    assert_int_equal(series.lines[0].buckets[0].n, 1);
    return series.lines[0].buckets[0].max;
}

static void test_made_metrics(void **state) {
    (void)state;
    assert_near(0.043, value_at("@lag", 3, 700));
    assert_near(0, value_at("@lag", 0, 700));
    assert_near(0.140, value_at("@interval", 3, 600));
    assert_near(0.100, value_at("@interval", 3, 601));
    assert_near(0.100, value_at("@interval", 5, 600));
    assert_near(10, value_at("@rate", 5, 600));
}

static void test_what_counts(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    CLEANUP(view_series_done) struct view_series effective = read_series(b_path, &query);
    assert_int_equal(effective.n_lines, 1);
    assert_int_equal(effective.lines[0].n, 200);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(effective.lines[0].buckets[i].n, 2);
    query.history = VIEW_ALL;
    CLEANUP(view_series_done) struct view_series all = read_series(b_path, &query);
    assert_int_equal(all.n_lines, 2);
    assert_int_equal(all.lines[0].n, 200);
    assert_true(all.lines[1].lost);
    assert_int_equal(all.lines[1].n, 50);
    assert_near(101, all.lines[1].buckets[0].x);
    assert_near(150, all.lines[1].buckets[49].x);
}

/* "attempt 2@101 checkpoint_000100@100" */
static void assert_marks(const struct view_query *query, const char *path, const char *expected) {
    CLEANUP(view_series_done) struct view_series series = read_series(path, query);
    CLEANUP(buffer_done) struct buffer found = {0};
    for (size_t i = 0; i < series.n_marks; i++)
        buffer_printf(&found, "%s%s@%g", i > 0 ? ", " : "", series.marks[i].text, series.marks[i].x);
    assert_string_equal(found.size > 0 ? found.data : "", expected);
}

/* What lies out of the range is told at no end of it; what nothing followed is told at the last point. */
static void test_marks_of_a_zoom(void **state) {
    (void)state;
    static const struct {
        double from, to;
        const char *marks;
    } zooms[] = {
        {(double)NAN, (double)NAN, "checkpoint_000100@100, attempt 2@101, rank 1 hangs@150, rank 0 hangs@200"},
        {120, 140, ""},
        {100, 100, "checkpoint_000100@100"},
        {101, 160, "attempt 2@101, rank 1 hangs@150"},
        {151, 300, "rank 0 hangs@200"},
        {1, 99, ""},
        {300, 400, ""},
    };
    char path[64];
    struct journal *journal = NULL;
    view_world_make(path);
    view_world_b(path);
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 199 * NS_PER_S + 500 * NS_PER_MS, EVENT_HUNG, 2, 1,
                     "{\"cause\": \"rank 1 hangs\"}");
    view_world_event(journal, 252 * NS_PER_S, EVENT_HUNG, 2, 0, "{\"cause\": \"rank 0 hangs\"}");
    view_world_close(journal);
    for (size_t i = 0; i < ARRAY_SIZE(zooms); i++) {
        struct view_query query = view_query_new("loss");
        query.from = zooms[i].from;
        query.to = zooms[i].to;
        assert_marks(&query, path, zooms[i].marks);
    }
    view_world_remove(path);
}

static void test_lines_of_ranks(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    query.what = VIEW_RANKS;
    query.buckets = 10;
    CLEANUP(view_series_done) struct view_series series = read_series(a_path, &query);
    assert_int_equal(series.n_lines, 8);
    assert_int_equal(series.n_ranks, 8);
    for (int rank = 0; rank < 8; rank++) {
        assert_int_equal(series.lines[rank].rank, rank);
        assert_int_equal(series.lines[rank].n, 10);
    }
    assert_near(99, series.lines[5].buckets[4].max);
}

static void assert_encoded(double number, const char *expected) {
    CLEANUP(buffer_done) struct buffer text = {0};
    encode_number(&text, number);
    buffer_char(&text, '\0');
    if (expected != NULL) assert_string_equal(text.data, expected);
    if (strtod(text.data, NULL) != number) fail_msg("%.17g is told as %s", number, text.data);
}

/* Whatever number it is, its text is read as it; where few digits do these are all. */
static void test_encoded_numbers(void **state) {
    (void)state;
    static const struct {
        double number;
        const char *text;
    } known[] = {{0.1, "0.1"},
                 {-0.043, "-0.043"},
                 {1e-5, "0.00001"},
                 {2.5, "2.5"},
                 {1234567890.5, "1234567890.5"},
                 {1700000000.123, "1700000000.123"},
                 {9007199254740991.0, "9007199254740991"},
                 {-12.000001, "-12.000001"},
                 {7, "7"},
                 {5e-324, NULL},
                 {1.7976931348623157e308, NULL},
                 {9007199254740993e3, NULL},
                 {1e22, NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        assert_encoded(known[i].number, known[i].text);
    struct dice dice;
    dice_seed(&dice, 1);
    for (int i = 0; i < 200000; i++) {
        double fraction = (double)dice_below(&dice, UINT64_C(1) << 53),
               digits = (double)dice_below(&dice, 1000000);
        assert_encoded(ldexp(fraction, (int)dice_below(&dice, 140) - 110), NULL);
        assert_encoded(-digits / pow(10, (double)dice_below(&dice, 20)), NULL);
    }
}

static void test_json(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    query.history = VIEW_ALL;
    CLEANUP(view_series_done) struct view_series series = read_series(b_path, &query);
    CLEANUP(buffer_done) struct buffer text = {0};
    view_series_encode(&(const struct view_series *){&series}, &(const char *){"an \"id\""}, 1, "loss", &text);
    assert_false(text.failed);
    json_t *reply = json_loadb(text.data, text.size, 0, NULL);
    assert_non_null(reply);
    json_t *line = json_array_get(json_object_get(reply, "series"), 1);
    assert_true(json_is_true(json_object_get(line, "lost")));
    assert_int_equal(json_array_size(json_object_get(line, "mean")), 50);
    assert_string_equal(json_string_value(json_object_get(line, "run")), "an \"id\"");
    assert_int_equal(json_array_size(json_object_get(reply, "marks")), 2);
    json_decref(reply);
}

static void refuse(const struct view_query *query, const char *word) {
    struct view_series series;
    ty_error err = {0};
    assert_int_equal(view_series_read(a_path, query, &series, &err), TY_EUSAGE);
    if (strstr(err.message, word) == NULL) fail_msg("%s", err.message);
}

static void test_wrong_parameters(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    query.x = "metric:";
    refuse(&query, "metric:NAME");
    query.x = NULL;
    query.buckets = 4001;
    refuse(&query, "4000");
    query.buckets = 0;
    query.from = 2;
    query.to = 1;
    refuse(&query, "from");
    query = view_query_new("");
    refuse(&query, "metric");
}

static json_t *parse(const struct buffer *text) {
    assert_false(text->failed);
    json_t *tree = json_loadb(text->data, text->size, 0, NULL);
    if (tree == NULL) fail_msg("no JSON: %.*s", (int)text->size, text->data);
    return tree;
}

static double number_of(const json_t *tree, const char *key) {
    return json_number_value(json_object_get(tree, key));
}

static const char *text_of(const json_t *tree, const char *key) {
    return json_string_value(json_object_get(tree, key));
}

static void test_names(void **state) {
    (void)state;
    struct view_metrics metrics;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_metrics_read(a_path, &(struct view_selection){0}, false, &metrics, NULL), 0);
    view_metrics_encode(&metrics, &text);
    view_metrics_done(&metrics);
    json_t *list = parse(&text);
    assert_int_equal(json_array_size(list), 3);
    json_t *loss = json_array_get(list, 0);
    assert_string_equal(text_of(loss, "name"), "loss");
    assert_near(7999, number_of(loss, "n"));
    assert_near(1, number_of(loss, "nonfinite"));
    assert_near(8, number_of(loss, "ranks"));
    assert_near(2.0 / 1001, number_of(loss, "last"));
    json_decref(list);
}

static int count_bytes(void *context, const char *text, size_t size, ty_error *err) {
    (void)text, (void)err;
    *(size_t *)context += size;
    return 0;
}

/* A report may have anything for a name: what has none is not listed, and the rest is drawn and exported. */
static void test_names_that_are_none(void **state) {
    (void)state;
    char path[64];
    size_t size = 0;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1}");
    view_world_report(journal, NS_PER_S, 1, 0, 1, "{\"\": 1, \"\\u0000a\": 2, \"loss\": 3}");
    view_world_close(journal);
    struct view_metrics metrics;
    assert_int_equal(view_metrics_read(path, &(struct view_selection){0}, false, &metrics, NULL), 0);
    assert_int_equal(metrics.n, 1);
    assert_string_equal(metrics.items[0].name, "loss");
    view_metrics_done(&metrics);
    ty_error err = {0};
    if (view_trace_write("x", path, &(struct view_trace){0}, count_bytes, &size, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(size > 0);
    view_world_remove(path);
}

static void test_heat(void **state) {
    (void)state;
    struct view_query query = view_query_new("@lag");
    struct view_heat heat;
    query.buckets = 10;
    assert_int_equal(view_heat_read(a_path, &query, 0, &heat, NULL), 0);
    assert_int_equal(heat.rows, 8);
    assert_int_equal(heat.columns, 10);
    assert_near(0.043, heat.max);
    assert_int_equal(heat.cells[3 * 10 + 9], 255);
    assert_true(heat.cells[3 * 10] < 64);
    assert_int_equal(heat.cells[0], 1);
    view_heat_done(&heat);
    assert_int_equal(view_heat_read(a_path, &query, 3, &heat, NULL), 0);
    assert_int_equal(heat.rows, 3);
    assert_int_equal(heat.ranks_per_row, 3);
    assert_int_equal(heat.cells[1 * 10 + 9], 255);
    CLEANUP(buffer_done) struct buffer text = {0};
    view_heat_encode(&heat, &text);
    view_heat_done(&heat);
    json_t *reply = parse(&text);
    assert_int_equal(strlen(text_of(reply, "cells")), 40);
    json_decref(reply);
}

static void test_histogram(void **state) {
    (void)state;
    CLEANUP(idset_done) struct idset ranks = {0};
    assert_int_equal(idset_add(&ranks, 5), 0);
    struct view_query query = view_query_new("loss");
    struct view_histogram histogram;
    query.ranks = &ranks;
    assert_int_equal(view_histogram_read(a_path, &query, 10, &histogram, NULL), 0);
    assert_near(99, histogram.max);
    assert_int_equal(histogram.all[9], 1);
    assert_int_equal(histogram.chosen[9], 1);
    assert_int_equal(histogram.all[0], 7998);
    assert_int_equal(histogram.chosen[0], 999);
    view_histogram_done(&histogram);
}

static void test_ranks(void **state) {
    (void)state;
    struct view_ranks ranks;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_ranks_read(a_path, &ranks, NULL), 0);
    assert_int_equal(ranks.n, 8);
    assert_near(0.1, ranks.usual);
    view_ranks_encode(&ranks, 2, 3, &text);
    json_t *reply = parse(&text);
    assert_int_equal(json_array_size(json_object_get(reply, "items")), 3);
    json_decref(reply);
    buffer_clear(&text);
    view_placement_encode(&ranks, &text);
    json_decref(parse(&text));
    for (size_t i = 0; i < 8; i++)
        if (ranks.items[i].rank == 3) assert_near(0.043, ranks.items[i].lag);
    view_ranks_done(&ranks);
}

/* Two ranks report once a second, the second of them `behind` numbers behind. */
static double lag_of(int rank, int behind, int numbers) {
    char path[64];
    struct view_ranks ranks;
    double lag = (double)NAN;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    for (int n = 1; n <= numbers; n++) {
        view_world_report(journal, n * NS_PER_S, 1, 0, (uint64_t)n, "{}");
        if (n > behind) view_world_report(journal, n * NS_PER_S + 1, 1, 1, (uint64_t)(n - behind), "{}");
    }
    view_world_close(journal);
    assert_int_equal(view_ranks_read(path, &ranks, NULL), 0);
    for (size_t i = 0; i < ranks.n; i++)
        if (ranks.items[i].rank == rank) lag = ranks.items[i].lag;
    view_ranks_done(&ranks);
    view_world_remove(path);
    return lag;
}

/* Whom a rank lags behind made its number long ago; where that is too far back, the lag is not known. */
static void test_lags_of_one_that_is_far_behind(void **state) {
    (void)state;
    assert_near(3 + 1e-9, lag_of(1, 3, 100));
    assert_near(1000 + 1e-9, lag_of(1, 1000, 3000));
    assert_near(0, lag_of(0, 1000, 3000));
    assert_near(2000 + 1e-9, lag_of(1, 2000, 3000));
    assert_true(isnan(lag_of(1, 20000, 30000)));
    assert_near(0, lag_of(0, 20000, 30000));
}

/* The report of another arrives later, and was made before. */
static void test_lags_of_reports_that_came_late(void **state) {
    (void)state;
    char path[64];
    struct view_ranks ranks;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    view_world_report(journal, 5 * NS_PER_S, 1, 0, 1, "{}");
    view_world_report(journal, 3 * NS_PER_S, 1, 1, 1, "{}");
    view_world_close(journal);
    assert_int_equal(view_ranks_read(path, &ranks, NULL), 0);
    for (size_t i = 0; i < 2; i++)
        assert_near(ranks.items[i].rank == 0 ? 2 : 0, ranks.items[i].lag);
    view_ranks_done(&ranks);
    view_world_remove(path);
}

static void test_timeline(void **state) {
    (void)state;
    struct view_timeline timeline;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_timeline_read("b", b_path, &timeline, NULL), 0);
    assert_near(251, timeline.seconds);
    assert_near(50, timeline.shares[SHARE_LOST]);
    view_timeline_encode(&timeline, &text);
    view_timeline_done(&timeline);
    json_t *reply = parse(&text);
    assert_int_equal(json_array_size(json_object_get(reply, "attempts")), 2);
    json_decref(reply);
}

static void test_events_and_checkpoints(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_events_encode(b_path, &(struct view_events){0, 2, NULL}, &text, NULL), 0);
    json_t *reply = parse(&text);
    assert_near(2, number_of(reply, "last"));
    assert_int_equal(json_array_size(json_object_get(reply, "events")), 2);
    json_decref(reply);
    buffer_clear(&text);
    assert_int_equal(view_events_encode(b_path, &(struct view_events){2, 100, NULL}, &text, NULL), 0);
    reply = parse(&text);
    const json_t *end = json_array_get(json_object_get(reply, "events"), 0);
    assert_string_equal(text_of(end, "kind"), "attempt_end");
    assert_string_equal(text_of(json_object_get(end, "data"), "cause"), "rank 1 exited with code 3");
    json_decref(reply);
    buffer_clear(&text);
    assert_int_equal(view_checkpoints_encode(b_path, &text, NULL), 0);
    reply = parse(&text);
    assert_int_equal(json_array_size(reply), 1);
    assert_near(100, number_of(json_array_get(reply, 0), "number"));
    json_decref(reply);
}

/* A list of two runs and one that is damaged; one of them goes on, another goes. */
static void test_runs(void **state) {
    (void)state;
    char storage[64], paths[3][96];
    CLEANUP(buffer_done) struct buffer text = {0};
    view_world_make(storage);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/run%d", storage, i);
        assert_int_equal(mkdir(paths[i], 0755), 0);
        view_world_b(paths[i]);
    }
    char db[128];
    (void)snprintf(db, sizeof db, "%s/run.db", paths[2]);
    assert_int_equal(truncate(db, 700), 0);
    struct view_runs *runs = view_runs_create(&(const char *){storage}, 1, NULL);
    assert_non_null(runs);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    assert_int_equal(view_runs_look(runs, NULL), 0);
    view_runs_encode(runs, 0, &text);
    json_t *list = parse(&text);
    assert_int_equal(json_array_size(json_object_get(list, "runs")), 2);
    const json_t *bad = json_array_get(json_object_get(list, "unreadable"), 0);
    assert_string_equal(text_of(bad, "name"), "run2");
    json_int_t cursor = json_integer_value(json_object_get(list, "cursor"));
    char id[VIEW_ID_SIZE];
    assert_true(view_run_id(paths[0], id));
    assert_int_equal(view_runs_count(runs), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(strcmp(view_runs_at(runs, i)->id, id) == 0,
                         strcmp(view_runs_at(runs, i)->name, "run0") == 0);
    json_decref(list);

    struct journal *journal = NULL;
    assert_int_equal(journal_open(paths[0], JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 0, -1, "{}");
    view_world_event(journal, 301 * NS_PER_S, EVENT_ATTEMPT, 3, -1, "{\"workers\": 2}");
    assert_int_equal(journal_commit(journal, NULL), 0);
    view_world_remove(paths[1]);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    journal_close(journal);
    buffer_clear(&text);
    view_runs_encode(runs, (uint64_t)cursor, &text);
    list = parse(&text);
    assert_int_equal(json_array_size(json_object_get(list, "runs")), 1);
    assert_near(3, number_of(json_array_get(json_object_get(list, "runs"), 0), "attempts"));
    assert_int_equal(json_array_size(json_object_get(list, "gone")), 1);
    json_decref(list);
    view_runs_destroy(runs);
    view_world_remove(paths[0]);
    view_world_remove(paths[2]);
    assert_int_equal(rmdir(storage), 0);
}

/* More reports than are read whole: 8 ranks, 10,000 numbers; 99 at every number that 1,000 divides, NaN behind
 * it. */
static void write_large(const char *path, bool ends) {
    struct journal *journal = view_world_open(path, 8);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 8}");
    for (int n = 1; n <= 10000; n++)
        for (int rank = 0; rank < 8; rank++) {
            char metrics[96];
            if (n % 1000 == 0 && rank == 3)
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":99,\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            else if (n % 1000 == 1 && rank == 4)
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":\"NaN\",\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            else
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":0.5,\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            view_world_report(journal, n * 10 * NS_PER_MS + rank, 1, rank, (uint64_t)n, metrics);
        }
    if (ends) view_world_event(journal, 200 * NS_PER_S, EVENT_RUN_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_close(journal);
}

static bool keep_number(void *context, const struct value *value) {
    *(double *)context = value->number;
    return true;
}

/* Digits of any count, with a point and an exponent anywhere: to the last bit what the C library reads. */
static void test_numbers(void **state) {
    (void)state;
    struct dice dice;
    dice_seed(&dice, 1);
    for (int tries = 0; tries < 100000; tries++) {
        char text[64] = "{\"a\":", *at = text + strlen(text);
        int digits = 1 + (int)dice_below(&dice, 20), point = 1 + (int)dice_below(&dice, 20);
        for (int i = 0; i < digits; i++) {
            if (i == point) *at++ = '.';
            *at++ = (char)('0' + (i == 0 ? 1 + dice_below(&dice, 9) : dice_below(&dice, 10)));
        }
        if (dice_below(&dice, 2) > 0) at += sprintf(at, "e%d", (int)dice_below(&dice, 64) - 32);
        *at++ = '}';
        double number = NAN;
        assert_true(values_each(text, (size_t)(at - text), keep_number, &number));
        if (number != strtod(text + strlen("{\"a\":"), NULL)) fail_msg("%s is read as %.17g", text, number);
    }
}

struct whole {
    uint64_t n, nonfinite, spikes;
    double sum;
};

static struct whole sum_up(const struct view_series *series, size_t line) {
    struct whole whole = {0};
    for (size_t i = 0; i < series->lines[line].n; i++) {
        const struct view_bucket *bucket = &series->lines[line].buckets[i];
        whole.n += bucket->n;
        whole.nonfinite += bucket->nonfinite;
        whole.spikes += bucket->n > 0 && bucket->max > 98;
        whole.sum += bucket->n > 0 ? bucket->sum : 0;
        if (i > 0) assert_true(bucket->x > bucket[-1].x_last);
    }
    return whole;
}

static void grow(struct view_index *index) {
    ty_error err = {0};
    int result;
    do
        result = view_index_grow(index, &err);
    while (result > 0);
    if (result < 0) fail_msg("%s", err.message);
}

static void assert_all(const char *path, const struct view_index *index, const char *x) {
    struct view_query query = view_query_new("loss");
    query.x = x;
    query.index = index;
    CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
    struct whole whole = sum_up(&series, 0);
    assert_true(series.exact);
    assert_near(1, series.scanned);
    assert_true(series.lines[0].n <= 1000);
    assert_int_equal(whole.n, 79990);
    assert_int_equal(whole.nonfinite, 10);
    assert_int_equal(whole.spikes, 10);
    assert_near(0.5 * 79980 + 990, whole.sum);
}

/* Whether or not the last word is the end of the run. */
static void test_the_end_alone(void **state) {
    (void)state;
    char resumed[64];
    view_world_make(resumed);
    view_world_b(resumed);
    struct journal *journal = NULL;
    assert_int_equal(journal_open(resumed, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 2, -1, "{\"num_workers\": 2}");
    view_world_close(journal);
    const char *paths[] = {a_path, b_path, resumed};
    struct journal_ends *ends = NULL;
    assert_int_equal(journal_ends_create(&ends, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct view_summary whole, end;
        assert_int_equal(view_summary_read("x", paths[i], &whole, NULL), 0);
        assert_int_equal(view_summary_read_end(ends, "x", paths[i], &end, NULL), 0);
        assert_int_equal(end.standing, whole.standing);
        assert_int_equal(end.standing == STANDING_SUCCEEDED, i < 2);
        assert_int_equal(end.ended, whole.ended);
        assert_int_equal(end.ends, whole.ends);
        assert_string_equal(end.path, whole.path);
        if (whole.last_checkpoint == NULL)
            assert_null(end.last_checkpoint);
        else
            assert_string_equal(end.last_checkpoint, whole.last_checkpoint);
        view_summary_done(&whole);
        view_summary_done(&end);
    }
    journal_ends_destroy(ends);
    view_world_remove(resumed);
}

/* Where a run is removed and another one of its name begins, its journal may even have the same inode. */
static void test_facts_of_a_journal_in_the_place_of_another(void **state) {
    (void)state;
    char path[64], other[64], command[200];
    struct journal *journal;
    struct view_facts facts;
    view_world_make(path);
    view_world_make(other);
    for (int i = 0; i < 2; i++) {
        journal = view_world_open(i == 0 ? path : other, 2);
        for (int attempt = 1; attempt <= 2 - i; attempt++)
            view_world_event(journal, (1 + attempt + i) * NS_PER_S, EVENT_ATTEMPT, attempt, -1,
                             "{\"workers\": 2}");
        view_world_report(journal, 5 * NS_PER_S, 1, 0, 1, "{}");
        view_world_close(journal);
    }
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 2);
    int64_t before = facts.sequence;
    assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 2);
    assert_int_equal(facts.sequence, before);
    (void)snprintf(command, sizeof command, "cat %s/run.db > %s/run.db", other, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 1);
    view_facts_done(&facts);
    view_world_remove(path);
    view_world_remove(other);
}

static void expect_counted(const struct view_facts *facts, int attempt, uint64_t to) {
    assert_true(view_facts_count(facts, attempt, to));
    assert_false(view_facts_count(facts, attempt, to + 1));
}

/* An attempt began from a checkpoint whose name tells no number, or another one, and whose row is gone. */
static void test_what_counts_of_attempts_before_a_place(void **state) {
    (void)state;
    static const char *const places[] = {"s3://bucket/a", "/runs/r/epoch 3", "/elsewhere/checkpoint_000777"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        char path[64], commit[128], attempt[128];
        struct view_facts facts;
        view_world_make(path);
        struct journal *journal = view_world_open(path, 2);
        view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
        (void)snprintf(commit, sizeof commit, "{\"number\": 100, \"path\": \"%s\"}", places[i]);
        view_world_event(journal, 100 * NS_PER_S, EVENT_CHECKPOINT, 1, -1, commit);
        (void)snprintf(attempt, sizeof attempt, "{\"workers\": 2, \"checkpoint\": \"%s\"}", places[i]);
        view_world_event(journal, 150 * NS_PER_S, EVENT_ATTEMPT, 2, -1, attempt);
        view_world_close(journal);
        assert_int_equal(view_facts_read(path, &facts, NULL), 0);
        expect_counted(&facts, 1, 100);
        /* It is committed there again, and gone on with once more. */
        assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
        commit[strlen("{\"number\": ")] = '7';
        view_world_event(journal, 800 * NS_PER_S, EVENT_CHECKPOINT, 2, -1, commit);
        view_world_event(journal, 850 * NS_PER_S, EVENT_ATTEMPT, 3, -1, attempt);
        view_world_close(journal);
        assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
        expect_counted(&facts, 1, 100);
        expect_counted(&facts, 2, 700);
        view_facts_done(&facts);
        view_world_remove(path);
    }
}

/* What was read of a journal is not read again: events that are gone from it since still tell. */
static void test_facts_that_are_kept(void **state) {
    (void)state;
    char path[64], command[200];
    struct facts_kept kept;
    const struct view_facts *facts;
    struct journal *journal;
    view_world_make(path);
    view_world_b(path);
    facts_kept_init(&kept);
    assert_int_equal(facts_take(path, &kept, NULL, &facts, NULL), 0);
    assert_int_equal(facts->n_attempts, 2);
    facts_give_back(&kept, NULL);
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 2, -1, "{\"num_workers\": 2}");
    view_world_event(journal, 301 * NS_PER_S, EVENT_ATTEMPT, 3, -1,
                     "{\"workers\": 2, \"checkpoint\": \"checkpoint_000100\"}");
    view_world_event(journal, 302 * NS_PER_S, EVENT_HUNG, 3, 1, "{\"cause\": \"rank 1 hung\"}");
    view_world_report(journal, 303 * NS_PER_S, 3, 0, 101, "{}");
    assert_int_equal(journal_forget_checkpoint(journal, 100, NULL), 0);
    view_world_close(journal);
    (void)snprintf(command, sizeof command,
                   "%s -c \"import sqlite3; d = sqlite3.connect('%s/run.db'); d.execute('DELETE FROM events "
                   "WHERE attempt = 1'); d.commit()\"",
                   "python3", path);
    assert_int_equal(system(command), 0);
    CLEANUP(view_facts_done) struct view_facts whole;
    assert_int_equal(view_facts_read(path, &whole, NULL), 0);
    assert_int_equal(whole.n_attempts, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(facts_take(path, &kept, NULL, &facts, NULL), 0);
        assert_int_equal(facts->n_attempts, 3);
        assert_int_equal(facts->sequence, whole.sequence);
        assert_int_equal(facts->reports, whole.reports);
        assert_int_equal(facts->n_checkpoints, 0);
        assert_int_equal(facts->n_faults, 1);
        assert_int_equal(facts->replay.last, whole.replay.last);
        assert_true(view_facts_count(facts, 1, 100));
        assert_false(view_facts_count(facts, 1, 101));
        assert_false(view_facts_count(facts, 2, 151));
        assert_true(view_facts_count(facts, 3, 151));
        facts_give_back(&kept, NULL);
    }
    view_world_remove(path);
    assert_true(facts_take(path, &kept, NULL, &facts, NULL) < 0);
    facts_kept_done(&kept);
}

static void test_index(void **state) {
    (void)state;
    char path[64], cache[64];
    struct view_index *index = NULL;
    view_world_make(path);
    view_world_make(cache);
    write_large(path, true);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    assert_int_equal(view_index_open(path, true, &index, NULL), 0);
    struct view_query query = view_query_new("loss");
    query.index = index;
    CLEANUP(view_series_done) struct view_series sample = read_series(path, &query);
    assert_false(sample.exact);
    assert_true(sample.scanned > 0 && sample.scanned < 0.1);
    CLEANUP(view_series_done)
    struct view_series again = read_series(path, &query); /* of the sample that was kept */
    assert_false(again.exact);
    assert_int_equal(sum_up(&again, 0).n, sum_up(&sample, 0).n);
    assert_near(sum_up(&sample, 0).sum, sum_up(&again, 0).sum);
    assert_true(again.behind);
    grow(index);
    assert_near(1, view_index_scanned(index));
    assert_all(path, index, "step");
    assert_all(path, index, "number");
    assert_all(path, index, "time");
    assert_all(path, index, "relative");

    /* Near enough it is as exact as a small run. */
    query.from = 1999;
    query.to = 2000;
    CLEANUP(view_series_done) struct view_series zoom = read_series(path, &query);
    assert_true(zoom.exact);
    assert_int_equal(zoom.lines[0].n, 1);
    assert_int_equal(zoom.lines[0].buckets[0].n, 8);
    assert_near(99, zoom.lines[0].buckets[0].max);

    /* Ends that lie within buckets. */
    query.from = 3;
    query.to = 19997;
    query.buckets = 100;
    CLEANUP(view_series_done) struct view_series most = read_series(path, &query);
    assert_int_equal(sum_up(&most, 0).n, 79990 - 3 * 8 + 1);
    char command[240];
    (void)snprintf(command, sizeof command,
                   "cd %s && mkdir -p trainyard/index && cd trainyard/index && touch -d '2 hours ago' "
                   "1.db.part-1 && touch 2.db.part-2",
                   cache);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_index_keep(index, NULL), 0);
    (void)snprintf(command, sizeof command,
                   "cd %s/trainyard/index && [ ! -e 1.db.part-1 ] && [ -e 2.db.part-2 ]", cache);
    assert_int_equal(system(command), 0);
    view_index_close(index);

    assert_int_equal(view_index_open(path, true, &index, NULL), 0);
    grow(index);
    assert_all(path, index, "step");
    view_index_close(index);
    (void)snprintf(command, sizeof command, "rm -r %s/trainyard", cache);
    assert_int_equal(system(command), 0);
    view_world_remove(path);
    assert_int_equal(rmdir(cache), 0);
}

/* The run goes on from a checkpoint: what it took back is lost, and what is new counts. */
static void test_index_of_a_run_that_is_resumed(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct journal *journal = NULL;
    view_world_make(path);
    write_large(path, false);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 200 * NS_PER_S, EVENT_ATTEMPT, 2, -1,
                     "{\"workers\": 8, \"checkpoint\": \"checkpoint_009000\"}");
    for (int rank = 0; rank < 8; rank++)
        view_world_report(journal, 201 * NS_PER_S, 2, rank, 10001, "{\"loss\":7,\"step\":18002}");
    view_world_close(journal);
    struct view_query query = view_query_new("loss");
    query.index = index;
    query.history = VIEW_ALL;
    for (int grown = 0; grown < 2; grown++) {
        grow(index);
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_true(series.exact);
        assert_int_equal(series.n_lines, 2);
        assert_int_equal(sum_up(&series, 0).n + sum_up(&series, 0).nonfinite, 72008);
        assert_int_equal(sum_up(&series, 1).n + sum_up(&series, 1).nonfinite, 8000);
        assert_true(series.lines[1].lost);
    }
    view_index_close(index);
    view_world_remove(path);
}

/* Values that are not finite are told as they were counted, and where they were first, however rare. */
static void test_marks_of_an_index(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    write_large(path, true);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    struct view_query query = view_query_new("loss");
    query.index = index;
    assert_marks(&query, path, "not finite first at rank 4, report 1; 10 in all@2");
    query.from = 3;
    query.to = 19997;
    assert_marks(&query, path, "not finite first at rank 4, report 1001; 9 in all@2002");
    query.to = 15000;
    assert_marks(&query, path, "not finite first at rank 4, report 1001; 7 in all@2002");
    view_index_close(index);
    view_world_remove(path);
}

/* Lines of ranks, and cells: near enough all is read, also of what came since the index grew. */
static void test_zooms_of_an_index(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct journal *journal = NULL;
    view_world_make(path);
    write_large(path, false);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_report(journal, 201 * NS_PER_S, 1, 3, 10001, "{\"loss\":7,\"step\":4002,\"epoch\":20}");
    view_world_close(journal);
    struct view_query query = view_query_new("loss");
    CLEANUP(idset_done) struct idset ranks = {0};
    assert_int_equal(idset_add(&ranks, 3), 0);
    query.index = index;
    query.ranks = &ranks;
    query.what = VIEW_RANKS;
    query.from = 3999;
    query.to = 4100;
    CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
    assert_true(series.exact);
    assert_near(1, series.scanned);
    assert_int_equal(series.n_lines, 1);
    assert_int_equal(sum_up(&series, 0).n, 52); /* the even ones from 4000 to 4100, and the last report */
    assert_near(99, series.lines[0].buckets[0].max);
    assert_near(7, series.lines[0].buckets[1].max);
    query.ranks = NULL;
    query.buckets = 10;
    struct view_heat heat;
    assert_int_equal(view_heat_read(path, &query, 0, &heat, NULL), 0);
    assert_true(heat.exact);
    assert_int_equal(heat.rows, 8);
    view_heat_done(&heat);
    query.metric = "@interval";
    query.x = "number";
    CLEANUP(view_series_done) struct view_series made = read_series(path, &query);
    assert_false(made.exact);
    view_index_close(index);
    view_world_remove(path);
}

enum { UNLIKE_RANKS = 6, UNLIKE_NUMBERS = 6000, UNLIKE_KEPT = 4001 };

static const char *const unlike_xs[] = {"number", "step", "epoch", "time", "relative"};

/* Numbers with a gap, so that a slot of the index takes several. */
static int unlike_number(int n) {
    return n > UNLIKE_NUMBERS / 3 ? n + 200000 : n;
}

/* Two attempts, of which the second goes on from a checkpoint of the first. Half of the reports have a second
 * metric in front, some have it alone, some lack the epoch, and some values are no numbers. `expected` is what
 * "loss" comes to over each x: what counts, and what was lost. */
static void write_unlike(const char *path, struct view_bucket expected[2][ARRAY_SIZE(unlike_xs)]) {
    struct dice dice;
    dice_seed(&dice, 1);
    struct journal *journal = view_world_open(path, UNLIKE_RANKS);
    int64_t id = 0;
    uint64_t kind = 0;
    for (int attempt = 1; attempt <= 2; attempt++) {
        nanoseconds began = attempt * 1000 * NS_PER_S;
        view_world_event(journal, began, EVENT_ATTEMPT, attempt, -1,
                         attempt == 1 ? "{\"workers\": 6}"
                                      : "{\"workers\": 6, \"checkpoint\": \"checkpoint_204001\"}");
        for (int i = 0; i < UNLIKE_NUMBERS * UNLIKE_RANKS; i++) {
            int rank = i % UNLIKE_RANKS, n = i / UNLIKE_RANKS + (attempt == 1 ? 1 : UNLIKE_KEPT + 1);
            if (i % (9 * UNLIKE_RANKS) == 0) kind = dice_below(&dice, 10);
            bool finite = dice_below(&dice, 50) > 0;
            double value = !finite ? (double)NAN : (double)dice_below(&dice, 1000) / 8;
            nanoseconds after = began + n * NS_PER_MS + (nanoseconds)dice_below(&dice, NS_PER_MS / 10);
            double relative = (double)after / (double)NS_PER_S;
            double x[] = {unlike_number(n), 2 * unlike_number(n) + (double)dice_below(&dice, 2),
                          dice_below(&dice, 200) > 0 ? n / 300.0 : (double)NAN,
                          relative + (double)VIEW_WORLD_BEGAN / (double)NS_PER_S, relative};
            char metrics[160], loss[40] = "\"NaN\"", epoch[40] = "";
            if (finite) (void)snprintf(loss, sizeof loss, "%.17g", value);
            if (!isnan(x[2])) (void)snprintf(epoch, sizeof epoch, ",\"epoch\":%.17g", x[2]);
            (void)snprintf(metrics, sizeof metrics, "{%s\"%s\":%s,\"step\":%.0f%s}",
                           kind < 5 ? "" : "\"other\":5,", kind == 0 ? "other" : "loss", loss, x[1], epoch);
            view_world_report(journal, after, attempt, rank, (uint64_t)unlike_number(n), metrics);
            id++;
            for (size_t axis = 0; axis < ARRAY_SIZE(unlike_xs) && kind != 0; axis++)
                if (!isnan(x[axis]))
                    view_bucket_add(&expected[attempt == 1 && n > UNLIKE_KEPT][axis], x[axis], value, rank, id);
        }
    }
    view_world_close(journal);
}

static void test_index_of_unlike_reports(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    struct view_bucket expected[2][ARRAY_SIZE(unlike_xs)] = {0};
    view_world_make(path);
    write_unlike(path, expected);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    for (size_t axis = 0; axis < ARRAY_SIZE(unlike_xs); axis++) {
        struct view_query query = view_query_new("loss");
        query.x = unlike_xs[axis];
        query.index = index;
        query.history = VIEW_ALL;
        CLEANUP(view_series_done) struct view_series fine = read_series(path, &query);
        query.buckets = 1;
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_true(series.exact);
        assert_int_equal(series.n_lines, 2);
        for (size_t line = 0; line < 2; line++) {
            const struct view_bucket *bucket = &series.lines[line].buckets[0], *all = &expected[line][axis];
            assert_int_equal(series.lines[line].n, 1);
            assert_int_equal(sum_up(&fine, line).n, all->n);
            assert_near(all->x, bucket->x);
            assert_near(all->x_last, bucket->x_last);
            assert_int_equal(bucket->n, all->n);
            assert_int_equal(bucket->nonfinite, all->nonfinite);
            assert_near(all->min, bucket->min);
            assert_near(all->max, bucket->max);
            assert_near(all->sum, bucket->sum);
            assert_near(all->first, bucket->first);
            assert_near(all->last, bucket->last);
            assert_int_equal(bucket->rank_min, all->rank_min);
            assert_int_equal(bucket->rank_max, all->rank_max);
        }
    }
    view_index_close(index);
    view_world_remove(path);
}

/* -- drawings */

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

/* 60,000 reports of 4 ranks; those with the numbers from `bare` to `bare_to` have no global step, and a tenth
 * of all have no step, which is another number. */
static void write_bare(const char *path, int bare, int bare_to) {
    struct journal *journal = view_world_open(path, 4);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 4}");
    for (int n = 1; n <= 15000; n++)
        for (int rank = 0; rank < 4; rank++) {
            char metrics[96], step[32] = "", named[32] = "";
            if (n < bare || n > bare_to) (void)snprintf(step, sizeof step, ",\"global_step\":%d", 3 * n);
            if (n % 10 > 0) (void)snprintf(named, sizeof named, "\"step\":%d,", n + 100000);
            (void)snprintf(metrics, sizeof metrics, "{%s\"loss\":0.5%s}", named, step);
            view_world_report(journal, n * 10 * NS_PER_MS + rank, 1, rank, (uint64_t)n, metrics);
        }
    view_world_close(journal);
}

static struct view_series read_between(const char *path, const struct view_index *index, double from,
                                       double to) {
    struct view_query query = view_query_new("loss");
    query.index = index;
    query.from = from;
    query.to = to;
    return read_series(path, &query);
}

/* Which name is the step is asked of all reports: neither the first of them nor those of a zoom decide it. */
static void test_the_step_of_a_long_run(void **state) {
    (void)state;
    static const int bare[][2] = {{1, 1}, {7000, 7100}, {14900, 15000}};
    for (size_t i = 0; i < ARRAY_SIZE(bare); i++) {
        char path[64];
        struct view_index *index = NULL;
        int lacking = 4 * (bare[i][1] - bare[i][0] + 1);
        view_world_make(path);
        write_bare(path, bare[i][0], bare[i][1]);
        assert_int_equal(view_index_open(path, false, &index, NULL), 0);
        grow(index);
        CLEANUP(view_series_done) struct view_series all = read_between(path, index, NAN, NAN);
        assert_true(all.exact);
        assert_string_equal(all.x, "global_step");
        assert_int_equal(sum_up(&all, 0).n, 60000 - lacking);
        for (size_t at = 0; at < all.lines[0].n; at++)
            assert_near(0, fmod(all.lines[0].buckets[at].x, 3));
        int from = bare[i][0] > 50 ? bare[i][0] - 50 : 1;
        CLEANUP(view_series_done)
        struct view_series zoom = read_between(path, index, 3 * from, 3 * (from + 200));
        assert_true(zoom.exact);
        assert_string_equal(zoom.x, "global_step");
        int to = from + 200 < 15000 ? from + 200 : 15000;
        assert_int_equal(sum_up(&zoom, 0).n, 4 * (to - from + 1) - lacking);
        CLEANUP(view_series_done)
        struct view_series sampled = read_between(path, NULL, 3 * from, 3 * (from + 200));
        assert_string_equal(sampled.x, "global_step");
        view_index_close(index);
        view_world_remove(path);
    }
}

/* Somebody took rows out of a journal, and one says that it is the last of very many: what there is is read,
 * in time. */
static void test_reports_that_are_missing(void **state) {
    (void)state;
    char path[64], command[400];
    struct view_index *index = NULL;
    view_world_make(path);
    write_large(path, true);
    (void)snprintf(command, sizeof command,
                   "python3 -c \"import sqlite3; d = sqlite3.connect('%s/run.db'); d.execute('DELETE FROM "
                   "reports WHERE id "
                   "BETWEEN 10001 AND 70000'); d.execute('UPDATE reports SET id = 1 << 62 WHERE id = 80000'); "
                   "d.commit()\"",
                   path);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    struct view_query query = view_query_new("step");
    query.index = index;
    CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
    assert_true(series.exact);
    assert_int_equal(sum_up(&series, 0).n, 20000);
    view_index_close(index);
    CLEANUP(view_metrics_done) struct view_metrics metrics;
    assert_int_equal(view_metrics_read(path, &(struct view_selection){0}, true, &metrics, NULL), 0);
    assert_int_equal(metrics.items[0].n + metrics.items[0].nonfinite, 20000);
    view_world_remove(path);
}

static void expose(const struct view_exposed *runs, size_t n, struct buffer *out) {
    ty_error err = {0};
    buffer_clear(out);
    if (view_exposition_encode(runs, n, &(struct view_exposition){0}, out, &err) < 0)
        fail_msg("%s", err.message);
}

/* Of two storage paths: no two series have the same labels. */
static void test_exposition_of_runs_of_one_name(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    char expected[160];
    const struct view_exposed runs[] = {{.name = "r", .path = a_path}, {.name = "r", .path = b_path}};
    expose(runs, 2, &out);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(expected, sizeof expected, "trainyard_reports_total{run=\"%s\"} %d\n", runs[i].path,
                       i == 0 ? 8000 : 500);
        assert_non_null(strstr(out.data, expected));
    }
    expose(runs, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_reports_total{run=\"r\"} 8000\n"));
}

/* What rank 0 said last is found behind what the others said since. */
static void test_exposition_of_a_rank_that_reports_seldom(void **state) {
    (void)state;
    char path[64];
    CLEANUP(buffer_done) struct buffer out = {0};
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    view_world_report(journal, 0, 1, 0, 1, "{\"accuracy\":0.75}");
    for (int n = 1; n <= 20000; n++)
        view_world_report(journal, n * NS_PER_MS, 1, 1, (uint64_t)n, "{\"loss\":1}");
    view_world_close(journal);
    expose(&(struct view_exposed){.name = "r", .path = path}, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_metric{run=\"r\",metric=\"accuracy\"} 0.75\n"));
    view_world_remove(path);
}

static size_t count_lines(const char *text, const char *begin) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, begin)) != NULL; at++)
        n += at == text || at[-1] == '\n';
    return n;
}

static void test_exposition_of_many_nodes(void **state) {
    (void)state;
    char path[64], file[96];
    struct journal *db = NULL;
    static const char family[] = "trainyard_node_cpu_used_ratio{";
    CLEANUP(buffer_done) struct buffer out = {0};
    static struct usage_sample sample = {.time = VIEW_WORLD_BEGAN};
    view_world_make(path);
    view_world_close(view_world_open(path, 1));
    assert_int_equal(usage_db_open(path, &db, NULL), 0);
    usage_add(&sample, USAGE_NODE_CPU, -1, 0.5);
    for (int node = 0; node < 200; node++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", node);
        assert_int_equal(usage_db_add(db, name, &sample, NULL), 0);
    }
    view_world_close(db);
    const struct view_exposed run = {.name = "r", .path = path};
    expose(&run, 1, &out);
    assert_int_equal(count_lines(out.data, family), 128);
    buffer_clear(&out);
    const struct view_exposition each = {.per_device = true};
    assert_int_equal(view_exposition_encode(&run, 1, &each, &out, NULL), 0);
    assert_int_equal(count_lines(out.data, family), 200);
    (void)snprintf(file, sizeof file, "%s/usage.db", path);
    assert_int_equal(unlink(file), 0);
    view_world_remove(path);
}

/* However long the run is; what was counted is not read again, and another run is counted anew. */
static void test_exposition_counts_on(void **state) {
    (void)state;
    char path[64];
    CLEANUP(buffer_done) struct buffer out = {0};
    CLEANUP(view_counts_done) struct view_counts counts = {0};
    struct journal *journal = NULL;
    view_world_make(path);
    write_large(path, false);
    const struct view_exposed run = {.name = "r", .path = path},
                              kept = {.name = "r", .path = path, .counts = &counts};
    expose(&run, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 10\n"));
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"step\"} 0\n"));
    expose(&kept, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 10\n"));
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_report(journal, 201 * NS_PER_S, 1, 0, 10001,
                      "{\"loss\":\"Infinity\",\"step\":1,\"name\":\"x\"}");
    view_world_close(journal);
    expose(&kept, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 11\n"));
    assert_null(strstr(out.data, "metric=\"name\""));
    const struct view_exposed other = {.name = "a", .path = a_path, .counts = &counts};
    expose(&other, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"a\",metric=\"loss\"} 1\n"));
    view_world_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_buckets),
        cmocka_unit_test(test_zoom_is_exact),
        cmocka_unit_test(test_made_metrics),
        cmocka_unit_test(test_buckets_that_do_not_divide),
        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_marks_of_a_zoom),
        cmocka_unit_test(test_lines_of_ranks),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test(test_heat),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_lags_of_one_that_is_far_behind),
        cmocka_unit_test(test_lags_of_reports_that_came_late),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_events_and_checkpoints),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_the_end_alone),
        cmocka_unit_test(test_facts_of_a_journal_in_the_place_of_another),
        cmocka_unit_test(test_what_counts_of_attempts_before_a_place),
        cmocka_unit_test(test_facts_that_are_kept),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_marks_of_an_index),
        cmocka_unit_test(test_zooms_of_an_index),
        cmocka_unit_test(test_index_of_unlike_reports),
        cmocka_unit_test(test_drawings),
        cmocka_unit_test(test_drawings_of_a_run_that_goes_on),
        cmocka_unit_test(test_which_ranks_are_drawn),
        cmocka_unit_test(test_index_of_a_run_that_is_resumed),
        cmocka_unit_test(test_the_step_of_a_long_run),
        cmocka_unit_test(test_reports_that_are_missing),
        cmocka_unit_test(test_exposition_of_runs_of_one_name),
        cmocka_unit_test(test_exposition_of_a_rank_that_reports_seldom),
        cmocka_unit_test(test_exposition_of_many_nodes),
        cmocka_unit_test(test_exposition_counts_on),
        cmocka_unit_test(test_encoded_numbers),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
