/* Blocks that are given back come again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/block.h"

enum { LARGE = 1 << 20 };

static char *take_filled(void) {
    char *block = block_take(LARGE);
    assert_non_null(block);
    memset(block, 7, LARGE);
    return block;
}

static void one_that_was_given_back_comes_again(void **state) {
    (void)state;
    char *first = take_filled(), *second = take_filled();
    block_give(first);
    char *small = block_take(10), *larger = block_take(2 * LARGE), *again = block_take(LARGE);
    assert_true(small != first && larger != first);
    assert_ptr_equal(again, first);
    assert_int_equal(again[LARGE - 1], 7);
    free(second); /* they are malloc's */
    block_give(small);
    free(larger);
    block_give(again);
    block_give(NULL);
    block_drop();
}

static void a_few_are_kept(void **state) {
    (void)state;
    enum { MANY = 20 };
    char *blocks[MANY];
    int same = 0;
    for (int i = 0; i < MANY; i++)
        blocks[i] = block_take(LARGE);
    for (int i = 0; i < MANY; i++)
        block_give(blocks[i]);
    for (int i = 0; i < MANY; i++) {
        char *block = block_take(LARGE);
        for (int j = 0; j < 4; j++)
            same += i < 4 && block == blocks[j];
        blocks[i] = block;
    }
    assert_int_equal(same, 4);
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_was_given_back_comes_again),
        cmocka_unit_test(a_few_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
