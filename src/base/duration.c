/* Durations between text and nanoseconds, and the clocks. Text is read with a double: durations that people
 * write have few digits, and what is beyond the range of an int64_t is refused. Bounds beyond that are the
 * caller's to check, who knows what the duration is for. */
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

/* "90", "1.5h", "1h30m": numbers with units, each unit smaller than the one before; a number without one stands
 * alone. */
static bool parse_parts(const char *text, double *ns) {
    static const struct {
        const char *name;
        nanoseconds size;
    } units[] = {{"", NS_PER_S},      {"ms", NS_PER_MS}, {"s", NS_PER_S},  {"m", NS_PER_MIN},
                 {"min", NS_PER_MIN}, {"h", NS_PER_H},   {"d", NS_PER_DAY}};
    nanoseconds before = INT64_MAX;
    *ns = 0;
    for (const char *at = text; at == text || *at != '\0';) {
        char number[64] = "";
        size_t digits = strspn(at, "0123456789.");
        const char *exponent = at + digits; /* "1e3ms" */
        if (digits > 0 && (*exponent == 'e' || *exponent == 'E') && strspn(exponent + 1, "+-0123456789") > 0)
            digits += 1 + strspn(exponent + 1, "+-0123456789");
        size_t letters = strspn(at + digits, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        nanoseconds unit = 0;
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
            if (strlen(units[i].name) == letters && strncmp(units[i].name, at + digits, letters) == 0)
                unit = units[i].size;
        double value = INFINITY;
        if (digits == 0 || digits >= sizeof number || unit == 0 || unit >= before) return false;
        if (letters == 0 && (at != text || at[digits] != '\0')) return false;
        memcpy(number, at, digits);
        if (!str_to_double(number, &value) && !str_is_decimal(number)) return false;
        *ns += value * (double)unit;
        before = unit;
        at += digits + letters;
    }
    return true;
}

/* "01:30:00", "90:00", "2-12:00:00": hours, minutes and seconds, minutes and seconds, or days before them, as
 * Slurm has it. */
static bool parse_clock(const char *text, double *ns) {
    static const nanoseconds units[] = {NS_PER_S, NS_PER_MIN, NS_PER_H};
    const char *dash = strchr(text, '-');
    double numbers[4] = {0};
    int n = 0, colons = 0;
    for (const char *at = text; n < 4;) {
        size_t digits = strspn(at, "0123456789");
        char number[16] = "";
        if (digits == 0 || digits >= sizeof number) return false;
        memcpy(number, at, digits);
        if (!str_to_double(number, &numbers[n++])) return false;
        at += digits;
        colons += *at == ':';
        if (*at == '\0') break;
        if (*at != ':' && (at != dash || n > 1)) return false;
        at++;
    }
    if (n - (dash != NULL) != colons + 1 || colons < (dash != NULL ? 2 : 1) || colons > 2) return false;
    *ns = dash != NULL ? numbers[0] * (double)NS_PER_DAY : 0;
    for (int i = 0; i <= colons; i++) {
        if (i < colons && numbers[n - 1 - i] >= 60) return false;
        *ns += numbers[n - 1 - i] * (double)units[i];
    }
    return true;
}

int duration_parse(const char *text, nanoseconds *duration, ty_error *err) {
    bool negative = text[0] == '-';
    double ns = 0;
    if (!(strchr(text, ':') != NULL ? parse_clock(text, &ns) : parse_parts(text + negative, &ns)))
        return ty_fail(err, TY_EUSAGE,
                       "\"%.80s\" is no duration: give a number and ms, s, m, h or d, as in 90, 1.5h, 1h30m, "
                       "500ms, or 01:30:00",
                       text);
    if (negative) return ty_fail(err, TY_EUSAGE, "duration \"%s\" cannot be negative", text);
    if (ns > (double)LONGEST) return ty_fail(err, TY_EUSAGE, "duration \"%s\" is longer than 100 years", text);
    *duration = llround(ns);
    return 0;
}

int duration_of_variable(const char *name, const char *text, nanoseconds *duration, ty_error *err) {
    nanoseconds read;
    if (text == NULL || text[0] == '\0') return 0;
    int result = duration_parse(text, &read, err);
    if (result < 0) return ty_wrap(err, "%s", name);
    if (read < NS_PER_MS)
        return ty_fail(err, TY_EUSAGE, "%s is \"%.40s\", but must be 1 ms or more", name, text);
    *duration = read;
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

void duration_format_clock(nanoseconds duration, struct buffer *out) {
    long long seconds = duration / NS_PER_S, hours = seconds / 3600, days = hours / 24;
    if (days > 0) buffer_printf(out, "%lldd ", days);
    if (hours > 0) buffer_printf(out, days > 0 ? "%02lld:" : "%lld:", hours % 24);
    buffer_printf(out, "%02lld:%02lld", seconds / 60 % 60, seconds % 60);
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

nanoseconds clock_boot(void) {
    return read_clock(CLOCK_BOOTTIME);
}

nanoseconds clock_wall(void) {
    return read_clock(CLOCK_REALTIME);
}

nanoseconds clock_thread(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

bool clock_format(time_t seconds, char text[CLOCK_TEXT]) {
    struct tm local;
    bool dated =
        localtime_r(&seconds, &local) != NULL && strftime(text, CLOCK_TEXT, "%Y-%m-%d %H:%M:%S", &local) > 0;
    if (!dated) text[0] = '\0';
    return dated;
}
