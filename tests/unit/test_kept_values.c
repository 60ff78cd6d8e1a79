/* What an agent keeps of the store for another controller has a limit, beyond which it keeps nothing; and what
 * it keeps of the controller that is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/worker_channel.h"
#include "base/cleanup.h"
#include "wire/frame.h"

static struct kept_values values;

static int tear_down(void **state) {
    (void)state;
    kept_values_done(&values);
    return 0;
}

static void set(const char *key, const char *value) {
    kept_values_set(&values, key, value, strlen(value));
}

static void add(const char *key, const char *delta) {
    kept_values_add(&values, key, delta, strlen(delta));
}

static void expect_lost(void) {
    assert_true(values.lost);
    assert_int_equal(values.n, 0);
    assert_int_equal(values.bytes, 0);
    assert_null(values.items);
    assert_null(values.keys);
}

static void the_last_value_and_the_sum_are_kept(void **state) {
    (void)state;
    set("a", "first");
    add("sum", "40");
    set("a", "second");
    add("sum", "2");
    set("empty", "");
    assert_false(values.lost);
    assert_int_equal(values.n, 3);
    assert_string_equal(values.items[0].key, "a");
    assert_int_equal(values.items[0].size, 6);
    assert_memory_equal(values.items[0].value, "second", 6);
    assert_null(values.items[1].value);
    assert_int_equal(values.items[1].sum, 42);
    assert_int_equal(values.items[2].size, 0);
    assert_non_null(values.items[2].value);
}

/* Known to the store alone is what came of it. */
static void what_cannot_be_told_loses_all(void **state) {
    (void)state;
    static const char *const bad[] = {"x", "1e3", "99999999999999999999999999999999999999",
                                      "9223372036854775807"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        set("other", "value");
        add("sum", "1");
        add("sum", bad[i]);
        expect_lost();
        kept_values_done(&values);
    }
    set("a", "1");
    add("a", "1");
    expect_lost();
}

static void a_value_too_large_loses_all(void **state) {
    (void)state;
    static char large[KEPT_VALUES_MAX + 1];
    memset(large, 'x', sizeof large - 1);
    set("small", "value");
    set("large", large);
    expect_lost();
    set("small", "value"); /* and nothing is kept from then on */
    add("sum", "1");
    expect_lost();
}

/* A value in the place of another one counts alone. */
static void values_that_change_for_ever_are_kept(void **state) {
    (void)state;
    static char half[KEPT_VALUES_MAX / 2 + 1];
    memset(half, 'x', sizeof half - 1);
    for (int i = 0; i < 100; i++)
        set("key", half);
    assert_false(values.lost);
    assert_int_equal(values.n, 1);
}

static size_t size_in_a_message(void) {
    size_t size = 0;
    for (size_t i = 0; i < values.n; i++) {
        const struct kept_value *kept = &values.items[i];
        Wire__AdriftValue told = WIRE__ADRIFT_VALUE__INIT;
        told.key = kept->key;
        told.added = kept->value == NULL;
        told.sum = kept->sum;
        told.value = (ProtobufCBinaryData){kept->size, (uint8_t *)kept->value};
        Wire__AdriftValue *list[] = {&told};
        Wire__Adrift all = WIRE__ADRIFT__INIT;
        all.n_values = 1;
        all.values = list;
        size += wire__adrift__get_packed_size(&all);
    }
    return size;
}

/* Their names and all that is said beside them have to fit as well. */
static void tiny_values_count_as_what_they_take(void **state) {
    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        for (int i = 0; !values.lost; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, "%x", i);
            if (sums)
                add(key, "-1");
            else
                set(key, "x");
            assert_true(size_in_a_message() <= KEPT_VALUES_MAX);
            assert_true(i < 20000);
        }
        expect_lost();
        kept_values_done(&values);
    }
}

static void answer_part(struct worker_channels *all) {
    Wire__Answer answer = WIRE__ANSWER__INIT;
    answer.size = 8;
    answer.value = (ProtobufCBinaryData){4, (uint8_t *)"half"};
    worker_channels_answer(all, &answer);
}

/* Otherwise the next controller's answer would be filled up with what this one has sent. */
static void part_of_an_answer_goes_with_its_controller(void **state) {
    (void)state;
    struct worker_channels all = {0};
    answer_part(&all);
    assert_int_equal(all.answer_bytes, 8);
    worker_channels_forget_part(&all);
    assert_int_equal(all.answer_bytes, 0);
    answer_part(&all);
    assert_int_equal(all.arriving.have, 4);
    answer_part(&all);
    assert_int_equal(all.arriving.have, 0);
    assert_int_equal(all.answer_bytes, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_last_value_and_the_sum_are_kept), TEST(what_cannot_be_told_loses_all),
        TEST(a_value_too_large_loses_all),         TEST(values_that_change_for_ever_are_kept),
        TEST(tiny_values_count_as_what_they_take), TEST(part_of_an_answer_goes_with_its_controller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
