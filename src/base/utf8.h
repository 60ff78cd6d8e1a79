/* UTF-8 as Unicode 15 defines it (table 3-7): no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

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
