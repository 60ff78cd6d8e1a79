/* Which checkpoints stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "run/settings.h"

enum { MOST = 16 };

/* "10110": a letter for each checkpoint, 1 for those that stay. */
static const char *kept(const struct checkpoint_policy *policy, size_t n, const double *scores) {
    static char text[MOST + 1];
    bool surplus[MOST];
    size_t gone = retention_choose(policy, scores, n, surplus), counted = 0;
    for (size_t i = 0; i < n; i++) {
        text[i] = surplus[i] ? '0' : '1';
        counted += surplus[i];
    }
    text[n] = '\0';
    assert_int_equal(gone, counted);
    return text;
}

static void the_best_one_is_the_last_to_go(void **state) {
    (void)state;
    double nan = (double)NAN;
    struct checkpoint_policy by_time = {0}, most = {.score_attribute = "x"};
    struct checkpoint_policy least = {.score_attribute = "x", .score_order = SCORE_MIN};
    assert_int_equal(retention_best(&by_time, (double[]){3, 2, 1}, 3), 2);
    assert_int_equal(retention_best(&most, (double[]){1, 3, 2}, 3), 1);
    assert_int_equal(retention_best(&least, (double[]){nan, 1, 3, 1}, 4), 3);
    assert_int_equal(retention_best(&most, NULL, 0), 0);
}

static void a_score_is_a_number_among_the_metrics(void **state) {
    (void)state;
    const char *metrics =
        "{\"loss\": 0.5, \"a\": {\"b\": {\"c\": 3}}, \"a/d\": 4, \"name\": \"x\", "
        "\"best\": \"Infinity\", \"worst\": \"-Infinity\", \"none\": \"NaN\", \"good\": true}";
    assert_true(retention_score(metrics, "loss") == 0.5 && retention_score(metrics, "a/b/c") == 3);
    assert_true(retention_score(metrics, "a/d") == 4 && retention_score(metrics, "good") == 1);
    assert_true(retention_score(metrics, "best") > 0 && isinf(retention_score(metrics, "best")));
    assert_true(retention_score(metrics, "worst") < 0 && isinf(retention_score(metrics, "worst")));
    static const char *const without[] = {"none", "name", "a", "a/b", "a/b/c/d", "missing", "", NULL};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_true(isnan(retention_score(metrics, without[i])));
    assert_true(isnan(retention_score(NULL, "loss")) && isnan(retention_score("[", "loss")));
    const char *large = "{\"loss\": 0.5, \"seed\": 18446744073709551615, \"none\": 1e999}";
    assert_true(retention_score(large, "loss") == 0.5 && retention_score(large, "seed") == 0x1p64);
    assert_true(isinf(retention_score(large, "none")));
    assert_true(retention_is_awaited("{\"$validation\": {}, \"seed\": 18446744073709551615}"));
    assert_true(retention_is_awaited("{\"$validation\": {\"fn_kwargs\": {}}}"));
    assert_false(retention_is_awaited("{\"$validation\": \"VALIDATED\"}"));
    assert_false(retention_is_awaited("{\"text\": \"$validation\", \"a\": {\"$validation\": {}}}"));
    assert_false(retention_is_awaited("{\"$validation\": {") || retention_is_awaited(NULL));
}

static void without_a_score_the_newest_stay(void **state) {
    (void)state;
    static const double none[4] = {0};
    assert_string_equal(kept(&(struct checkpoint_policy){.num_to_keep = 0}, 4, none), "1111");
    assert_string_equal(kept(&(struct checkpoint_policy){.num_to_keep = 1}, 4, none), "0001");
    assert_string_equal(kept(&(struct checkpoint_policy){.num_to_keep = 3}, 4, none), "0111");
    assert_string_equal(kept(&(struct checkpoint_policy){.num_to_keep = 9}, 4, none), "1111");
    assert_string_equal(kept(&(struct checkpoint_policy){.num_to_keep = 1}, 0, none), "");
}

static void the_best_stay_and_the_latest(void **state) {
    (void)state;
    struct checkpoint_policy most = {.num_to_keep = 1, .score_attribute = "x"};
    assert_string_equal(kept(&most, 2, (double[]){100, 200}), "01");
    assert_string_equal(kept(&most, 2, (double[]){200, 100}), "11"); /* the best one and the latest */
    assert_string_equal(kept(&most, 3, (double[]){200, 100, 50}), "101");
    assert_string_equal(kept(&most, 3, (double[]){(double)NAN, 100, 200}), "001");
    most.num_to_keep = 2;
    assert_string_equal(kept(&most, 4, (double[]){3, 1, 2, 0}), "1011");
    struct checkpoint_policy least = {.num_to_keep = 2, .score_attribute = "x", .score_order = SCORE_MIN};
    assert_string_equal(kept(&least, 4, (double[]){3, 1, 2, 9}), "0111");
}

static void what_has_no_score_is_worst_and_of_equals_the_newer_is_better(void **state) {
    (void)state;
    double nan = (double)NAN, infinite = (double)INFINITY;
    for (int min = 0; min < 2; min++) {
        struct checkpoint_policy policy = {
            .num_to_keep = 2, .score_attribute = "x", .score_order = min != 0 ? SCORE_MIN : SCORE_MAX};
        assert_string_equal(kept(&policy, 4, (double[]){nan, 5, nan, 5}), "0101");
        assert_string_equal(kept(&policy, 4, (double[]){nan, nan, nan, nan}), "0011");
        assert_string_equal(kept(&policy, 4, (double[]){7, 7, 7, 7}), "0011");
        assert_string_equal(kept(&policy, 3, (double[]){-infinite, nan, infinite}), "101");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_one_is_the_last_to_go),
        cmocka_unit_test(a_score_is_a_number_among_the_metrics),
        cmocka_unit_test(without_a_score_the_newest_stay),
        cmocka_unit_test(the_best_stay_and_the_latest),
        cmocka_unit_test(what_has_no_score_is_worst_and_of_equals_the_newer_is_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
