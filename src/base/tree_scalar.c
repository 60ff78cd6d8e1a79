/* What a plain scalar means: the core schema of YAML, narrowed to decimal numbers. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/tree.h"

static bool is_one_of(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

static bool is_not_finite(const char *text) {
    static const char *const words[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    if (*text == '+' || *text == '-') text++;
    return is_one_of(text, words, ARRAY_SIZE(words));
}

/* A whole number that an integer cannot hold becomes a real. */
static json_t *number(const char *text, const char **problem) {
    int64_t integer;
    double real;
    if (str_to_int64(text[0] == '+' ? text + 1 : text, INT64_MIN, INT64_MAX, &integer))
        return json_integer(integer);
    if (str_to_double(text, &real)) return json_real(real);
    *problem = "is too large a number";
    return NULL;
}

json_t *tree_plain_scalar(const char *text, const char **problem) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    if (is_one_of(text, nulls, ARRAY_SIZE(nulls))) return json_null();
    if (is_one_of(text, trues, ARRAY_SIZE(trues))) return json_true();
    if (is_one_of(text, falses, ARRAY_SIZE(falses))) return json_false();
    if (str_is_decimal(text)) return number(text, problem);
    if (!is_not_finite(text)) return json_string(text);
    *problem = "is no finite number";
    return NULL;
}
