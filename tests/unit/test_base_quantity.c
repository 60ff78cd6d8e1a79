/* Fixed-point amounts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/quantity.h"

static void expect_refused(int result, const ty_error *err, const char *part) {
    assert_int_equal(result, TY_EUSAGE);
    if (strstr(err->message, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

static void doubles_that_are_refused(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *part;
    } cases[] = {
        {NAN, "GPU must be a finite number"},       {INFINITY, "GPU must be a finite number"},
        {-INFINITY, "GPU must be a finite number"}, {-1, "GPU cannot be negative"},
        {-1e-9, "GPU cannot be negative"},          {0.00009, "GPU: the precision cannot go beyond 0.0001"},
        {1e-300, "cannot go beyond 0.0001"},        {1e300, "GPU is too large"},
        {461168601842739.0, "GPU is too large"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        quantity amount = 42;
        ty_error err = {0};
        expect_refused(quantity_from_double(cases[i].value, "GPU", &amount, &err), &err, cases[i].part);
        assert_int_equal(amount, 42);
    }
}

static void doubles_become_counts(void **state) {
    (void)state;
    static const struct {
        double value;
        quantity expected;
    } cases[] = {{0, 0},
                 {-0.0, 0},
                 {1, 10000},
                 {0.5, 5000},
                 {0.1, 1000},
                 {0.0001, 1},
                 {0.00019, 1},
                 {0.57, 5700},
                 {1.00005, 10000},
                 {2.99999, 29999},
                 {0.1 + 0.2, 3000},
                 {0.29, 2900},
                 {1.1, 11000},
                 {1e12, 10000000000000000}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        quantity amount = 42;
        assert_int_equal(quantity_from_double(cases[i].value, "GPU", &amount, NULL), 0);
        assert_int_equal(amount, cases[i].expected);
    }
    for (int count = 1; count < 100000; count++) { /* every amount survives the way through a double */
        quantity amount;
        assert_int_equal(quantity_from_double(quantity_to_double(count), "GPU", &amount, NULL), 0);
        assert_int_equal(amount, count);
    }
}

static void ten_tenths_are_one(void **state) {
    (void)state;
    quantity tenth, product;
    assert_int_equal(quantity_from_double(0.1, "GPU", &tenth, NULL), 0);
    assert_true(quantity_multiply(tenth, 10, &product));
    assert_int_equal(product, QUANTITY_ONE);
}

static void texts_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"", "memory must be a number"},
                 {".", "memory must be a number"},
                 {"x", "memory must be a number"},
                 {" 1", "memory must be a number"},
                 {"1 ", "memory must be a number"},
                 {"1 GiB", "memory must be a number"},
                 {"+1", "memory must be a number"},
                 {"1.2.3", "memory must be a number"},
                 {"1B", "memory must be a number"},
                 {"1m", "memory must be a number"},
                 {"1Gib", "memory must be a number"},
                 {"1GiBB", "memory must be a number"},
                 {"1iB", "memory must be a number"},
                 {"1E", "memory must be a number"},
                 {"0x10", "memory must be a number"},
                 {"nan", "memory must be a number"},
                 {"inf", "memory must be a number"},
                 {"-1", "memory cannot be negative"},
                 {"-1GiB", "memory cannot be negative"},
                 {"-1e3", "memory cannot be negative"},
                 {"0.00009", "memory: the precision cannot go beyond 0.0001"},
                 {"1e-5", "memory: the precision cannot go beyond 0.0001"},
                 {"0.0000000000000000000000000001", "memory: the precision cannot go beyond 0.0001"},
                 {"461168601842739", "memory is too large"},
                 {"99999999999999999999999999999999", "memory is too large"},
                 {"500000P", "memory is too large"},
                 {"1e300", "memory is too large"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        quantity amount = 42;
        ty_error err = {0};
        expect_refused(quantity_parse(cases[i].text, "memory", &amount, &err), &err, cases[i].part);
        assert_int_equal(amount, 42);
    }
}

