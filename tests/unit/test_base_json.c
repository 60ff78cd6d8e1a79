/* Reals in JSON have as few digits as give the same number back; all else is as jansson writes it. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "base/document.h"

static void expect(const char *text, const char *wanted) {
    json_t *tree = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(tree);
    CLEANUP_FREE char *made = json_format(tree, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(made, wanted);
    json_decref(tree);
}

static void reals_are_short(void **state) {
    (void)state;
    expect("0.98", "0.98");
    expect("[0.1, 1.0, -2.50, 1e300, 1e-7, 0.30000000000000004, 123456789.125]",
           "[0.1,1.0,-2.5,1e+300,1e-07,0.30000000000000004,123456789.125]");
    expect("-0.0", "-0.0");
}

static void all_else_stays(void **state) {
    (void)state;
    static const char *const texts[] = {
        "true",
        "[true,false,null]",
        "{\"a\":1,\"e\":-12,\"0.98000000000000001\":\"0.97999999999999998\"}",
        "\"a\\\"0.97999999999999998\\\\\"",
        "9223372036854775807",
        "[]",
        "{}",
        "\"\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        expect(texts[i], texts[i]);
    assert_null(json_format(NULL, 0));
}

static void every_real_comes_back(void **state) {
    (void)state;
    struct dice dice;
    dice_seed(&dice, 7);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = dice_next(&dice);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!(value >= -DBL_MAX && value <= DBL_MAX)) continue;
        json_t *real = json_real(value);
        CLEANUP_FREE char *made = json_format(real, JSON_ENCODE_ANY);
        json_t *back = json_loads(made, JSON_DECODE_ANY, NULL);
        assert_true(json_is_real(back) && json_real_value(back) == value);
        json_decref(real);
        json_decref(back);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_are_short),
        cmocka_unit_test(all_else_stays),
        cmocka_unit_test(every_real_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
