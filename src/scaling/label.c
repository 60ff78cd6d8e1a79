/* Labels and selectors (docs/spec/placement.md 3.4): the syntax is that of Kubernetes labels, the forms of an
 * expression are "v", "!v", "in(a,b)" and "!in(a,b)". Lists are short, so they are sorted arrays. Which nodes a
 * selector leaves is the planner's to find. */
#include "scaling/label.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { NAME_LIMIT = 63, PREFIX_LIMIT = 253 };

static bool is_word(const char *text, size_t size, size_t limit, const char *inner) {
    if (size == 0 || size > limit) return false;
    if (!isalnum((unsigned char)text[0]) || !isalnum((unsigned char)text[size - 1])) return false;
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)text[i]) && strchr(inner, text[i]) == NULL) return false;
    return true;
}

int label_check_key(const char *key, ty_error *err) {
    const char *slash = strchr(key, '/');
    const char *name = slash == NULL ? key : slash + 1;
    bool good = is_word(name, strlen(name), NAME_LIMIT, "-_.");
    if (slash != NULL) good = good && is_word(key, (size_t)(slash - key), PREFIX_LIMIT, "-.");
    if (good) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "label key \"%.80s\" must be [PREFIX/]NAME: letters, digits, '-', '_', '.', a letter or digit first "
        "and last, NAME at most 63 and PREFIX at most 253 long",
        key);
}

int label_check_value(const char *key, const char *value, ty_error *err) {
    if (value[0] == '\0' || is_word(value, strlen(value), NAME_LIMIT, "-_.")) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "label %.80s: the value \"%.80s\" must be at most 63 letters, digits, '-', '_', '.', with a letter or "
        "digit first and last",
        key, value);
}

/* -- labels of a node -- */

void labels_done(struct labels *labels) {
    for (size_t i = 0; i < labels->n; i++) {
        free(labels->items[i].key);
        free(labels->items[i].value);
    }
    free(labels->items);
    *labels = (struct labels){0};
}

static bool stands_before(const void *label, const void *key) {
    return strcmp(((const struct label *)label)->key, key) < 0;
}

/* The place of a key among the sorted labels; `*there`: it is there already. */
static size_t find_place(const struct labels *labels, const char *key, bool *there) {
    size_t at = array_place(labels->items, labels->n, sizeof *labels->items, stands_before, key);
    *there = at < labels->n && strcmp(labels->items[at].key, key) == 0;
    return at;
}

int labels_set(struct labels *labels, const char *key, const char *value, ty_error *err) {
    int result = label_check_key(key, err);
    if (result == 0) result = label_check_value(key, value, err);
    if (result < 0) return result;
    CLEANUP_FREE char *copy = strdup(value);
    if (copy == NULL) return ty_fail_memory(err);
    bool there;
    size_t at = find_place(labels, key, &there);
    if (there) {
        free(labels->items[at].value);
        labels->items[at].value = TAKE(copy);
        return 0;
    }
    if (labels->n == LABELS_MAX) return ty_fail(err, TY_EUSAGE, "more than %d labels", LABELS_MAX);
    if (ARRAY_GROW(labels->items, labels->n) < 0) return ty_fail_memory(err);
    char *key_copy = strdup(key);
    if (key_copy == NULL) return ty_fail_memory(err);
    struct label *items = labels->items;
    memmove(items + at + 1, items + at, (labels->n - at) * sizeof *items);
    items[at] = (struct label){key_copy, TAKE(copy)};
    labels->n++;
    return 0;
}

int labels_copy(struct labels *labels, const struct labels *from) {
    int result = 0;
    for (size_t i = 0; i < from->n && result == 0; i++)
        result = labels_set(labels, from->items[i].key, from->items[i].value, NULL);
    return result;
}

const char *labels_get(const struct labels *labels, const char *key) {
    bool there;
    size_t at = find_place(labels, key, &there);
    return there ? labels->items[at].value : NULL;
}

/* -- one constraint -- */

