/* Fixed-point amounts and lists of them. Decimal text is read digit by digit in whole numbers, never through a
 * double, so that what a person writes is what is counted. Which amounts of a resource there may be is checked
 * by its room (scaling/device.c). */
#include "base/quantity.h"

#include <math.h>
#include <string.h>

#include "base/str.h"

__extension__ typedef unsigned __int128 uint128;

static int refuse_negative(const char *what, const char *text, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s cannot be negative, but it is %.80s", what, text);
}

static int refuse_precision(const char *what, const char *text, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s: the precision cannot go beyond 0.0001, but it is %.80s", what, text);
}

static int refuse_overflow(const char *what, const char *text, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s is too large: it is %.80s, and at most 461168601842738 is possible",
                   what, text);
}

int quantity_from_double(double value, const char *what, quantity *amount, ty_error *err) {
    char text[32];
    (void)str_print(text, sizeof text, "%.10g", value);
    if (isnan(value) || isinf(value))
        return ty_fail(err, TY_EUSAGE, "%s must be a finite number, but it is %.80s", what, text);
    if (value < 0) return refuse_negative(what, text, err);
    double scaled = value * QUANTITY_ONE;
    /* 0.57 * 10000 is a hair below 5700 in binary: a count that is whole but for rounding is that whole
     * count. */
    double nearest = nearbyint(scaled);
    if (fabs(scaled - nearest) <= nearest * 4 * __DBL_EPSILON__) scaled = nearest;
    if (scaled >= (double)QUANTITY_MAX) return refuse_overflow(what, text, err);
    if (value > 0 && scaled < 1) return refuse_precision(what, text, err);
    *amount = (quantity)scaled;
    return 0;
}

/* What a suffix multiplies by, or 0 when there is no such suffix. */
static uint64_t suffix_factor(const char *suffix) {
    static const char letters[] = "KMGTP";
    if (*suffix == '\0') return 1;
    const char *letter = strchr(letters, *suffix == 'k' ? 'K' : *suffix);
    if (letter == NULL) return 0;
    suffix++;
    uint64_t base = *suffix == 'i' ? 1024 : 1000;
    suffix += *suffix == 'i';
    suffix += *suffix == 'B';
    if (*suffix != '\0') return 0;
    uint64_t factor = base;
    for (; letter > letters; letter--)
        factor *= base;
    return factor;
}

/* The digits before the point and behind it. */
struct number {
    const char *whole, *fraction;
    size_t n_whole, n_fraction;
};

enum { QUANTITY_DIGITS = 18 }; /* of a part; behind the point, further ones are below any amount that counts */

static bool scale_number(const struct number *number, uint64_t factor, uint128 *scaled, bool *positive) {
    uint64_t whole = 0, fraction = 0, divisor = 1;
    for (size_t i = 0; i < number->n_whole; i++) {
        if (whole > (uint64_t)QUANTITY_MAX / 10) return false;
        whole = whole * 10 + (uint64_t)(number->whole[i] - '0');
    }
    *positive = whole > 0;
    for (size_t i = 0; i < number->n_fraction; i++) {
        unsigned digit = (unsigned)(number->fraction[i] - '0');
        *positive = *positive || digit > 0;
        if (i >= QUANTITY_DIGITS) continue;
        fraction = fraction * 10 + digit;
        divisor *= 10;
    }
    uint128 unit = (uint128)factor * QUANTITY_ONE;
    *scaled = whole * unit + fraction * unit / divisor;
    return *scaled <= (uint128)QUANTITY_MAX;
}

int quantity_parse(const char *text, const char *what, quantity *amount, ty_error *err) {
    double value;
    if (strpbrk(text, "eE") != NULL && text[0] != '+' && str_to_double(text, &value))
        return quantity_from_double(value, what, amount, err);
    static const char digits[] = "0123456789";
    bool negative = text[0] == '-';
    struct number number = {.whole = text + negative, .n_whole = strspn(text + negative, digits)};
    number.fraction = number.whole + number.n_whole;
    number.fraction += *number.fraction == '.';
    number.n_fraction = strspn(number.fraction, digits);
    uint64_t factor =
        number.n_whole + number.n_fraction > 0 ? suffix_factor(number.fraction + number.n_fraction) : 0;
    if (factor == 0)
        return ty_fail(
            err, TY_EUSAGE,
            "%s must be a number with an optional K, M, G, T, P, Ki, Mi, Gi, Ti or Pi, not \"%.80s\"", what,
            text);
    if (negative) return refuse_negative(what, text, err);
    uint128 scaled;
    bool positive;
    if (!scale_number(&number, factor, &scaled, &positive)) return refuse_overflow(what, text, err);
    if (positive && scaled == 0) return refuse_precision(what, text, err);
    *amount = (quantity)scaled;
    return 0;
}

double quantity_to_double(quantity amount) {
    return (double)amount / QUANTITY_ONE;
}

void quantity_format(quantity amount, struct buffer *out) {
    uint64_t size = amount < 0 ? -(uint64_t)amount : (uint64_t)amount;
    buffer_printf(out, "%s%llu", amount < 0 ? "-" : "", (unsigned long long)(size / QUANTITY_ONE));
    unsigned rest = (unsigned)(size % QUANTITY_ONE);
    int digits = 4;
    if (rest == 0) return;
    for (; rest % 10 == 0; rest /= 10)
        digits--;
    buffer_printf(out, ".%0*u", digits, rest);
}

/* The hundredths that are left are cut, so that no text says more than there is. */
void bytes_format(uint64_t bytes, struct buffer *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (bytes >> 10 * unit >= 1024)
        unit++;
    quantity_format((quantity)((uint128)bytes * 100 >> 10 * unit) * (QUANTITY_ONE / 100), out);
    buffer_printf(out, " %s", units[unit]);
}

bool quantity_multiply(quantity amount, int64_t n, quantity *product) {
    return !__builtin_mul_overflow(amount, n, product);
}
