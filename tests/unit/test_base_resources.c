/* Lists of named amounts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/quantity.h"

static void expect_format(const struct resources *resources, const char *text, const char *json) {
    CLEANUP(buffer_done) struct buffer out = {0};
    resources_format(resources, &out);
    assert_string_equal(out.data == NULL ? "" : out.data, text);
    buffer_clear(&out);
    resources_format_json(resources, &out);
    assert_string_equal(out.data, json);
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"CPU", "resource \"CPU\" must be NAME=AMOUNT"},
                 {"=4", "resource \"=4\" must be NAME=AMOUNT"},
                 {"CPU=4,", "resource \"\" must be NAME=AMOUNT"},
                 {",CPU=4", "resource \"\" must be NAME=AMOUNT"},
                 {"CPU=4,CPU=5", "resource \"CPU\" is given twice"},
                 {"GPU=1,TPU=1", "resource \"GPU\" is given twice"},
                 {"CPU=", "CPU must be a number"},
                 {"CPU=four", "CPU must be a number"},
                 {"CPU=4=4", "CPU must be a number"},
                 {"CPU=-1", "CPU cannot be negative"},
                 {"CPU=4,fast=0.00001", "fast: the precision cannot go beyond 0.0001"}};
    CLEANUP(resources_done) struct resources resources = {0};
    assert_int_equal(resources_set(&resources, "GPU", 5000), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ty_error err = {0};
        assert_int_equal(resources_parse(&resources, cases[i].text, &err), TY_EUSAGE);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("\"%s\"", err.message);
        expect_format(&resources, "0.5 GPU", "{\"GPU\": 0.5}");
    }
}

static void parses_in_order(void **state) {
    (void)state;
    CLEANUP(resources_done) struct resources resources = {0};
    assert_int_equal(resources_parse(&resources, "", NULL), 0);
    expect_format(&resources, "", "{}");
    assert_int_equal(resources_parse(&resources, "CPU=4, GPU=0.5 ,memory=8GiB", NULL), 0);
    assert_int_equal(resources_parse(&resources, "node:a\"b=0", NULL), 0);
    expect_format(&resources, "4 CPU, 0.5 GPU, 8 GiB memory, 0 node:a\"b",
                  "{\"CPU\": 4, \"GPU\": 0.5, \"memory\": 8589934592, \"node:a\\\"b\": 0}");
}

static void bytes_for_people(void **state) {
    (void)state;
    static const struct {
        const char *amount, *expected;
    } cases[] = {{"0", "0 B"},         {"1023", "1023 B"},    {"1024", "1 KiB"}, {"1.5GiB", "1.5 GiB"},
                 {"1G", "953.67 MiB"}, {"300TiB", "300 TiB"}, {"0.5", "1 B"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(resources_done) struct resources resources = {0};
        CLEANUP(buffer_done) struct buffer out = {0};
        quantity amount;
        assert_int_equal(quantity_parse(cases[i].amount, "memory", &amount, NULL), 0);
        assert_int_equal(resources_set(&resources, "object_store_memory", amount), 0);
        resources_format(&resources, &out);
        char expected[64];
        (void)snprintf(expected, sizeof expected, "%s object_store_memory", cases[i].expected);
        assert_string_equal(out.data, expected);
    }
}

static void sets_gets_removes(void **state) {
    (void)state;
    CLEANUP(resources_done) struct resources resources = {0};
    char name[] = "CPU";
    assert_int_equal(resources_get(&resources, "CPU"), 0);
    resources_remove(&resources, "CPU");
    assert_int_equal(resources_set(&resources, name, 1), 0);
    name[0] = 'x'; /* the list has its own copy */
    assert_int_equal(resources_set(&resources, "GPU", 2), 0);
    assert_int_equal(resources_set(&resources, "TPU", 0), 0);
    assert_int_equal(resources_set(&resources, "CPU", 4), 0);
    assert_int_equal(resources.n, 3);
    assert_int_equal(resources_get(&resources, "CPU"), 4);
    assert_true(resources_has(&resources, "TPU"));
    assert_int_equal(resources_get(&resources, "TPU"), 0);
    assert_false(resources_has(&resources, "cpu"));
    resources_remove(&resources, "GPU");
    assert_false(resources_has(&resources, "GPU"));
    expect_format(&resources, "0.0004 CPU, 0 TPU", "{\"CPU\": 0.0004, \"TPU\": 0}");
}

static void copies_are_apart(void **state) {
    (void)state;
    CLEANUP(resources_done) struct resources first = {0};
    CLEANUP(resources_done) struct resources second = {0};
    assert_int_equal(resources_copy(&second, &first), 0);
    assert_int_equal(second.n, 0);
    assert_int_equal(resources_parse(&first, "CPU=1,GPU=2", NULL), 0);
    assert_int_equal(resources_copy(&second, &first), 0);
    resources_done(&first);
    assert_int_equal(first.n, 0);
    expect_format(&second, "1 CPU, 2 GPU", "{\"CPU\": 1, \"GPU\": 2}");
}

static void one_more_than_can_be(void **state) {
    (void)state;
    CLEANUP(resources_done) struct resources resources = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    ty_error err = {0};
    for (int i = 0; i < RESOURCES_MAX; i++)
        buffer_printf(&text, "%sr%d=1", i > 0 ? "," : "", i);
    assert_int_equal(resources_parse(&resources, text.data, &err), 0);
    assert_int_equal(resources.n, RESOURCES_MAX);
    assert_int_equal(resources_parse(&resources, "more=1", &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "1000"));
    assert_int_equal(resources.n, RESOURCES_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(parses_in_order),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(sets_gets_removes),
        cmocka_unit_test(copies_are_apart),
        cmocka_unit_test(one_more_than_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
