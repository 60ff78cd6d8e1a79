/* What `trainyard simulate` prints: goodput beside arithmetic, the sum of the parts, and the same answer for
 * the same seed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sim.h"

#define MINUTE (60 * NS_PER_S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static const struct sim_training usual = {.n_nodes = 16,
                                          .workers_per_node = 2,
                                          .mtbf = 16 * DAY,
                                          .interval = HOUR,
                                          .cost = MINUTE,
                                          .restart = 5 * MINUTE,
                                          .length = 1500 * DAY,
                                          .seed = 1};

static struct sim_training_result run(const struct sim_training *training) {
    struct sim_training_result result;
    ty_error err = {0};
    if (sim_training_run(training, &result, &err) < 0) fail_msg("%s", err.message);
    return result;
}

static double goodput(const struct sim_training *training) {
    struct sim_training_result result = run(training);
    return sim_training_goodput(&result);
}

static void the_parts_are_the_whole(void **state) {
    (void)state;
    struct sim_training_result result = run(&usual);
    assert_true(result.useful + result.lost + result.checkpointing + result.restarting == usual.length);
    assert_true(result.failures > 1300 && result.failures < 1700);
    assert_int_equal(result.attempts, result.failures + 1);
    assert_true(result.checkpointing == (nanoseconds)result.checkpoints * usual.cost);
    assert_true(result.restarting >= (nanoseconds)(result.failures - 30) * usual.restart * 9 / 10);
}

static void a_seed_gives_the_same_answer(void **state) {
    (void)state;
    struct sim_training_result a = run(&usual), b = run(&usual);
    assert_memory_equal(&a, &b, sizeof a);
    struct sim_training other = usual;
    other.seed = 2;
    struct sim_training_result c = run(&other);
    assert_memory_not_equal(&a, &c, sizeof a);
}

/* Where failures are rare beside restarts and intervals; 1,500 of them averaged. */
static void goodput_is_what_arithmetic_expects(void **state) {
    (void)state;
    static const struct {
        uint32_t n_nodes;
        nanoseconds mtbf, interval, cost, restart;
    } cases[] = {{16, 16 * DAY, HOUR, MINUTE, 5 * MINUTE},
                 {16, 16 * DAY, 30 * MINUTE, 20 * NS_PER_S, 2 * MINUTE},
                 {16, 16 * DAY, 2 * HOUR, 0, 0},
                 {16, 16 * DAY, HOUR, 5 * MINUTE, 10 * MINUTE},
                 {16, 16 * DAY, 10 * MINUTE, 10 * NS_PER_S, HOUR / 2},
                 {1, 2 * DAY, 3 * HOUR, 10 * MINUTE, HOUR},
                 {2, 30 * DAY, 6 * HOUR, 30 * MINUTE, 2 * HOUR},
                 {8, 2 * DAY, 20 * MINUTE, 30 * NS_PER_S, 3 * MINUTE},
                 {64, 30 * DAY, 20 * MINUTE, 5 * NS_PER_S, 10 * MINUTE},
                 {300, 1000 * DAY, 90 * MINUTE, 2 * MINUTE, MINUTE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_training training = {.n_nodes = cases[i].n_nodes,
                                        .workers_per_node = 1,
                                        .mtbf = cases[i].mtbf,
                                        .interval = cases[i].interval,
                                        .cost = cases[i].cost,
                                        .restart = cases[i].restart,
                                        .length = cases[i].mtbf / cases[i].n_nodes * 1500,
                                        .seed = 1};
        double expected = sim_training_expected(&training), found = goodput(&training);
        if (fabs(found / expected - 1) > 0.01) fail_msg("case %zu: %.5f, expected %.5f", i, found, expected);
    }
}

static void only_the_rate_of_failures_counts(void **state) {
    (void)state;
    struct sim_training many = usual;
    many.n_nodes = 200;
    many.mtbf = 200 * DAY;
    many.length = 300 * DAY;
    assert_true(fabs(goodput(&many) / sim_training_expected(&many) - 1) < 0.01);
}

static void nothing_fails_nothing_is_lost(void **state) {
    (void)state;
    struct sim_training calm = usual;
    calm.mtbf = 36500 * DAY;
    calm.length = DAY;
    struct sim_training_result result = run(&calm);
    assert_int_equal(result.attempts, 1);
    assert_true(result.lost == 0 && result.restarting == 0);
    assert_int_equal(result.checkpoints, 23); /* of 61 minutes each */
}

/* Every minute a failure, and no checkpoint is ever reached: the pauses of a crash loop are part of the
 * answer. */
static void a_training_that_gets_nowhere_ends_as_well(void **state) {
    (void)state;
    struct sim_training bad = usual;
    bad.mtbf = 16 * MINUTE;
    bad.length = DAY;
    struct sim_training_result result = run(&bad);
    assert_true(result.checkpoints == 0 && result.useful < HOUR);
    assert_true(result.restarting > 23 * HOUR);
    assert_true(sim_training_expected(&bad) < 0);
}

/* From a third to three times of what is said to be best, in steps of 30 %: the same failures for all. Cheap
 * checkpoints, costly ones, failures that come as fast as the training restarts. */
static void the_best_interval_is_the_top_of_the_curve(void **state) {
    (void)state;
    static const struct {
        nanoseconds apart, cost, restart;
    } cases[] = {{DAY, MINUTE, 5 * MINUTE},
                 {DAY, HOUR, 10 * MINUTE},
                 {HOUR, 5 * MINUTE, 5 * MINUTE},
                 {HOUR, MINUTE, 2 * HOUR},
                 {HOUR, HOUR, 5 * MINUTE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_training training = {.n_nodes = 4,
                                        .workers_per_node = 1,
                                        .mtbf = 4 * cases[i].apart,
                                        .cost = cases[i].cost,
                                        .restart = cases[i].restart,
                                        .length = 1500 * cases[i].apart,
                                        .seed = 1};
        double best = (double)sim_training_best_interval(&training), top = 0, at = 0;
        training.interval = (nanoseconds)best;
        double found = goodput(&training);
        for (double factor = 1.0 / 3; factor < 3; factor *= 1.3) {
            training.interval = (nanoseconds)(best * factor);
            double value = goodput(&training);
            if (value > top) at = factor;
            if (value > top) top = value;
        }
        if (at < 0.6 || at > 1.7) fail_msg("case %zu: the top is at %.2f of %.0f s", i, at, best / 1e9);
        if (found < top * 0.99) fail_msg("case %zu: %.5f at the best, %.5f at %.2f of it", i, found, top, at);
    }
}

/* sqrt(2 * 1 min * 1 day) is 53.7 min; without a price the shortest. */
static void the_best_interval_is_that_of_the_books(void **state) {
    (void)state;
    struct sim_training training = usual;
    nanoseconds best = sim_training_best_interval(&training);
    assert_true(best > 52 * MINUTE && best < 54 * MINUTE);
    training.restart = 100 * DAY;
    assert_true(sim_training_best_interval(&training) == best);
    training.cost = 0;
    assert_true(sim_training_best_interval(&training) == NS_PER_S);
    training.cost = 10000 * DAY; /* it is never written: as long as nothing fails */
    assert_true(sim_training_best_interval(&training) > DAY - HOUR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_the_whole),
        cmocka_unit_test(a_seed_gives_the_same_answer),
        cmocka_unit_test(goodput_is_what_arithmetic_expects),
        cmocka_unit_test(only_the_rate_of_failures_counts),
        cmocka_unit_test(nothing_fails_nothing_is_lost),
        cmocka_unit_test(a_training_that_gets_nowhere_ends_as_well),
        cmocka_unit_test(the_best_interval_is_the_top_of_the_curve),
        cmocka_unit_test(the_best_interval_is_that_of_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
