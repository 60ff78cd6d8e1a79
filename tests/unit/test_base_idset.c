/* Sets of small integers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/idset.h"

static void expect_format(const struct idset *set, const char *expected) {
    CLEANUP(buffer_done) struct buffer out = {0};
    idset_format(set, &out);
    assert_string_equal(out.data == NULL ? "" : out.data, expected);
}

static void ids_outside_are_refused(void **state) {
    (void)state;
    CLEANUP(idset_done) struct idset set = {0};
    assert_int_equal(idset_add(&set, -1), -EINVAL);
    assert_int_equal(idset_add(&set, IDSET_MAX), -EINVAL);
    assert_int_equal(idset_add(&set, INT64_MAX), -EINVAL);
    assert_int_equal(idset_add(&set, INT64_MIN), -EINVAL);
    assert_int_equal(idset_add_range(&set, 3, 2), -EINVAL);
    assert_int_equal(idset_add_range(&set, 0, IDSET_MAX), -EINVAL);
    assert_int_equal(set.n_words, 0);
    assert_false(idset_has(&set, -1));
    assert_false(idset_has(&set, INT64_MAX));
    assert_int_equal(idset_next(&set, -1), IDSET_END);
    assert_int_equal(idset_count(&set), 0);
}

static void adds_and_walks(void **state) {
    (void)state;
    CLEANUP(idset_done) struct idset set = {0};
    static const int64_t ids[] = {63, 0, 64, 200, 127, 128, 63};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        assert_int_equal(idset_add(&set, ids[i]), 0);
    assert_int_equal(idset_count(&set), 6);
    expect_format(&set, "0,63-64,127-128,200");
    assert_int_equal(idset_next(&set, -1), 0);
    assert_int_equal(idset_next(&set, 0), 63);
    assert_int_equal(idset_next(&set, 63), 64);
    assert_int_equal(idset_next(&set, 64), 127);
    assert_int_equal(idset_next(&set, 128), 200);
    assert_int_equal(idset_next(&set, 200), IDSET_END);
    assert_int_equal(idset_next(&set, INT64_MAX - 1), IDSET_END);
    assert_int_equal(idset_add(&set, IDSET_MAX - 1), 0);
    assert_true(idset_has(&set, IDSET_MAX - 1));
}

static void ranges_fill_words(void **state) {
    (void)state;
    for (int64_t first = 0; first < 130; first += 7) {
        for (int64_t last = first; last < 260; last += 3) {
            CLEANUP(idset_done) struct idset set = {0};
            assert_int_equal(idset_add_range(&set, first, last), 0);
            assert_int_equal(idset_count(&set), last - first + 1);
            assert_false(idset_has(&set, first - 1));
            assert_true(idset_has(&set, first));
            assert_true(idset_has(&set, last));
            assert_false(idset_has(&set, last + 1));
        }
    }
}

static void texts_that_are_refused(void **state) {
    (void)state;
    static const char *const refused[] = {
        "x",    "-1",    "+1",  " 1",  "1 ",    "1, 2", "1,",       ",1",         "1,,2",
        "1-",   "-",     "3-1", "3-3", "2,1",   "1,1",  "1-3,3",    "1-3,2-5",    "01",
        "0-03", "1-2-3", "[1",  "1]",  "[[1]]", "1.5",  "16777216", "0-16777216", "99999999999999999999"};
    CLEANUP(idset_done) struct idset set = {0};
    assert_int_equal(idset_add(&set, 5), 0);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        ty_error err = {0};
        assert_int_equal(idset_parse(&set, refused[i], &err), TY_EUSAGE);
        assert_non_null(strstr(err.message, refused[i]));
        expect_format(&set, "5");
    }
}

static void texts_are_read_back(void **state) {
    (void)state;
    static const char *const texts[] = {"",         "0",          "0-3,7,12-15",  "1,3,5",
                                        "16777215", "0-16777215", "62-65,127-128"};
    CLEANUP(idset_done) struct idset set = {0};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        assert_int_equal(idset_parse(&set, texts[i], NULL), 0);
        expect_format(&set, texts[i]);
    }
    assert_int_equal(idset_parse(&set, "[0-3,7]", NULL), 0);
    expect_format(&set, "0-3,7");
    assert_int_equal(idset_parse(&set, "0,1,2-3", NULL), 0);
    expect_format(&set, "0-3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_outside_are_refused), cmocka_unit_test(adds_and_walks),
        cmocka_unit_test(ranges_fill_words),       cmocka_unit_test(texts_that_are_refused),
        cmocka_unit_test(texts_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
