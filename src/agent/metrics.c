/* JSON of reports: checked with jansson, which builds a tree that nobody needs, but is right in every
 * corner. */
#include "agent/metrics.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"
#include "checkpoint/checkpoint.h"

enum { FLAGS = JSON_DECODE_INT_AS_REAL }; /* so that a whole number may have any number of digits */

/* jansson tells a want of memory as a wrong token, or not at all. */
json_t *json_parse(const char *text, size_t size, size_t flags, json_error_t *error, ty_error *err) {
    errno = 0;
    json_t *tree = json_loadb(text, size, flags, error);
    if (tree == NULL && errno == ENOMEM) (void)ty_fail_memory(err);
    if (tree == NULL && errno != ENOMEM) (void)ty_fail(err, TY_EUSAGE, "it is no JSON: %s", error->text);
    return tree;
}

static int check(const char *text, size_t size, json_error_t *error, ty_error *err) {
    json_t *tree = json_parse(text, size, FLAGS, error, err);
    if (tree == NULL) return err->code;
    int result = json_is_object(tree) ? 0 : TY_EUSAGE;
    if (result < 0) (void)snprintf(error->text, sizeof error->text, "it is no object");
    json_decref(tree);
    return result;
}

int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err) {
    json_error_t error, second;
    ty_error why = {0};
    int result = check(text, size, &error, &why);
    if (result != TY_EUSAGE) return result < 0 ? ty_fail_memory(err) : 0;
    metrics_correct(text, size, false, corrected);
    if (!corrected->failed) result = check(corrected->data, corrected->size, &second, &why);
    if (corrected->failed || result == -ENOMEM) return ty_fail_memory(err);
    if (result == 0) return 1;
    return ty_fail(err, TY_EUSAGE, "metrics must be a JSON object on one line: %s", error.text);
}

int files_check(const char *text, size_t size, ty_error *err) {
    json_error_t error;
    ty_error why = {0};
    json_t *tree = json_parse(text, size, FLAGS | JSON_DECODE_ANY, &error, &why);
    const char *place = json_string_value(tree);
    bool known = json_is_array(tree) || (place != NULL && json_string_length(tree) < PATH_MAX &&
                                         (*place == '/' || checkpoint_is_address(place)));
    json_decref(tree);
    if (known) return 0;
    if (why.code == -ENOMEM) return ty_fail_memory(err);
    return ty_fail(err, TY_EUSAGE,
                   "files must be a JSON list, or a path or address as a JSON string, on one line");
}
