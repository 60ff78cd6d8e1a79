/* Takes queries and paths apart, for the server alone. No address of ours needs an escape in its path, so one
 * that has any is unknown; in queries escapes are undone. What a parameter may say is checked in
 * parameters.c. */
#include "web/url.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place; false for a broken escape, a NUL or bytes that are no UTF-8. */
static bool unescape(char *text) {
    char *out = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '+') {
            *out++ = ' ';
        } else if (*at != '%') {
            *out++ = *at;
        } else {
            int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
            if (low < 0 || (high == 0 && low == 0)) return false;
            *out++ = (char)(high * 16 + low);
            at += 2;
        }
    }
    *out = '\0';
    return utf8_valid(text, (size_t)(out - text));
}

/* Names and values stay where they stand in a copy, which is cut up and unescaped in place: nothing grows by
 * that. */
int url_query_parse(const char *text, struct url_query *query, ty_error *err) {
    *query = (struct url_query){.text = strdup(text)};
    if (query->text == NULL) return ty_fail_memory(err);
    char *rest = query->text;
    int result = 0;
    for (char *piece; result == 0 && (piece = strsep(&rest, "&")) != NULL;) {
        if (*piece == '\0') continue;
        char *value = strchr(piece, '=');
        if (value != NULL) *value++ = '\0';
        if (query->n == URL_PARAMETERS) {
            result = ty_fail(err, TY_EUSAGE, "more than %d parameters", URL_PARAMETERS);
        } else if (!unescape(piece) || (value != NULL && !unescape(value))) {
            const char *given = text + (piece - query->text);
            size_t size = strcspn(given, "&");
            result =
                ty_fail(err, TY_EUSAGE, "%.*s: must be UTF-8 without a NUL, and each escape whole, as %%20",
                        (int)(size < 80 ? size : 80), given);
        } else {
            query->items[query->n++] =
                (struct url_parameter){piece, value != NULL ? value : piece + strlen(piece)};
        }
    }
    if (result < 0) url_query_done(query);
    return result;
}

void url_query_done(struct url_query *query) {
    free(query->text);
    *query = (struct url_query){0};
}

const char *url_query_get(const struct url_query *query, const char *name) {
    for (size_t i = query->n; i > 0; i--)
        if (str_equal(query->items[i - 1].name, name)) return query->items[i - 1].value;
    return NULL;
}

/* A `*` takes one segment, never an empty one, nor one with an escape, which could stand for a slash. */
bool url_matches(const char *path, const char *pattern, struct url_part *parts, size_t n_parts) {
    size_t n = 0;
    while (*pattern != '\0') {
        if (*pattern != '*') {
            if (*path++ != *pattern++) return false;
            continue;
        }
        size_t size = strcspn(path, "/%");
        if (size == 0 || path[size] == '%') return false;
        if (n < n_parts) parts[n++] = (struct url_part){path, size};
        path += size;
        pattern++;
    }
    return *path == '\0';
}