static void constraint_done(struct label_constraint *constraint) {
    for (size_t i = 0; i < constraint->n_values; i++)
        free(constraint->values[i]);
    free(constraint->values);
    free(constraint->key);
    *constraint = (struct label_constraint){0};
}

/* Adds a value at its sorted place; one that is there already changes nothing. */
static int add_value(struct label_constraint *constraint, const char *value) {
    size_t at = 0;
    while (at < constraint->n_values && strcmp(constraint->values[at], value) < 0)
        at++;
    if (at < constraint->n_values && strcmp(constraint->values[at], value) == 0) return 0;
    if (ARRAY_GROW(constraint->values, constraint->n_values) < 0) return -ENOMEM;
    char *copy = strdup(value);
    if (copy == NULL) return -ENOMEM;
    char **values = constraint->values;
    memmove(values + at + 1, values + at, (constraint->n_values - at) * sizeof *values);
    values[at] = copy;
    constraint->n_values++;
    return 0;
}

struct value_list {
    struct label_constraint *constraint;
    ty_error *err;
};

static int add_checked_value(void *context, char *value) {
    struct value_list *list = context;
    const char *key = list->constraint->key;
    if (value[0] == '\0')
        return ty_fail(list->err, TY_EUSAGE, "label %.80s: a value in \"in(...)\" is empty", key);
    int result = label_check_value(key, value, list->err);
    if (result < 0) return result;
    if (list->constraint->n_values == LABELS_MAX)
        return ty_fail(list->err, TY_EUSAGE, "label %.80s: more than %d values", key, LABELS_MAX);
    return add_value(list->constraint, value) < 0 ? ty_fail_memory(list->err) : 0;
}

