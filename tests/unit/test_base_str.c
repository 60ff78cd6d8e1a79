/* Words and lists in text. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"

static int join_pieces(void *context, char *piece) {
    buffer_printf(context, "<%s>", piece);
    return strcmp(piece, "stop") == 0 ? 7 : 0;
}

static void expect_split(const char *text, int result, const char *pieces) {
    CLEANUP(buffer_done) struct buffer out = {0};
    assert_int_equal(str_split(text, ',', join_pieces, &out), result);
    assert_string_equal(out.data, pieces);
}

static void splits_outside_brackets(void **state) {
    (void)state;
    expect_split("", 0, "<>");
    expect_split("a", 0, "<a>");
    expect_split(" a , b,", 0, "<a><b><>");
    expect_split("n[1,2],m", 0, "<n[1,2]><m>");
    expect_split("in(a,b),in([c,d],e)", 0, "<in(a,b)><in([c,d],e)>");
    expect_split("a],b", 0, "<a]><b>");
    expect_split("a,stop,b", 7, "<a><stop>");
}

static void prefixes(void **state) {
    (void)state;
    const char *rest = "untouched";
    assert_false(str_prefix("ab", "abc", &rest));
    assert_string_equal(rest, "untouched");
    assert_true(str_prefix("abc", "ab", &rest));
    assert_string_equal(rest, "c");
    assert_true(str_prefix("abc", "", NULL));
}

static void equality_knows_null(void **state) {
    (void)state;
    assert_true(str_equal(NULL, NULL));
    assert_false(str_equal(NULL, ""));
    assert_false(str_equal("", NULL));
    assert_true(str_equal("a", "a"));
    assert_false(str_equal("a", "A"));
}

static void whole_numbers(void **state) {
    (void)state;
    static const char *const refused[] = {
        "", " 1", "1 ", "+1", "-1", "1.0", "0x1", "1e3", "9223372036854775808", "99999999999999999999", "11"};
    int64_t value = 42;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        assert_false(str_to_int64(refused[i], 0, 10, &value));
    assert_false(str_to_int64("-11", -10, 10, &value));
    assert_false(str_to_int64("-", -10, 10, &value));
    assert_int_equal(value, 42);
    assert_true(str_to_int64("007", 0, 10, &value));
    assert_int_equal(value, 7);
    assert_true(str_to_int64("-9223372036854775808", INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MIN);
    assert_true(str_to_int64("9223372036854775807", 0, INT64_MAX, &value));
    assert_true(value == INT64_MAX);
}

static void real_numbers(void **state) {
    (void)state;
    static const char *const refused[] = {"",      ".",  "e1", "1e",  "nan",   "inf", "-inf",
                                          "0x1p3", " 1", "1 ", "1,5", "1e999", "--1"};
    double value = 42;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        assert_false(str_to_double(refused[i], &value));
    assert_true(value == 42);
    assert_true(str_to_double("1.5", &value) && value == 1.5);
    assert_true(str_to_double("-.5e1", &value) && value == -5);
    assert_true(str_to_double("5.", &value) && value == 5);
    assert_true(str_to_double("+1E-3", &value) && value == 0.001);
    assert_true(str_to_double("1e-999", &value) && value == 0);
}

static void real_numbers_are_short(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.98, "0.98"},
                 {0.1, "0.1"},
                 {-2.5, "-2.5"},
                 {1e300, "1e+300"},
                 {5e-324, "5e-324"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {-1e-310, "-1e-310"},
                 {2.2250738585072014e-308, "2.2250738585072014e-308"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[STR_REAL_SIZE];
        double again;
        str_from_double(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
        assert_true(str_to_double(text, &again) && again == cases[i].value);
    }
}

static void nearest_name(void **state) {
    (void)state;
    static const char *const names[] = {"num_workers", "resources", "labels", "CPU", "GPU", "memory"};
    assert_int_equal(str_find("labels", NULL, 0), -1);
    assert_int_equal(str_find(names[1], names, ARRAY_SIZE(names)), 1);
    assert_int_equal(str_find("label", names, ARRAY_SIZE(names)), -1);
    assert_int_equal(str_find(NULL, names, ARRAY_SIZE(names)), -1);
    assert_null(str_nearest("resources", NULL, 0));
    assert_null(str_nearest("zebra", names, ARRAY_SIZE(names)));
    assert_null(str_nearest("xy", names, ARRAY_SIZE(names)));
    assert_string_equal(str_nearest("resorces", names, ARRAY_SIZE(names)), "resources");
    assert_string_equal(str_nearest("numworker", names, ARRAY_SIZE(names)), "num_workers");
    assert_string_equal(str_nearest("lables", names, ARRAY_SIZE(names)), "labels"); /* a swap is one step */
    assert_string_equal(str_nearest("gpu", names, ARRAY_SIZE(names)), "GPU");
    assert_string_equal(str_nearest("PGU", names, ARRAY_SIZE(names)), "GPU");
    assert_string_equal(str_nearest("MEMORY", names, ARRAY_SIZE(names)), "memory");
    assert_string_equal(str_nearest("lab", names, ARRAY_SIZE(names)), "labels"); /* or its beginning */
    assert_null(str_nearest("la", names, ARRAY_SIZE(names)));
    assert_null(str_nearest("", names, ARRAY_SIZE(names)));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(str_nearest(longest, names, ARRAY_SIZE(names)));
}

