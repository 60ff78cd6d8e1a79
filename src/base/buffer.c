/* The growable run of bytes of buffer.h. Whatever is appended is followed by a NUL outside `size`, so that
 * `data` can be read as text at any time after the first append. What bytes mean is not known here; JSON is
 * escaped in json.c. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { SMALLEST = 64 };

void buffer_done(struct buffer *buffer) {
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void buffer_clear(struct buffer *buffer) {
    buffer->size = 0;
    if (buffer->data != NULL) buffer->data[0] = '\0';
}

char *buffer_reserve(struct buffer *buffer, size_t size) {
    if (buffer->failed) return NULL;
    if (buffer->data != NULL && size < buffer->capacity - buffer->size) return buffer->data + buffer->size;
    if (size > PTRDIFF_MAX - buffer->size - 1) {
        buffer->failed = true;
        return NULL;
    }
    size_t wanted = buffer->size + size + 1;
    size_t capacity = buffer->capacity > SMALLEST ? buffer->capacity : SMALLEST;
    while (capacity < wanted)
        capacity += capacity / 2;
    char *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        buffer->failed = true;
        return NULL;
    }
    data[buffer->size] = '\0';
    buffer->data = data;
    buffer->capacity = capacity;
    return data + buffer->size;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t size) {
    char *to = buffer_reserve(buffer, size);
    if (to == NULL) return;
    if (size > 0) memcpy(to, bytes, size);
    to[size] = '\0';
    buffer->size += size;
}

void buffer_text(struct buffer *buffer, const char *text) {
    buffer_append(buffer, text, strlen(text));
}

void buffer_char(struct buffer *buffer, char c) {
    buffer_append(buffer, &c, 1);
}

void buffer_printf(struct buffer *buffer, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = str_vprint(NULL, 0, format, args);
    va_end(args);
    if (size < 0) {
        buffer->failed = true;
        return;
    }
    char *to = buffer_reserve(buffer, (size_t)size);
    if (to == NULL) return;
    va_start(args, format);
    (void)str_vprint(to, (size_t)size + 1, format, args);
    va_end(args);
    buffer->size += (size_t)size;
}

void buffer_consume(struct buffer *buffer, size_t size) {
    if (size >= buffer->size) {
        buffer_clear(buffer);
        return;
    }
    buffer->size -= size;
    memmove(buffer->data, buffer->data + size, buffer->size + 1);
}

char *buffer_take(struct buffer *buffer) {
    buffer_append(buffer, "", 0);
    char *data = buffer->data;
    if (buffer->failed) {
        free(data);
        data = NULL;
    }
    *buffer = (struct buffer){0};
    return data;
}

void buffer_json_string(struct buffer *buffer, const char *text, size_t size) {
    const unsigned char *bytes = (const unsigned char *)text;
    buffer_char(buffer, '"');
    for (size_t at = 0, plain = 0; plain < size;) {
        int length = 0;
        while (at < size && bytes[at] >= ' ' && bytes[at] != '"' && bytes[at] != '\\') {
            length = utf8_sequence(text + at, size - at, NULL);
            if (length < 0) break;
            at += (size_t)length;
        }
        buffer_append(buffer, text + plain, at - plain);
        if (at < size && length < 0) {
            buffer_text(buffer, "\xef\xbf\xbd");
            at += (size_t)-length;
        } else if (at < size) {
            static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
            const char *found = memchr(special, bytes[at], sizeof special - 1);
            if (found != NULL)
                buffer_append(buffer, (char[]){'\\', letters[found - special]}, 2);
            else
                buffer_printf(buffer, "\\u%04x", bytes[at]);
            at++;
        }
        plain = at;
    }
    buffer_char(buffer, '"');
}

void buffer_json_text(struct buffer *buffer, const char *text) {
    if (text == NULL)
        buffer_text(buffer, "null");
    else
        buffer_json_string(buffer, text, strlen(text));
}
