/* Node labels and the selectors that workers put on them (docs/spec/placement.md 3.4). Pure. A selector is
 * checked and put in order as it is read, so that to match it cannot fail; which of a cluster's nodes it leaves
 * is found by placement. What is told of an error begins with the label, not with the option or field that it
 * stood in. */
#ifndef SCALING_LABEL_H
#define SCALING_LABEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* Of labels of a node, constraints of a selector and values of a constraint: these lists are looked through,
 * so more are refused. */
enum { LABELS_MAX = 1000 };

/* Labels of a node: few, sorted by key. Zero-initialised is none. */
struct labels {
    struct label {
        char *key, *value;
    } * items; /* owned */
    size_t n;
};

void labels_done(struct labels *labels);
int label_check_key(const char *key, ty_error *err); /* TY_EUSAGE for what no label can be called */
int label_check_value(const char *key, const char *value, ty_error *err); /* and for what it cannot say */
/* Adds or replaces, after a check of the syntax: TY_EUSAGE, or -ENOMEM. */
int labels_set(struct labels *labels, const char *key, const char *value, ty_error *err);
/* Adds or replaces all of `from`, which were checked when they got there; -ENOMEM. */
int labels_copy(struct labels *labels, const struct labels *from);
const char *labels_get(const struct labels *labels, const char *key); /* NULL when absent */

enum label_operator { LABEL_IN, LABEL_NOT_IN };

/* "key must be (or must not be) one of values". Values sorted, no value twice. */
struct label_constraint {
    char *key;
    enum label_operator op;
    char **values;
    size_t n_values;
};

/* Constraints that must all hold; no constraint twice. Zero-initialised accepts every node. */
struct label_selector {
    struct label_constraint *items; /* owned */
    size_t n;
};

void label_selector_done(struct label_selector *selector);
int label_selector_copy(struct label_selector *to,
                        const struct label_selector *from); /* `to` was empty; -ENOMEM */
/* One more constraint: "v", "!v", "in(a,b)" or "!in(a,b)" of a key. On failure the selector is as it was. */
int label_selector_add(struct label_selector *selector, const char *key, const char *expression, ty_error *err);
/* Adds "k=v,k2=in(a,b)" of the command line, all of it or nothing. */
int label_selector_parse(struct label_selector *selector, const char *text, ty_error *err);
bool label_selector_match(const struct label_selector *selector, const struct labels *labels);
bool label_selector_equal(const struct label_selector *a, const struct label_selector *b);
/* "zone in (a, b) and type not T4", for explanations. */
void label_selector_format(const struct label_selector *selector, struct buffer *out);

#endif
