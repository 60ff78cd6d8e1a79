/* Text is checked with jansson, which builds a tree that nobody needs, but is right in every corner; and
 * corrected token by token: outside of strings a word or a number is what stands between JSON's own
 * characters. */
#include "base/metrics.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/str.h"

/* Where the token at `at` ends; a string ends behind its quote. */
static size_t token_end(const char *text, size_t size, size_t at) {
    static const char between[] = " \t\r\n,:[]{}\"";
    size_t end = at;
    if (text[at] != '"') {
        while (end < size && memchr(between, text[end], sizeof between - 1) == NULL)
            end++;
        return end > at ? end : at + 1;
    }
    for (end = at + 1; end < size && text[end] != '"';)
        end += text[end] == '\\' ? 2 : 1;
    return end < size ? end + 1 : size;
}

static void add_number(const char *token, size_t size, bool whole, struct buffer *out) {
    CLEANUP_FREE char *text = strndup(token, size);
    int64_t fits;
    if (text == NULL) {
        out->failed = true;
        return;
    }
    double value;
    if (str_is_decimal(text) && !str_to_double(text, &value)) { /* 1e999 */
        buffer_text(out, *text == '-' ? "\"-Infinity\"" : "\"Infinity\"");
        return;
    }
    buffer_append(out, token, size);
    bool digits = text[strspn(text, "-0123456789")] == '\0';
    if (whole && digits && !str_to_int64(text, INT64_MIN, INT64_MAX, &fits)) buffer_text(out, ".0");
}

void metrics_correct(const char *text, size_t size, bool whole, struct buffer *out) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t at = 0, end; at < size; at = end) {
        const char *token = text + at, *word = NULL;
        end = token_end(text, size, at);
        for (size_t i = 0; i < ARRAY_SIZE(words) && word == NULL; i++)
            if (strlen(words[i]) == end - at && memcmp(token, words[i], end - at) == 0) word = words[i];
        if (word != NULL)
            buffer_printf(out, "\"%s\"", word);
        else if (*token == '-' || (*token >= '0' && *token <= '9'))
            add_number(token, end - at, whole, out);
        else
            buffer_append(out, token, end - at);
    }
}

json_t *metrics_read(const char *text, size_t size) {
    CLEANUP(buffer_done) struct buffer corrected = {0};
    json_error_t error;
    json_t *tree = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (tree == NULL && json_error_code(&error) == json_error_numeric_overflow) {
        metrics_correct(text, size, true, &corrected);
        if (!corrected.failed) tree = json_loadb(corrected.data, corrected.size, JSON_ALLOW_NUL, NULL);
    }
    if (json_is_object(tree)) return tree;
    json_decref(tree);
    return NULL;
}

/* 0 for an object, whose whole numbers may have any number of digits; TY_EUSAGE: `error` has why it is none. */
static int check(const char *text, size_t size, json_error_t *error) {
    ty_error why = {0};
    json_t *tree = json_parse(text, size, JSON_DECODE_INT_AS_REAL, error, &why);
    if (tree == NULL) return why.code;
    bool is_object = json_is_object(tree);
    json_decref(tree);
    if (!is_object) (void)snprintf(error->text, sizeof error->text, "it is no object");
    return is_object ? 0 : TY_EUSAGE;
}

int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err) {
    json_error_t error, second;
    int result = check(text, size, &error);
    if (result != TY_EUSAGE) return result < 0 ? ty_fail_memory(err) : 0;
    metrics_correct(text, size, false, corrected);
    if (!corrected->failed) result = check(corrected->data, corrected->size, &second);
    if (corrected->failed || result == -ENOMEM) return ty_fail_memory(err);
    if (result == 0) return 1;
    return ty_fail(err, TY_EUSAGE, "metrics must be a JSON object on one line: %s", error.text);
}
