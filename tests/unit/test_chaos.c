/* The schedule of faults that --chaos performs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run/chaos.h"

static const struct chaos_policy policy = {.seed = 5, .every = 10 * NS_PER_S};

static void a_seed_gives_the_same_schedule(void **state) {
    (void)state;
    struct chaos a, b, other;
    struct chaos_policy another = {.seed = 6, .every = policy.every};
    chaos_begin(&a, &policy, 4);
    chaos_begin(&b, &policy, 4);
    chaos_begin(&other, &another, 4);
    int differ = 0;
    for (int i = 0; i < 50; i++) {
        struct chaos_fault x = chaos_next(&a), y = chaos_next(&b), z = chaos_next(&other);
        assert_true(x.kind == y.kind && x.rank == y.rank && x.after == y.after && x.length == y.length);
        differ += x.after != z.after;
    }
    assert_int_equal(differ, 50);
}

static void every_rank_and_every_kind_has_its_turn(void **state) {
    (void)state;
    struct chaos chaos;
    unsigned ranks[3] = {0}, kinds[CHAOS_KIND_COUNT] = {0};
    nanoseconds sum = 0;
    chaos_begin(&chaos, &policy, 3);
    for (int i = 0; i < 3000; i++) {
        struct chaos_fault fault = chaos_next(&chaos);
        assert_true(fault.after >= 0);
        assert_in_range(fault.length, policy.every / 10, policy.every);
        assert_true(fault.rank < 3 && fault.kind < CHAOS_KIND_COUNT);
        ranks[fault.rank]++;
        kinds[fault.kind]++;
        sum += fault.after;
    }
    for (int i = 0; i < 3; i++) {
        assert_in_range(ranks[i], 900, 1100);
        assert_in_range(kinds[i], 900, 1100);
    }
    assert_in_range(sum / 3000, 9 * NS_PER_S, 11 * NS_PER_S);
}

static void each_kind_has_words(void **state) {
    (void)state;
    for (int kind = 0; kind < CHAOS_KIND_COUNT; kind++)
        assert_int_equal(strncmp(chaos_kind_text((enum chaos_kind)kind), "is ", 3), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_gives_the_same_schedule),
        cmocka_unit_test(every_rank_and_every_kind_has_its_turn),
        cmocka_unit_test(each_kind_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
