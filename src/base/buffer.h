/* A growable run of bytes: text is built and input is gathered in it. Zero-initialised is empty: `struct buffer
 * b = {0};` Growing past memory sets `failed`; further appends do nothing, so a long build is checked once at
 * its end. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; /* owned; NUL-terminated after any text call (the NUL is not counted in size) */
    size_t size;
    size_t capacity;
    bool failed;
};

void buffer_done(struct buffer *buffer);  /* frees; leaves it empty and usable; suits CLEANUP */
void buffer_clear(struct buffer *buffer); /* size 0, memory kept */

/* Room for `size` more bytes behind the end; NULL when memory is short. The caller adds to `size` what it
 * wrote. */
char *buffer_reserve(struct buffer *buffer, size_t size);

void buffer_append(struct buffer *buffer, const void *bytes, size_t size);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_char(struct buffer *buffer, char c);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Drops `size` bytes from the front. */
void buffer_consume(struct buffer *buffer, size_t size);

/* The text, NUL-terminated, now the caller's to free(); the buffer is empty. NULL when it failed. */
char *buffer_take(struct buffer *buffer);

/* Appends `text` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void buffer_json_string(struct buffer *buffer, const char *text, size_t size);
void buffer_json_text(struct buffer *buffer, const char *text); /* NUL-terminated; NULL: null */

#endif
