/* Random numbers that can be had again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dice.h"

static void a_seed_gives_the_same_row(void **state) {
    (void)state;
    struct dice a, b, c;
    dice_seed(&a, 7);
    dice_seed(&b, 7);
    dice_seed(&c, 8);
    bool differs = false;
    for (int i = 0; i < 100; i++) {
        uint64_t number = dice_next(&a);
        assert_true(number == dice_next(&b));
        differs |= number != dice_next(&c);
    }
    assert_true(differs);
}

/* xoshiro256** with the state 1, 2, 3, 4: the first numbers as its definition gives them by hand. */
static void the_row_is_that_of_the_definition(void **state) {
    (void)state;
    struct dice dice = {{1, 2, 3, 4}};
    assert_true(dice_next(&dice) == 11520);
    assert_true(dice_next(&dice) == 0);
    assert_true(dice_next(&dice) == 1509978240);
}

static void every_number_below_the_limit_comes_as_often(void **state) {
    (void)state;
    struct dice dice;
    unsigned counts[6] = {0};
    dice_seed(&dice, 1);
    assert_true(dice_below(&dice, 1) == 0);
    for (int i = 0; i < 60000; i++)
        counts[dice_below(&dice, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_in_range(counts[i], 9600, 10400);
}

static void chances_hold(void **state) {
    (void)state;
    struct dice dice;
    int hits = 0;
    dice_seed(&dice, 2);
    for (int i = 0; i < 10000; i++) {
        assert_false(dice_chance(&dice, 0));
        assert_true(dice_chance(&dice, 1));
        hits += dice_chance(&dice, 0.3);
    }
    assert_in_range(hits, 2800, 3200);
}

static void times_between_failures_are_memoryless(void **state) {
    (void)state;
    struct dice dice;
    double sum = 0;
    int longer = 0;
    dice_seed(&dice, 3);
    for (int i = 0; i < 100000; i++) {
        nanoseconds time = dice_exponential(&dice, 1e9);
        assert_true(time >= 0);
        sum += (double)time;
        longer += time > NS_PER_S;
    }
    assert_true(fabs(sum / 1e14 - 1) < 0.02);
    assert_true(fabs(longer / 1e5 - exp(-1)) < 0.01);
    assert_true(dice_exponential(&dice, 1e30) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_gives_the_same_row),
        cmocka_unit_test(the_row_is_that_of_the_definition),
        cmocka_unit_test(every_number_below_the_limit_comes_as_often),
        cmocka_unit_test(chances_hold),
        cmocka_unit_test(times_between_failures_are_memoryless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
