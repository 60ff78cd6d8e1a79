/* Words and lists in text: the small questions that every parser asks. Numbers are read and written by the C
 * locale's rules whatever the program has set, and read only when the whole text is a number. What a word may
 * be is its parser's to check. */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

bool str_prefix(const char *text, const char *prefix, const char **rest) {
    size_t size = strlen(prefix);
    if (strncmp(text, prefix, size) != 0) return false;
    if (rest != NULL) *rest = text + size;
    return true;
}

bool str_equal(const char *a, const char *b) {
    if (a == NULL || b == NULL) return a == b;
    return strcmp(a, b) == 0;
}

/* The C locale is always there, and nobody's to free. */
static locale_t c_locale(void) {
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The locale of this thread alone is another one meanwhile. */
int str_vprint(char *text, size_t size, const char *format, va_list args) {
    locale_t before = uselocale(c_locale());
    int length = vsnprintf(text, size, format, args);
    (void)uselocale(before);
    return length;
}

int str_print(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = str_vprint(text, size, format, args);
    va_end(args);
    return length;
}

/* By malloc, which tests make fail at each call. */
char *str_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = str_vprint(NULL, 0, format, args);
    va_end(args);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    va_start(args, format);
    if (text != NULL) (void)str_vprint(text, (size_t)size + 1, format, args);
    va_end(args);
    return text;
}

int str_find(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_equal(text, words[i])) return (int)i;
    return -1;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

int str_split(const char *text, char separator, int (*each)(void *context, char *piece), void *context) {
    CLEANUP_FREE char *copy = strdup(text);
    if (copy == NULL) return -ENOMEM;
    for (char *piece = copy;;) {
        char *end = piece; /* the next separator that is in no bracket, or the NUL */
        for (int depth = 0; *end != '\0' && (*end != separator || depth > 0); end++) {
            if (*end == '(' || *end == '[') depth++;
            if ((*end == ')' || *end == ']') && depth > 0) depth--;
        }
        bool last = *end == '\0';
        char *next = end + 1;
        while (end > piece && is_blank(end[-1]))
            end--;
        *end = '\0';
        while (is_blank(*piece))
            piece++;
        int result = each(context, piece);
        if (result != 0 || last) return result;
        piece = next;
    }
}

bool str_to_int64(const char *text, int64_t min, int64_t max, int64_t *value) {
    const char *digits = text;
    if (min < 0 && *digits == '-') digits++;
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0') return false;
    int saved = errno;
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    bool good = errno == 0 && number >= min && number <= max;
    errno = saved;
    if (good) *value = number;
    return good;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or behind the point. */
bool str_is_decimal(const char *text) {
    static const char digits[] = "0123456789";
    if (*text == '+' || *text == '-') text++;
    size_t whole = strspn(text, digits);
    text += whole;
    size_t fraction = 0;
    if (*text == '.') {
        fraction = strspn(++text, digits);
        text += fraction;
    }
    if (whole + fraction == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-') text++;
        size_t exponent = strspn(text, digits);
        if (exponent == 0) return false;
        text += exponent;
    }
    return *text == '\0';
}

bool str_to_double(const char *text, double *value) {
    if (!str_is_decimal(text)) return false;
    double number = strtod_l(text, NULL, c_locale());
    if (!isfinite(number)) return false;
    *value = number;
    return true;
}

/* 15 digits name every number that has a shorter form than 17, but for those so small that their precision
 * shrinks. */
void str_from_double(double value, char text[STR_REAL_SIZE]) {
    int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    locale_t before = uselocale(c_locale());
    do
        (void)snprintf(text, STR_REAL_SIZE, "%.*g", digits, value);
    while (digits++ < DBL_DECIMAL_DIG && strtod(text, NULL) != value);
    (void)uselocale(before);
}

enum { LONGEST_WORD = 63, BEGINNING_MIN = 3 };

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment: insertions, deletions, changes and swaps of neighbours, no part edited twice. */
static int distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    int rows[3][LONGEST_WORD + 1];
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_size; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_size; j++) {
            int change = above[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = smaller(change, smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

const char *str_nearest(const char *word, const char *const *names, size_t n) {
    size_t size = strlen(word);
    if (size > LONGEST_WORD) return NULL;
    int limit = size >= 6 ? (int)(size / 3) : 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t name_size = strlen(names[i]);
        if (name_size > LONGEST_WORD) continue;
        int steps = distance(word, size, names[i], name_size);
        if (steps > limit) continue;
        nearest = names[i];
        if (steps == 0) break;
        limit = steps - 1;
    }
    for (size_t i = 0; i < n && nearest == NULL && size >= BEGINNING_MIN; i++)
        if (strncasecmp(names[i], word, size) == 0) nearest = names[i];
    return nearest;
}

const char *str_hint(const char *word, const char *const *names, size_t n, char text[STR_HINT_SIZE]) {
    const char *nearest = str_nearest(word, names, n);
    text[0] = '\0';
    if (nearest != NULL) (void)snprintf(text, STR_HINT_SIZE, "; did you mean %s?", nearest);
    return text;
}

uint64_t str_hash(const char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return hash;
}

const char *str_signal(int number, char text[32]) {
    const char *name = str_signal_name(number);
    if (name != NULL)
        (void)snprintf(text, 32, "signal %d (SIG%s)", number, name);
    else
        (void)snprintf(text, 32, "signal %d", number);
    return text;
}
