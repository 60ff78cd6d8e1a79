/* Durations between text and nanoseconds. */
#include "base/duration.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"

#define NS_PER_MIN (60 * NS_PER_S)
#define NS_PER_H (60 * NS_PER_MIN)
#define NS_PER_DAY (24 * NS_PER_H)
#define LONGEST (36525 * NS_PER_DAY)

static nanoseconds unit_of_suffix(const char *suffix) {
    static const struct {
        const char *suffix;
        nanoseconds unit;
    } units[] = {{"", NS_PER_S},    {"ms", NS_PER_MS}, {"s", NS_PER_S},
                 {"m", NS_PER_MIN}, {"h", NS_PER_H},   {"d", NS_PER_DAY}};
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (strcmp(units[i].suffix, suffix) == 0) return units[i].unit;
    return 0;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int duration_parse(const char *text, nanoseconds *duration, ty_error *err) {
    char number[64] = "";
    size_t size = strlen(text);
    while (size > 0 && is_letter(text[size - 1]))
        size--;
    nanoseconds unit = unit_of_suffix(text + size);
    double value = 0;
    bool good = unit != 0 && size > 0 && size < sizeof number && text[0] != '+';
    if (good) {
        memcpy(number, text, size);
        number[size] = '\0';
        good = str_to_double(number, &value);
    }
    if (!good && unit != 0 && size < sizeof number && str_is_decimal(number) && number[0] != '-')
        value = INFINITY;
    else if (!good)
        return ty_fail(err, TY_EUSAGE,
                       "\"%.80s\" is no duration: give a number and ms, s, m, h or d, as in 90, 1.5h, 500ms",
                       text);
    if (number[0] == '-') return ty_fail(err, TY_EUSAGE, "duration \"%s\" cannot be negative", text);
    double ns = value * (double)unit;
    if (ns > (double)LONGEST) return ty_fail(err, TY_EUSAGE, "duration \"%s\" is longer than 100 years", text);
    *duration = llround(ns);
    return 0;
}

/* The number with three significant figures and no trailing zeros, from the smallest unit in which it stays
 * below the next. */
void duration_format(nanoseconds duration, struct buffer *out) {
    static const struct {
        const char *name;
        double unit, next;
    } units[] = {{"ns", 1, 1e3},        {"us", 1e3, 1e6},       {"ms", 1e6, 1e9},        {"s", 1e9, 60e9},
                 {"min", 60e9, 3600e9}, {"h", 3600e9, 86400e9}, {"d", 86400e9, INFINITY}};
    if (duration == 0) {
        buffer_text(out, "0 s");
        return;
    }
    double size = fabs((double)duration);
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        double value = size / units[i].unit;
        int scale = value < 9.995 ? 100 : value < 99.95 ? 10 : 1;
        double rounded = round(value * scale);
        if (rounded * units[i].unit / scale >= units[i].next) continue;
        int64_t whole = (int64_t)rounded / scale, rest = (int64_t)rounded % scale;
        buffer_printf(out, "%s%lld", duration < 0 ? "-" : "", (long long)whole);
        if (scale == 100 && rest % 10 == 0) {
            rest /= 10;
            scale = 10;
        }
        if (rest > 0) buffer_printf(out, scale == 100 ? ".%02lld" : ".%lld", (long long)rest);
        buffer_printf(out, " %s", units[i].name);
        return;
    }
}

static nanoseconds read_clock(clockid_t clock) {
    struct timespec now = {0};
    (void)clock_gettime(clock, &now); /* cannot fail for these two clocks */
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

nanoseconds duration_of_ms(int64_t ms) {
    nanoseconds duration;
    if (__builtin_mul_overflow(ms, NS_PER_MS, &duration)) return ms < 0 ? INT64_MIN : INT64_MAX;
    return duration;
}

nanoseconds clock_monotonic(void) {
    return read_clock(CLOCK_MONOTONIC);
}

nanoseconds clock_wall(void) {
    return read_clock(CLOCK_REALTIME);
}
