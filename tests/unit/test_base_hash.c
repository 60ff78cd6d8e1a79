/* Maps from strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "base/hash.h"

static void empty(void **state) {
    (void)state;
    hash_destroy(NULL);
    struct hash *hash = hash_create();
    size_t at = 0;
    uintptr_t value = 1;
    assert_int_equal(hash_size(hash), 0);
    assert_null(hash_get(hash, "a"));
    assert_int_equal(hash_remove(hash, "a"), 0);
    assert_null(hash_next(hash, &at, &value));
    hash_destroy(hash);
}

static void sets_replaces_removes(void **state) {
    (void)state;
    struct hash *hash = hash_create();
    char key[] = "key";
    assert_int_equal(hash_set(hash, key, 1), 1);
    key[0] = 'x'; /* the map has its own copy */
    assert_int_equal(*hash_get(hash, "key"), 1);
    assert_int_equal(hash_set(hash, "key", 2), 0);
    *hash_get(hash, "key") += 1;
    assert_int_equal(*hash_get(hash, "key"), 3);
    assert_int_equal(hash_set(hash, "", 9), 1);
    assert_int_equal(hash_size(hash), 2);
    assert_int_equal(hash_remove(hash, "key"), 1);
    assert_int_equal(hash_remove(hash, "key"), 0);
    assert_null(hash_get(hash, "key"));
    assert_int_equal(*hash_get(hash, ""), 9);
    assert_int_equal(hash_size(hash), 1);
    hash_destroy(hash);
}

static void expect_order(const struct hash *hash, const char *expected) {
    char keys[64] = "";
    size_t at = 0;
    for (const char *key; (key = hash_next(hash, &at, NULL)) != NULL;)
        (void)strcat(keys, key);
    assert_string_equal(keys, expected);
}

static void keeps_the_order_of_insertion(void **state) {
    (void)state;
    struct hash *hash = hash_create();
    static const char *const keys[] = {"d", "b", "a", "c", "e"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        (void)hash_set(hash, keys[i], i);
    (void)hash_set(hash, "b", 7);
    expect_order(hash, "dbace");
    (void)hash_remove(hash, "a");
    expect_order(hash, "dbce");
    (void)hash_set(hash, "a", 8);
    expect_order(hash, "dbcea");
    static const char *const more[] = {"f", "g", "h", "i", "j", "k"};
    for (size_t i = 0; i < ARRAY_SIZE(more); i++)
        (void)hash_set(hash, more[i], i);
    expect_order(hash, "dbceafghijk");
    hash_destroy(hash);
}

static void a_walk_may_remove_what_it_visits(void **state) {
    (void)state;
    struct hash *hash = hash_create();
    char key[16];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        (void)hash_set(hash, key, (uintptr_t)i);
    }
    size_t at = 0, seen = 0;
    uintptr_t value;
    for (const char *found; (found = hash_next(hash, &at, &value)) != NULL; seen++)
        if (value % 2 == 0) assert_int_equal(hash_remove(hash, found), 1);
    assert_int_equal(seen, 100);
    assert_int_equal(hash_size(hash), 50);
    hash_destroy(hash);
}

static void agrees_with_an_array(void **state) {
    (void)state;
    enum { KEYS = 500, STEPS = 100000 };
    static int64_t expected[KEYS];
    memset(expected, -1, sizeof expected);
    struct hash *hash = hash_create();
    struct dice dice;
    dice_seed(&dice, 12345);
    size_t size = 0;
    for (int step = 0; step < STEPS; step++) {
        size_t which = dice_below(&dice, KEYS);
        char key[16];
        (void)snprintf(key, sizeof key, "k%zu", which);
        if (dice_below(&dice, 2)) {
            assert_int_equal(hash_set(hash, key, (uintptr_t)step), expected[which] < 0);
            size += expected[which] < 0;
            expected[which] = step;
        } else {
            assert_int_equal(hash_remove(hash, key), expected[which] >= 0);
            size -= expected[which] >= 0;
            expected[which] = -1;
        }
        assert_int_equal(hash_size(hash), size);
        uintptr_t *value = hash_get(hash, key);
        assert_int_equal(value == NULL ? -1 : (int64_t)*value, expected[which]);
    }
    hash_destroy(hash);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty),
        cmocka_unit_test(sets_replaces_removes),
        cmocka_unit_test(keeps_the_order_of_insertion),
        cmocka_unit_test(a_walk_may_remove_what_it_visits),
        cmocka_unit_test(agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
