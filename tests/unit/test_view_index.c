/* The index of a long run: it has all reports, however they look, and grows with them. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "view/index.h"
#include "view/series.h"
#include "view_world.h"

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
                   "1.db.part-1 4.db && touch 2.db.part-2 && touch -d '31 days ago' 3.db",
                   cache);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_index_keep(index, NULL), 0);
    (void)snprintf(command, sizeof command,
                   "cd %s/trainyard/index && [ ! -e 1.db.part-1 ] && [ -e 2.db.part-2 ] && [ ! -e 3.db ] && "
                   "touch -d '29 days ago' ????????????????.db && rm 4.db",
                   cache);
    assert_int_equal(system(command), 0);
    view_index_close(index);

    assert_int_equal(view_index_open(path, true, &index, NULL), 0);
    grow(index);
    assert_all(path, index, "step");
    (void)snprintf(command, sizeof command, "test -n \"$(find %s -name '????????????????.db' -mmin -60)\"",
                   cache);
    assert_int_equal(system(command), 0); /* it was used */

    /* Of a run that was removed nothing stays. */
    (void)snprintf(command, sizeof command, "rm %s/run.db", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_index_grow(index, NULL), -ENOENT);
    assert_near(0, view_index_scanned(index));
    view_index_close(index);
    (void)snprintf(command, sizeof command, "test -z \"$(find %s -name '*.db')\" && rm -r %s/trainyard", cache,
                   cache);
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

/* Twenty metrics of 60,000 numbers are more than the index has room for; their 200 epochs are not, and keep a
 * bucket each. */
static void test_a_short_row_beside_long_ones(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1}");
    for (int n = 1; n <= 60000; n++) {
        char metrics[400];
        int size = snprintf(metrics, sizeof metrics, "{\"epoch\":%d", (n - 1) / 300);
        for (int i = 0; i < 20; i++)
            size += snprintf(metrics + size, sizeof metrics - (size_t)size, ",\"m%d\":%d", i, i + n % 7);
        (void)snprintf(metrics + size, sizeof metrics - (size_t)size, "}");
        view_world_report(journal, n * NS_PER_S, 1, 0, (uint64_t)n, metrics);
    }
    view_world_close(journal);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    for (int i = 0; i < 20; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "m%d", i);
        struct view_query query = view_query_new(name);
        query.x = "epoch";
        query.index = index;
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_true(series.exact);
        assert_int_equal(series.lines[0].n, 200);
        for (size_t at = 0; at < 200; at++)
            assert_int_equal(series.lines[0].buckets[at].n, 300);
    }
    view_index_close(index);
    view_world_remove(path);
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

/* An index has of a name what the reports themselves say of it. */
static void test_an_index_of_names_that_come_twice(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1}");
    for (int n = 1; n <= 2 * VIEW_WHOLE; n++)
        view_world_report(journal, n * NS_PER_MS, 1, 0, (uint64_t)n,
                          n % 2 == 0 ? "{\"a\":1,\"t\":3,\"a\":2}" : "{\"a\":1,\"t\":3,\"a\":2,\"t\":\"x\"}");
    view_world_event(journal, 9000 * NS_PER_S, EVENT_RUN_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_close(journal);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    const char *const names[] = {"a", "t"};
    for (size_t i = 0; i < 2; i++) {
        struct view_query query = view_query_new(names[i]);
        query.index = index;
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_true(series.exact);
        assert_int_equal(sum_up(&series, 0).n, i == 0 ? 2 * VIEW_WHOLE : VIEW_WHOLE);
        assert_near(i == 0 ? 2 : 3, series.lines[0].buckets[0].max);
    }
    view_index_close(index);
    view_world_remove(path);
}

/* 3,000 numbers of each rank behind those of write_large. */
static void report_on(const char *path, int times) {
    struct journal *journal = NULL;
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    for (int n = 10001 + 3000 * times; n <= 13000 + 3000 * times; n++)
        for (int rank = 0; rank < 8; rank++) {
            char metrics[64];
            (void)snprintf(metrics, sizeof metrics, "{\"loss\":0.5,\"step\":%d,\"epoch\":%d}", 2 * n, n / 100);
            view_world_report(journal, n * 10 * NS_PER_MS + rank, 1, rank, (uint64_t)n, metrics);
        }
    view_world_close(journal);
}

/* However long a run goes on: what came since is read by whoever asks, and is in the index for the next. */
static void test_an_index_goes_on_with_those_who_ask(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    write_large(path, false);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    struct view_query query = view_query_new("step");
    query.index = index;
    for (int times = 0; times < 3; times++) {
        report_on(path, times);
        CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
        assert_true(series.exact);
        assert_false(series.behind);
        assert_int_equal(series.reports, 80000 + 24000 * (times + 1));
        assert_int_equal(sum_up(&series, 0).n, series.reports);
        assert_near(1, view_index_scanned(index));
    }
    view_index_close(index);
    view_world_remove(path);
}

/* What a new attempt took back counts no more, though the index was made before: it is not asked until it
 * knows. */
static void test_an_index_of_before_a_resume_is_not_asked(void **state) {
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
    view_world_close(journal);
    struct view_query query = view_query_new("step");
    query.index = index;
    CLEANUP(view_series_done) struct view_series sample = read_series(path, &query);
    assert_false(sample.exact);
    assert_true(sample.behind);
    grow(index);
    CLEANUP(view_series_done) struct view_series series = read_series(path, &query);
    assert_true(series.exact);
    assert_int_equal(sum_up(&series, 0).n, 72000);
    view_index_close(index);
    view_world_remove(path);
}

/* A run that reports more from step to step than one of these reads is left alone until it is slower. */
static void test_an_index_that_is_outrun(void **state) {
    (void)state;
    char path[64];
    struct view_index *index = NULL;
    view_world_make(path);
    write_large(path, false);
    assert_int_equal(view_index_open(path, false, &index, NULL), 0);
    grow(index);
    for (int times = 0; times < 2; times++) {
        report_on(path, times);
        assert_int_equal(view_index_grow(index, NULL), 1);
        assert_true(view_index_follows(index));
        assert_true(view_index_outrun(index));
        assert_near(80000.0 / (80000 + 24000 * (times + 1)), view_index_scanned(index));
    }
    assert_int_equal(view_index_grow(index, NULL), 1);
    assert_false(view_index_outrun(index));
    grow(index);
    assert_near(1, view_index_scanned(index));
    assert_false(view_index_follows(index));
    view_index_close(index);
    view_world_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_marks_of_an_index),
        cmocka_unit_test(test_zooms_of_an_index),
        cmocka_unit_test(test_index_of_unlike_reports),
        cmocka_unit_test(test_a_short_row_beside_long_ones),
        cmocka_unit_test(test_index_of_a_run_that_is_resumed),
        cmocka_unit_test(test_the_step_of_a_long_run),
        cmocka_unit_test(test_reports_that_are_missing),
        cmocka_unit_test(test_an_index_of_names_that_come_twice),
        cmocka_unit_test(test_an_index_goes_on_with_those_who_ask),
        cmocka_unit_test(test_an_index_of_before_a_resume_is_not_asked),
        cmocka_unit_test(test_an_index_that_is_outrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
