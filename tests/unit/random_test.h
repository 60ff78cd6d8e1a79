/* Tests that draw what they try: the dice, and the seed that a failed one tells. */
#ifndef UNIT_RANDOM_TEST_H
#define UNIT_RANDOM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dice.h"

static struct dice dice;
static uint64_t seed_in_test; /* 0: none is */

static inline uint32_t below(uint32_t n) {
    return (uint32_t)dice_below(&dice, n);
}

/* As the teardown of the test. */
static inline int tell_seed(void **state) {
    (void)state;
    if (seed_in_test) print_error("failed with seed %llu\n", (unsigned long long)seed_in_test);
    return 0;
}

#endif
