/* Metrics are read whatever numbers they hold, and each as near to what was reported as can be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/metrics.h"

static void expect(const char *text, const char *wanted) {
    json_t *tree = metrics_read(text, strlen(text));
    assert_non_null(tree);
    CLEANUP_FREE char *made = json_format(tree, JSON_COMPACT);
    assert_string_equal(made, wanted);
    json_decref(tree);
}

static void numbers_of_any_size(void **state) {
    (void)state;
    expect("{\"a\":9223372036854775807,\"b\":-9223372036854775808}",
           "{\"a\":9223372036854775807,\"b\":-9223372036854775808}");
    expect("{\"loss\": 1.9, \"n\": 5, \"seed\": 18446744073709551615}",
           "{\"loss\":1.9,\"n\":5,\"seed\":1.8446744073709552e+19}");
    expect("{\"a\":-9223372036854775809,\n\"b\":9007199254740993}",
           "{\"a\":-9.223372036854776e+18,\"b\":9007199254740993}");
    expect("{\"a\": [1e999, {\"b\": -1e999}, 7]}", "{\"a\":[\"Infinity\",{\"b\":\"-Infinity\"},7]}");
}

static void texts_and_names_stay(void **state) {
    (void)state;
    expect("{\"18446744073709551615\":\"a 1e999, \\\" 18446744073709551615\",\"n\":18446744073709551615}",
           "{\"18446744073709551615\":\"a 1e999, \\\" 18446744073709551615\",\"n\":1.8446744073709552e+19}");
    expect("{\"a\":\"\\u0000\"}", "{\"a\":\"\\u0000\"}");
}

static void what_is_no_object(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",   "[1]", "18446744073709551615", "{\"a\":18446744073709551615", "{\"a\":1e999}}", "{\"a\":1e999",
        "NaN"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_null(metrics_read(texts[i], strlen(texts[i])));
    assert_null(metrics_read("{\"a\": 123456789012345678901234567890}", 25)); /* ends within the number */
}

static void what_is_corrected(void **state) {
    (void)state;
    const char *text = "{\"a\":NaN,\r\n\"b\":[-Infinity,1e999],\"c\":18446744073709551615,\"d\":\"NaN\"}";
    CLEANUP(buffer_done) struct buffer kept = {0}, whole = {0};
    metrics_correct(text, strlen(text), false, &kept);
    assert_string_equal(
        kept.data,
        "{\"a\":\"NaN\",\r\n\"b\":[\"-Infinity\",\"Infinity\"],\"c\":18446744073709551615,\"d\":\"NaN\"}");
    metrics_correct(text, strlen(text), true, &whole);
    assert_non_null(strstr(whole.data, "\"c\":18446744073709551615.0,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_any_size),
        cmocka_unit_test(texts_and_names_stay),
        cmocka_unit_test(what_is_no_object),
        cmocka_unit_test(what_is_corrected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
