/* What reports are turned into: buckets keep every extreme at every zoom, what a later attempt took back does
 * not count, and made metrics are right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "view/encode.h"
#include "view/export.h"
#include "view/series.h"
#include "view/values.h"
#include "view_world.h"

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

/* Asked for together, metrics are drawn as each by itself. */
static void assert_together(const char *path, const struct view_query *query, const char *const *metrics,
                            size_t n) {
    struct view_series together[8];
    ty_error err = {0};
    assert_true(n <= ARRAY_SIZE(together));
    if (view_series_read_each(path, query, metrics, n, together, &err) < 0) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        struct view_query own = *query;
        own.metric = metrics[i];
        CLEANUP(view_series_done) struct view_series series = read_series(path, &own);
        const struct view_series *alone = &series, *one = &together[i];
        CLEANUP(buffer_done) struct buffer expected = {0};
        CLEANUP(buffer_done) struct buffer found = {0};
        view_series_encode(&alone, &(const char *){"id"}, 1, metrics[i], &expected);
        view_series_encode(&one, &(const char *){"id"}, 1, metrics[i], &found);
        buffer_char(&expected, '\0');
        buffer_char(&found, '\0');
        assert_string_equal(expected.data, found.data);
        view_series_done(&together[i]);
    }
}

static void test_metrics_together(void **state) {
    (void)state;
    static const char *const metrics[] = {"loss", "step", "none", "@interval", "epoch", "loss"};
    static const char *const xs[] = {"step", "epoch", "time", "metric:loss"};
    for (size_t i = 0; i < ARRAY_SIZE(xs); i++)
        for (int what = VIEW_BAND; what <= VIEW_RANKS; what++) {
            struct view_query query = view_query_new(NULL);
            query.x = xs[i];
            query.what = (enum view_what)what;
            query.history = VIEW_ALL;
            assert_together(a_path, &query, metrics, ARRAY_SIZE(metrics));
            assert_together(b_path, &query, metrics, ARRAY_SIZE(metrics));
            query.from = 90;
            query.to = 120;
            query.buckets = 7;
            assert_together(b_path, &query, metrics, ARRAY_SIZE(metrics));
        }
    struct view_series series[2];
    struct view_query query = view_query_new(NULL);
    static const char *const nameless[] = {"loss", ""};
    assert_int_equal(view_series_read_each(a_path, &query, nameless, 2, series, NULL), TY_EUSAGE);
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

/* Of a name that a report has twice the last value counts, as in a row of Python, and none where that is no
 * number. */
static void test_names_that_come_twice(void **state) {
    (void)state;
    char path[64];
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1}");
    view_world_report(journal, NS_PER_S, 1, 0, 1,
                      "{\"a\": 9, \"o\": {\"b\": 5}, \"a\": 2, \"o/b\": 6, \"t\": 3, \"t\": [3]}");
    view_world_close(journal);
    struct view_metrics metrics;
    assert_int_equal(view_metrics_read(path, &(struct view_selection){0}, false, &metrics, NULL), 0);
    const double lasts[] = {2, 6};
    for (size_t i = 0; i < metrics.n; i++) {
        const struct view_metric *metric = &metrics.items[i];
        assert_int_equal(metric->n, i < 2);
        if (i == 2) continue;
        assert_near(lasts[i], metric->last);
        assert_near(lasts[i], metric->max);
        struct view_query query = view_query_new(metric->name);
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_near(lasts[i], series.lines[0].buckets[0].max);
    }
    assert_int_equal(metrics.n, 3);
    view_metrics_done(&metrics);
    view_world_remove(path);
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

/* One value far off does not hide how the others differ. */
static void test_histogram_of_the_near(void **state) {
    (void)state;
    struct view_query query = view_query_new("loss");
    struct view_histogram histogram;
    CLEANUP(buffer_done) struct buffer text = {0};
    query.near = true;
    assert_int_equal(view_histogram_read(a_path, &query, 10, &histogram, NULL), 0);
    uint64_t all = 0;
    for (size_t i = 0; i < 10; i++)
        all += histogram.all[i];
    assert_int_equal(all, 7999);
    assert_int_equal(histogram.all[9], 79);
    assert_true(histogram.all[0] < 7920 && histogram.all[8] > 0 && histogram.near < 0.25);
    view_histogram_encode(&histogram, &text);
    json_t *reply = parse(&text);
    const json_t *edges = json_object_get(reply, "edges");
    assert_near(histogram.near, json_number_value(json_array_get(edges, 9)));
    assert_near(99, json_number_value(json_array_get(edges, 10)));
    json_decref(reply);
    view_histogram_done(&histogram);
    query.metric = "step"; /* evenly spread */
    assert_int_equal(view_histogram_read(a_path, &query, 10, &histogram, NULL), 0);
    assert_true(isnan(histogram.near));
    view_histogram_done(&histogram);
}

/* Whatever a double may be, it has a bin and a cell, and each bin an edge. */
static void test_values_at_the_ends_of_a_double(void **state) {
    (void)state;
    static const char *const values[] = {"-1.7e308", "0", "1.7e308", "1.6e308"};
    char path[64];
    struct view_histogram histogram;
    struct view_heat heat;
    CLEANUP(buffer_done) struct buffer text = {0};
    view_world_make(path);
    struct journal *journal = view_world_open(path, 4);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 4}");
    for (int rank = 0; rank < 4; rank++) {
        char metrics[64];
        (void)snprintf(metrics, sizeof metrics, "{\"v\":%s}", values[rank]);
        view_world_report(journal, NS_PER_S, 1, rank, 1, metrics);
    }
    view_world_close(journal);
    struct view_query query = view_query_new("v");
    assert_int_equal(view_histogram_read(path, &query, 4, &histogram, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(histogram.all[i], i == 0 || i == 2 ? 1 : i == 3 ? 2 : 0);
    view_histogram_encode(&histogram, &text);
    view_histogram_done(&histogram);
    json_t *reply = parse(&text);
    const json_t *edges = json_object_get(reply, "edges");
    assert_int_equal(json_array_size(edges), 5);
    assert_near(-0.85, json_number_value(json_array_get(edges, 1)) / 1e308);
    json_decref(reply);
    assert_int_equal(view_heat_read(path, &query, 0, &heat, NULL), 0);
    assert_int_equal(heat.rows, 4);
    assert_int_equal(heat.cells[0], 1);
    assert_int_equal(heat.cells[heat.columns], 128);
    assert_int_equal(heat.cells[2 * heat.columns], 255);
    view_heat_done(&heat);
    view_world_remove(path);
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
        cmocka_unit_test(test_names_that_come_twice),
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test(test_heat),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_histogram_of_the_near),
        cmocka_unit_test(test_values_at_the_ends_of_a_double),
        cmocka_unit_test(test_encoded_numbers),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_metrics_together),
        cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
