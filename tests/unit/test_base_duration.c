/* Durations and clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/duration.h"

static void refuses(void **state) {
    (void)state;
    static const char *const refused[] = {
        "",      "s",    "ms",     "1x",       "1 s",  " 1",       "1s ", "1S",   "1mi",  "+1",    "0x10",
        "1..2",  "1e",   "inf",    "infinity", "nan",  "-1",       "-0s", "-1ms", "1,5s", "101y",  "1h30",
        "30m1h", "1h1h", "1h 30m", "1:2:3:4",  "1:60", "01:60:00", ":30", "1:",   "1-30", "1-2:3", "1:30s"};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        nanoseconds duration = 42;
        ty_error err = {0};
        assert_int_equal(duration_parse(refused[i], &duration, &err), TY_EUSAGE);
        assert_int_equal(duration, 42);
        assert_non_null(strstr(err.message, refused[i]));
    }
    nanoseconds duration = 42;
    ty_error err = {0};
    assert_int_equal(duration_parse("-5m", &duration, &err), TY_EUSAGE);
    assert_string_equal(err.message, "duration \"-5m\" cannot be negative");
    assert_int_equal(duration_parse("36526d", &duration, &err), TY_EUSAGE);
    assert_int_equal(duration_parse("1e300d", &duration, &err), TY_EUSAGE);
    assert_string_equal(err.message, "duration \"1e300d\" is longer than 100 years");
    char many[100];
    memset(many, '1', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_int_equal(duration_parse(many, &duration, &err), TY_EUSAGE);
}

static void parses(void **state) {
    (void)state;
    static const struct {
        const char *text;
        nanoseconds expected;
    } cases[] = {{"0", 0},
                 {"90", 90 * NS_PER_S},
                 {"0.1", 100 * NS_PER_MS},
                 {".5s", 500 * NS_PER_MS},
                 {"500ms", 500 * NS_PER_MS},
                 {"1.5h", 5400 * NS_PER_S},
                 {"2m", 120 * NS_PER_S},
                 {"1d", 86400 * NS_PER_S},
                 {"1e3ms", NS_PER_S},
                 {"5min", 300 * NS_PER_S},
                 {"1h30m", 5400 * NS_PER_S},
                 {"1d2h3m4s5ms", 93784005 * NS_PER_MS},
                 {"1.5h30s", 5430 * NS_PER_S},
                 {"01:30:00", 5400 * NS_PER_S},
                 {"90:00", 5400 * NS_PER_S},
                 {"100:00:01", 360001 * NS_PER_S},
                 {"2-12:00:30", 216030 * NS_PER_S},
                 {"0.0000001ms", 0},
                 {"36525d", 36525 * (86400 * NS_PER_S)}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        nanoseconds duration = 42;
        assert_int_equal(duration_parse(cases[i].text, &duration, NULL), 0);
        assert_int_equal(duration, cases[i].expected);
    }
}

static void formats_three_figures(void **state) {
    (void)state;
    static const struct {
        nanoseconds duration;
        const char *expected;
    } cases[] = {{0, "0 s"},
                 {1, "1 ns"},
                 {999, "999 ns"},
                 {340 * NS_PER_US, "340 us"},
                 {1234, "1.23 us"},
                 {999499, "999 us"},
                 {999500, "1 ms"}, /* rounds up into the next unit */
                 {1250 * NS_PER_MS, "1.25 s"},
                 {1200 * NS_PER_MS, "1.2 s"},
                 {1004 * NS_PER_MS, "1 s"},
                 {1050 * NS_PER_MS, "1.05 s"},
                 {9996 * NS_PER_MS, "10 s"},
                 {59940 * NS_PER_MS, "59.9 s"},
                 {59960 * NS_PER_MS, "1 min"},
                 {126 * NS_PER_S, "2.1 min"},
                 {12600 * NS_PER_S, "3.5 h"},
                 {86400 * NS_PER_S, "1 d"},
                 {36525 * (86400 * NS_PER_S), "36525 d"},
                 {-1500 * NS_PER_MS, "-1.5 s"},
                 {INT64_MIN, "-106752 d"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        duration_format(cases[i].duration, &out);
        assert_string_equal(out.data, cases[i].expected);
    }
}

static void clocks_run(void **state) {
    (void)state;
    nanoseconds first = clock_monotonic(), second = clock_monotonic();
    assert_true(first > 0 && second >= first);
    assert_true(clock_wall() > 1600000000 * NS_PER_S); /* after 2020 */
}

static void a_clock_has_hours_and_days(void **state) {
    (void)state;
    static const struct {
        int64_t seconds;
        const char *text;
    } cases[] = {
        {0, "00:00"},        {59, "00:59"},          {3599, "59:59"},         {3600, "1:00:00"},
        {86399, "23:59:59"}, {86400, "1d 00:00:00"}, {183912, "2d 03:05:12"}, {9000000, "104d 04:00:00"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        duration_format_clock(cases[i].seconds * NS_PER_S + NS_PER_S / 2, &out);
        assert_string_equal(out.data, cases[i].text);
    }
}

static void a_time_has_a_date_where_there_can_be_one(void **state) {
    (void)state;
    char text[CLOCK_TEXT];
    assert_true(clock_format(0, text));
    assert_int_equal(strlen(text), strlen("1970-01-01 00:00:00"));
    assert_true(clock_format(1769903999, text));
    assert_int_equal(strncmp(text, "2026-0", 6), 0);
    assert_false(clock_format(INT64_MAX, text));
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_has_hours_and_days),
        cmocka_unit_test(refuses),
        cmocka_unit_test(parses),
        cmocka_unit_test(formats_three_figures),
        cmocka_unit_test(clocks_run),
        cmocka_unit_test(a_time_has_a_date_where_there_can_be_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
