/* JSON of reports: checked with jansson, which builds a tree that nobody needs, but is right in every corner. */
#include "agent/metrics.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { FLAGS = JSON_DECODE_INT_AS_REAL }; /* so that a whole number may have any number of digits */

static int check(const char *text, size_t size, json_error_t *error) {
    json_t *tree = json_loadb(text, size, FLAGS, error);
    bool object = json_is_object(tree);
    if (tree != NULL && !object) (void)snprintf(error->text, sizeof error->text, "it is no object");
    json_decref(tree);
    return object ? 0 : TY_EUSAGE;
}

static size_t string_size(const char *text, size_t size) {
    size_t at = 1;
    while (at < size && text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at < size ? at + 1 : size;
}

/* The string for a bare word or number that JSON cannot say, or NULL. */
static const char *string_for(const char *token, size_t size) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strlen(words[i]) == size && memcmp(token, words[i], size) == 0) return words[i];
    if (token[0] != '-' && (token[0] < '0' || token[0] > '9')) return NULL;
    CLEANUP_FREE char *number = strndup(token, size);
    double value = number != NULL ? strtod(number, NULL) : 0;
    if (!isinf(value)) return NULL;
    return value > 0 ? "Infinity" : "-Infinity";
}

static void correct(const char *text, size_t size, struct buffer *out) {
    size_t at = 0;
    while (at < size) {
        size_t token = text[at] == '"' ? string_size(text + at, size - at) : strcspn(text + at, " \t,:[]{}\"");
        const char *string = token > 0 && text[at] != '"' ? string_for(text + at, token) : NULL;
        if (string != NULL)
            buffer_printf(out, "\"%s\"", string);
        else
            buffer_append(out, text + at, token > 0 ? token : 1);
        at += token > 0 ? token : 1;
    }
}

int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err) {
    json_error_t error;
    if (check(text, size, &error) == 0) return 0;
    correct(text, size, corrected);
    json_error_t second;
    if (!corrected->failed && check(corrected->data, corrected->size, &second) == 0) return 1;
    return ty_fail(err, TY_EUSAGE, "metrics must be a JSON object on one line: %s", error.text);
}

bool metrics_is_list(const char *text, size_t size) {
    json_t *tree = json_loadb(text, size, FLAGS, NULL);
    bool list = json_is_array(tree);
    json_decref(tree);
    return list;
}

bool metrics_is_place(const char *text, size_t size) {
    json_t *tree = json_loadb(text, size, JSON_DECODE_ANY, NULL);
    const char *place = json_string_value(tree);
    bool known =
        place != NULL && json_string_length(tree) < PATH_MAX && (*place == '/' || strstr(place, "://") != NULL);
    json_decref(tree);
    return known;
}