static void hints_name_the_nearest(void **state) {
    static const char *const names[] = {"get", "wait"};
    char text[STR_HINT_SIZE];
    (void)state;
    assert_string_equal(str_hint("wiat", names, 2, text), "; did you mean wait?");
    assert_string_equal(str_hint("delete", names, 2, text), "");
}

static void fnv_vectors(void **state) {
    (void)state; /* from the reference tables of FNV-1a */
    assert_true(str_hash("", 0) == 0xcbf29ce484222325);
    assert_true(str_hash("a", 1) == 0xaf63dc4c8601ec8c);
    assert_true(str_hash("foobar", 6) == 0x85944171f73967e8);
}

static void utf8_sequences(void **state) {
    static const struct {
        const char *text;
        int length;
        uint32_t character;
    } cases[] = {
        {"a", 1, 'a'},
        {"\x7f", 1, 0x7f},
        {"\xc2\x80", 2, 0x80},
        {"\xdf\xbf", 2, 0x7ff},
        {"\xe0\xa0\x80", 3, 0x800},
        {"\xef\xbf\xbf", 3, 0xffff},
        {"\xf0\x90\x80\x80", 4, 0x10000},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\x80", -1, 0},             /* a continuation alone */
        {"\xc1\xbf", -1, 0},         /* overlong */
        {"\xe0\x9f\xbf", -1, 0},     /* overlong */
        {"\xed\xa0\x80", -1, 0},     /* a surrogate */
        {"\xf4\x90\x80\x80", -1, 0}, /* beyond U+10FFFF */
        {"\xf5\x80", -1, 0},
        {"\xe2\x82", -2, 0}, /* cut off */
        {"\xf0\x9f\x98z", -3, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t character = 0;
        size_t size = strlen(cases[i].text);
        assert_int_equal(utf8_sequence(cases[i].text, size, &character), cases[i].length);
        assert_int_equal(character, cases[i].character);
        assert_int_equal(utf8_valid(cases[i].text, size), cases[i].length > 0);
    }
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("gr\xc3\xb6\xc3\x9f"
                           "e",
                           7));
    assert_false(utf8_valid("gr\xc3", 3));
}

static void utf8_harmless_characters(void **state) {
    (void)state;
    static const uint32_t harmful[] = {0,    7,    '\n', '\r',   0x1b,   0x1f,   0x7f,
                                       0x80, 0x9b, 0x9f, 0x202a, 0x202e, 0x2066, 0x2069};
    static const uint32_t harmless[] = {'\t', ' ', '~', 0xa0, 0xe9, 0x2029, 0x202f, 0x2065, 0x206a, 0x1f600};
    for (size_t i = 0; i < sizeof harmful / sizeof harmful[0]; i++)
        assert_false(utf8_is_harmless(harmful[i]));
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
        assert_true(utf8_is_harmless(harmless[i]));
}

/* Of the names of one number the one that glibc gives; numbers that are none have no name. */
static void names_of_numbers(void **state) {
    static const int nobody[] = {0, -1, INT_MIN, INT_MAX, 4095};
    (void)state;
    assert_string_equal(str_errno_name(EAGAIN), "EAGAIN");
    assert_string_equal(str_errno_name(EOPNOTSUPP), "EOPNOTSUPP");
    assert_string_equal(str_errno_name(EHWPOISON), "EHWPOISON");
    assert_string_equal(str_signal_name(SIGTERM), "TERM");
    assert_string_equal(str_signal_name(SIGCHLD), "CHLD");
    for (size_t i = 0; i < sizeof nobody / sizeof nobody[0]; i++) {
        assert_null(str_errno_name(nobody[i]));
        assert_null(str_signal_name(nobody[i]));
    }
    assert_null(str_signal_name(SIGRTMIN));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_outside_brackets),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(equality_knows_null),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(real_numbers),
        cmocka_unit_test(real_numbers_are_short),
        cmocka_unit_test(nearest_name),
        cmocka_unit_test(hints_name_the_nearest),
        cmocka_unit_test(fnv_vectors),
        cmocka_unit_test(utf8_sequences),
        cmocka_unit_test(utf8_harmless_characters),
        cmocka_unit_test(names_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
