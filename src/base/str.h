/* Words and lists in text. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/buffer.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True when `text` begins with `prefix`; `*rest` (may be NULL) is then what follows. */
bool str_prefix(const char *text, const char *prefix, const char **rest);
bool str_equal(const char *a, const char *b); /* NULL equals only NULL */
/* As snprintf, by the C locale's rules: what we write is read by programs, and the program that drives a run
 * may have set a locale with a decimal comma. buffer_printf, str_format and ty_fail do the same. */
int str_print(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int str_vprint(char *text, size_t size, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/* A new text, the caller's to free; NULL without memory. */
char *str_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Which of the words the text is, or -1. */
int str_find(const char *text, const char *const *words, size_t n);

/* Calls `each` with every piece of `text` between commas that are outside () and [], white space trimmed; empty
 * pieces too. Stops and returns what `each` returns when that is not 0. */
int str_split(const char *text, char separator, int (*each)(void *context, char *piece), void *context);

/* A whole decimal number from min to max; false, and `*value` untouched, for anything else (blanks, signs where
 * min >= 0, trailing text, overflow). */
bool str_to_int64(const char *text, int64_t min, int64_t max, int64_t *value);
bool str_to_double(const char *text, double *value); /* C locale; refuses NaN, Inf, hex and trailing text */
/* The shortest decimal that reads back as the same double, which is finite. */
enum { STR_REAL_SIZE = 32 };
void str_from_double(double value, char text[STR_REAL_SIZE]);

/* True for a decimal number in any of the usual forms: "-1", ".5", "5.", "1e-3"; it may be too large for a
 * double. */
bool str_is_decimal(const char *text);

/* The one of `names` that is nearest to `word` (optimal string alignment distance, case-blind; at most a third
 * of the word's length, at least 1); else the first that begins with it, from three letters on; or NULL. */
const char *str_nearest(const char *word, const char *const *names, size_t n);

enum { STR_HINT_SIZE = 96 };

/* "; did you mean NAME?" for the end of a message, "" when no name is near; returns `text`. */
const char *str_hint(const char *word, const char *const *names, size_t n, char text[STR_HINT_SIZE]);

/* "ENOENT", and "TERM" of SIGTERM; NULL for a number that has no name. Static storage. */
const char *str_errno_name(int number);
const char *str_signal_name(int number);

/* "signal 9 (SIGKILL)", or "signal 40" where it has no name; returns `text`. */
const char *str_signal(int number, char text[32]);

/* 64-bit FNV-1a. */
uint64_t str_hash(const char *bytes, size_t size);

/* UTF-8 as Unicode 15 defines it (table 3-7): no overlong forms, no surrogates, nothing beyond U+10FFFF. */

/* Length of the well-formed sequence at `text`, of which `size` bytes (at least 1) are there, with its
 * character in `*character` (may be NULL); or minus the number of bytes that belong to the broken one. */
int utf8_sequence(const char *text, size_t size, uint32_t *character);

bool utf8_valid(const char *text, size_t size);

/* False for what moves the cursor, sets a terminal's state or turns the direction of a line: control characters
 * (C0 but for the tab, DEL, C1) and direction marks (U+202A to U+202E, U+2066 to U+2069). */
bool utf8_is_harmless(uint32_t character);

/* Appends text so that a terminal shows it and does not obey it: control bytes as \x1b, C1 controls as \u009b,
 * what is no UTF-8 as \xff; tabs stay. */
void utf8_escape(const char *text, size_t size, struct buffer *out);

#endif
