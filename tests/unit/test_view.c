/* What a journal is turned into: buckets keep every extreme at every zoom, what a later attempt took back does not
 * count, and made metrics are right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "view/series.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_buckets),  cmocka_unit_test(test_zoom_is_exact),
        cmocka_unit_test(test_made_metrics), cmocka_unit_test(test_buckets_that_do_not_divide),
        cmocka_unit_test(test_what_counts),  cmocka_unit_test(test_lines_of_ranks),
        cmocka_unit_test(test_json),         cmocka_unit_test(test_wrong_parameters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
