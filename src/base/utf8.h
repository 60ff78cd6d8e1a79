/* UTF-8 as Unicode 15 defines it (table 3-7): no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed sequence at `text`, of which `size` bytes (at least 1) are there, with its character in
 * `*character` (may be NULL); or minus the number of bytes that belong to the broken one. */
int utf8_sequence(const char *text, size_t size, uint32_t *character);

bool utf8_valid(const char *text, size_t size);

#endif