/* `text` is what follows "in(". On failure the constraint may hold some of the values. */
static int parse_list(struct label_constraint *constraint, const char *text, ty_error *err) {
    size_t size = strlen(text);
    if (size == 0 || text[size - 1] != ')')
        return ty_fail(err, TY_EUSAGE, "label %.80s: \"in(%.80s\" has no closing parenthesis", constraint->key,
                       text);
    CLEANUP_FREE char *values = strndup(text, size - 1);
    if (values == NULL) return ty_fail_memory(err);
    struct value_list list = {constraint, err};
    int result = str_split(values, ',', add_checked_value, &list);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* -- selectors -- */

void label_selector_done(struct label_selector *selector) {
    for (size_t i = 0; i < selector->n; i++)
        constraint_done(&selector->items[i]);
    free(selector->items);
    *selector = (struct label_selector){0};
}

static bool has_constraint(const struct label_selector *selector, const struct label_constraint *constraint) {
    for (size_t i = 0; i < selector->n; i++) {
        const struct label_constraint *own = &selector->items[i];
        bool equal = own->op == constraint->op && own->n_values == constraint->n_values &&
                     strcmp(own->key, constraint->key) == 0;
        for (size_t v = 0; v < own->n_values && equal; v++)
            equal = strcmp(own->values[v], constraint->values[v]) == 0;
        if (equal) return true;
    }
    return false;
}

/* Moves the constraint to the end of the selector, or frees it when the selector has it. */
static int take_constraint(struct label_selector *selector, struct label_constraint *constraint) {
    if (has_constraint(selector, constraint)) {
        constraint_done(constraint);
        return 0;
    }
    if (ARRAY_GROW(selector->items, selector->n) < 0) {
        constraint_done(constraint);
        return -ENOMEM;
    }
    selector->items[selector->n++] = *constraint;
    return 0;
}

int label_selector_copy(struct label_selector *to, const struct label_selector *from) {
    struct label_selector copy = {0};
    for (size_t i = 0; i < from->n; i++) {
        const struct label_constraint *item = &from->items[i];
        struct label_constraint made = {.key = strdup(item->key), .op = item->op};
        int result = made.key == NULL ? -ENOMEM : 0;
        for (size_t j = 0; j < item->n_values && result == 0; j++)
            result = add_value(&made, item->values[j]);
        if (result < 0) constraint_done(&made);
        if (result == 0) result = take_constraint(&copy, &made);
        if (result == 0) continue;
        label_selector_done(&copy);
        return result;
    }
    *to = copy;
    return 0;
}

int label_selector_add(struct label_selector *selector, const char *key, const char *expression,
                       ty_error *err) {
    int result = label_check_key(key, err);
    if (result < 0) return result;
    if (selector->n == LABELS_MAX)
        return ty_fail(err, TY_EUSAGE, "a label selector of more than %d constraints", LABELS_MAX);
    const char *value = expression, *list;
    bool not_in = str_prefix(expression, "!", &value);
    struct label_constraint constraint = {.key = strdup(key), .op = not_in ? LABEL_NOT_IN : LABEL_IN};
    if (constraint.key == NULL) return ty_fail_memory(err);
    if (str_prefix(value, "in(", &list)) {
        result = parse_list(&constraint, list, err);
    } else {
        result = label_check_value(key, value, err);
        if (result == 0 && add_value(&constraint, value) < 0) result = ty_fail_memory(err);
    }
    if (result < 0) {
        constraint_done(&constraint);
        return result;
    }
    return take_constraint(selector, &constraint) < 0 ? ty_fail_memory(err) : 0;
}

struct selector_list {
    struct label_selector selector;
    ty_error *err;
};

static int add_piece(void *context, char *piece) {
    struct selector_list *list = context;
    char *equals = strchr(piece, '=');
    if (equals == NULL)
        return ty_fail(list->err, TY_EUSAGE,
                       "label selector \"%.80s\" must be KEY=VALUE, with VALUE one of v, !v, in(a,b), !in(a,b)",
                       piece);
    *equals = '\0';
    return label_selector_add(&list->selector, piece, equals + 1, list->err);
}

int label_selector_parse(struct label_selector *selector, const char *text, ty_error *err) {
    struct selector_list list = {.err = err};
    if (label_selector_copy(&list.selector, selector) < 0) return ty_fail_memory(err);
    int result = str_split(text, ',', add_piece, &list);
    if (result < 0) {
        label_selector_done(&list.selector);
        return result == -ENOMEM ? ty_fail_memory(err) : result;
    }
    label_selector_done(selector);
    *selector = list.selector;
    return 0;
}

/* A label that is not there is in no list: it fails "in", and passes "not in". */
bool label_selector_match(const struct label_selector *selector, const struct labels *labels) {
    for (size_t i = 0; i < selector->n; i++) {
        const struct label_constraint *constraint = &selector->items[i];
        const char *value = labels_get(labels, constraint->key);
        bool found = false;
        for (size_t v = 0; v < constraint->n_values && value != NULL && !found; v++)
            found = strcmp(constraint->values[v], value) == 0;
        if (found != (constraint->op == LABEL_IN)) return false;
    }
    return true;
}

/* In whichever order: of as many constraints, none twice, each is in the other. */
bool label_selector_equal(const struct label_selector *a, const struct label_selector *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!has_constraint(b, &a->items[i])) return false;
    return true;
}

void label_selector_format(const struct label_selector *selector, struct buffer *out) {
    for (size_t i = 0; i < selector->n; i++) {
        const struct label_constraint *constraint = &selector->items[i];
        bool in = constraint->op == LABEL_IN;
        buffer_printf(out, "%s%s", i > 0 ? " and " : "", constraint->key);
        if (constraint->n_values == 1) {
            const char *value = constraint->values[0];
            buffer_printf(out, "%s%s", in ? " " : " not ", value[0] == '\0' ? "\"\"" : value);
            continue;
        }
        buffer_text(out, in ? " in (" : " not in (");
        for (size_t v = 0; v < constraint->n_values; v++)
            buffer_printf(out, "%s%s", v > 0 ? ", " : "", constraint->values[v]);
        buffer_char(out, ')');
    }
}
