/* The text of json_dumps, with its reals written anew: outside of strings a number is known by its characters.
 * Texts of metrics are checked by metrics.c, and by the worker without jansson (worker/json_text.c). */
#include "base/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"

/* jansson tells a want of memory as a wrong token, or not at all. */
json_t *json_parse(const char *text, size_t size, size_t flags, json_error_t *error, ty_error *err) {
    errno = 0;
    json_t *tree = json_loadb(text, size, flags, error);
    if (tree == NULL && errno == ENOMEM) (void)ty_fail_memory(err);
    if (tree == NULL && errno != ENOMEM) (void)ty_fail(err, TY_EUSAGE, "it is no JSON: %s", error->text);
    return tree;
}

static void add_real(const char *text, size_t size, struct buffer *out) {
    char number[64], shorter[STR_REAL_SIZE];
    double value = 0;
    if (size >= sizeof number) {
        buffer_append(out, text, size);
        return;
    }
    (void)snprintf(number, sizeof number, "%.*s", (int)size, text);
    (void)str_to_double(number, &value);
    str_from_double(value, shorter);
    buffer_text(out, shorter);
    if (strpbrk(shorter, ".en") == NULL) buffer_text(out, ".0"); /* the number stays a real */
}

static size_t string_size(const char *text) {
    size_t size = 1;
    while (text[size] != '\0' && text[size] != '"')
        size += text[size] == '\\' && text[size + 1] != '\0' ? 2 : 1;
    return size + (text[size] == '"');
}

char *json_format(const json_t *tree, size_t flags) {
    CLEANUP_FREE char *text = json_dumps(tree, flags);
    struct buffer out = {0};
    for (const char *at = text; at != NULL && *at != '\0';) {
        bool number = *at == '-' || (*at >= '0' && *at <= '9');
        size_t size = *at == '"' ? string_size(at) : number ? strspn(at, "+-.eE0123456789") : 1;
        if (number && strspn(at, "+-0123456789") < size)
            add_real(at, size, &out);
        else
            buffer_append(&out, at, size);
        at += size;
    }
    return text == NULL ? NULL : buffer_take(&out);
}
