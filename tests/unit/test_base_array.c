/* Arrays that grow at their end; places in sorted ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/array.h"

static void items_keep_their_values(void **state) {
    (void)state;
    int *items = NULL;
    for (int n = 0; n < 5000; n++) {
        assert_int_equal(ARRAY_GROW(items, (size_t)n), 0);
        items[n] = n;
    }
    for (int n = 0; n < 5000; n++)
        assert_int_equal(items[n], n);
    free(items);
}

static void an_array_that_is_full_grows_too(void **state) {
    (void)state;
    for (size_t n = 1; n < 70; n++) {
        uint64_t *items = calloc(n, sizeof *items);
        assert_non_null(items);
        items[n - 1] = 7;
        assert_int_equal(ARRAY_GROW(items, n), 0);
        items[n] = 8;
        assert_int_equal(items[n - 1], 7);
        free(items);
    }
}

static void what_is_too_large_leaves_the_array(void **state) {
    (void)state;
    int *items = malloc(sizeof *items), *before = items;
    assert_int_equal(array_grow(&items, SIZE_MAX / 4, sizeof *items), -ENOMEM);
    assert_ptr_equal(items, before);
    assert_int_equal(array_grow(&items, 1, SIZE_MAX), -ENOMEM);
    assert_ptr_equal(items, before);
    free(items);
}

static void a_resized_array_has_that_many(void **state) {
    (void)state;
    int *items = NULL;
    for (size_t n = 1; n < 100; n += 7) {
        assert_int_equal(ARRAY_RESIZE(items, n), 0);
        items[n - 1] = (int)n;
    }
    for (size_t n = 1; n < 100; n += 7)
        assert_int_equal(items[n - 1], n);
    int *before = items;
    assert_int_equal(array_resize(&items, SIZE_MAX / 2, sizeof *items), -ENOMEM);
    assert_ptr_equal(items, before);
    assert_int_equal(ARRAY_RESIZE(items, 1), 0);
    assert_int_equal(items[0], 1);
    assert_int_equal(ARRAY_RESIZE(items, 0), 0);
    assert_non_null(items);
    free(items);
}

static void places_that_are_reached_are_zero(void **state) {
    (void)state;
    uint64_t *items = NULL;
    size_t n = 0;
    for (size_t place = 0; place < 3000; place += 1 + place / 3) {
        size_t had = n;
        assert_int_equal(ARRAY_REACH(items, n, place + 1), 0);
        assert_true(place < n && (n == had || n >= 2 * had));
        assert_int_equal(items[place], 0);
        for (size_t i = had; i < n; i++)
            assert_int_equal(items[i], 0);
        items[place] = place + 1;
    }
    uint64_t *before = items;
    size_t had = n;
    assert_int_equal(ARRAY_REACH(items, n, 1), 0);
    assert_int_equal(array_reach(&items, &n, SIZE_MAX / 2, sizeof *items), -ENOMEM);
    assert_ptr_equal(items, before);
    assert_int_equal(n, had);
    free(items);
}

static bool is_less(const void *item, const void *key) {
    return *(const int *)item < *(const int *)key;
}

static void a_key_has_a_place(void **state) {
    (void)state;
    const int items[] = {-3, 0, 0, 0, 7, 9, 9};
    const size_t n = sizeof items / sizeof items[0];
    for (size_t length = 0; length <= n; length++)
        for (int key = -5; key < 12; key++) {
            size_t place = array_place(items, length, sizeof items[0], is_less, &key);
            for (size_t i = 0; i < length; i++)
                assert_int_equal(items[i] < key, i < place);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_keep_their_values),
        cmocka_unit_test(an_array_that_is_full_grows_too),
        cmocka_unit_test(what_is_too_large_leaves_the_array),
        cmocka_unit_test(a_resized_array_has_that_many),
        cmocka_unit_test(places_that_are_reached_are_zero),
        cmocka_unit_test(a_key_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