static void texts_become_counts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        quantity expected;
    } cases[] = {{"0", 0},
                 {"4", 40000},
                 {"0.5", 5000},
                 {".5", 5000},
                 {"5.", 50000},
                 {"0.57", 5700},
                 {"0.0001", 1},
                 {"0.00019", 1},
                 {"1e3", 10000000},
                 {"0.1000000000000000000000000000000000009", 1000},
                 {"1K", 1000 * 10000},
                 {"1k", 1000 * 10000},
                 {"1Ki", 1024 * 10000},
                 {"2KB", 2000 * 10000},
                 {"1.5M", (quantity)15000000000},
                 {"8GiB", (quantity)8589934592 * 10000},
                 {"8G", (quantity)8000000000 * 10000},
                 {"1.5TiB", (quantity)1649267441664 * 10000},
                 {"0.0001Ki", 1024},
                 {"0.25P", (quantity)250000000000000 * 10000}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        quantity amount = 42;
        assert_int_equal(quantity_parse(cases[i].text, "memory", &amount, NULL), 0);
        assert_int_equal(amount, cases[i].expected);
    }
    quantity most;
    assert_int_equal(quantity_parse("461168601842738.7904", "memory", &most, NULL), 0);
    assert_true(most == QUANTITY_MAX);
}

static void formats_the_shortest(void **state) {
    (void)state;
    static const struct {
        quantity amount;
        const char *expected;
    } cases[] = {{0, "0"},
                 {40000, "4"},
                 {5000, "0.5"},
                 {1, "0.0001"},
                 {12340, "1.234"},
                 {-5000, "-0.5"},
                 {-10000, "-1"},
                 {QUANTITY_MAX, "461168601842738.7904"},
                 {INT64_MIN, "-922337203685477.5808"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        quantity_format(cases[i].amount, &out);
        assert_string_equal(out.data, cases[i].expected);
    }
}

static void bytes_have_units(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *expected;
    } cases[] = {{0, "0 B"},
                 {1, "1 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {1047576, "1023.02 KiB"},
                 {(1 << 20) - 1, "1023.99 KiB"},
                 {1 << 20, "1 MiB"},
                 {(uint64_t)419 << 40, "419 TiB"},
                 {QUANTITY_MAX / QUANTITY_ONE, "419.43 TiB"},
                 {QUANTITY_MAX / QUANTITY_ONE + 1, "419.43 TiB"},
                 {(uint64_t)900 << 40, "900 TiB"},
                 {((uint64_t)1 << 50) - 1, "1023.99 TiB"},
                 {(uint64_t)7 << 49, "3.5 PiB"},
                 {((uint64_t)1 << 60) - 1, "1023.99 PiB"},
                 {(uint64_t)1 << 60, "1 EiB"},
                 {INT64_MAX, "7.99 EiB"},
                 {UINT64_MAX, "15.99 EiB"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        bytes_format(cases[i].bytes, &out);
        assert_string_equal(out.data, cases[i].expected);
    }
}

static void products_do_not_overflow(void **state) {
    (void)state;
    quantity product = 42;
    assert_false(quantity_multiply(QUANTITY_MAX, 2, &product));
    assert_false(quantity_multiply(QUANTITY_MAX, INT64_MAX, &product));
    assert_true(quantity_multiply(QUANTITY_MAX, 1, &product));
    assert_true(product == QUANTITY_MAX);
    assert_true(quantity_multiply(5000, 0, &product));
    assert_int_equal(product, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_that_are_refused), cmocka_unit_test(doubles_become_counts),
        cmocka_unit_test(ten_tenths_are_one),       cmocka_unit_test(texts_that_are_refused),
        cmocka_unit_test(texts_become_counts),      cmocka_unit_test(formats_the_shortest),
        cmocka_unit_test(bytes_have_units),         cmocka_unit_test(products_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
