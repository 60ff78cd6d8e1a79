/* From YAML events to jansson values, one value at a time; the inside of document.h. libyaml is seen nowhere
 * else. */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <yaml.h>

#include "base/error.h"

enum { TREE_DEEPEST = 64 };

/* Reads events of one text; a function that fails leaves only tree_done to be called. */
struct tree {
    const char *name;      /* borrowed; of the file, for messages */
    struct places *places; /* borrowed; NULL when places are not kept */
    ty_error *err;         /* borrowed; may be NULL */
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    int fd;             /* when read from a file */
    int read_error;     /* errno of a read that failed */
};

int tree_from_text(struct tree *tree, const char *text, size_t size); /* the text is borrowed until tree_done */
int tree_from_file(struct tree *tree, int fd);                        /* the descriptor too */
void tree_done(struct tree *tree);

/* To the first event of the one document; fails when there is none. */
int tree_begin(struct tree *tree);

/* To the next event, which is neither an alias nor anchored nor tagged. */
int tree_next(struct tree *tree);

/* The value that begins with the current event, at `depth` (1 for the root); the current event is then its
 * last. */
int tree_value(struct tree *tree, int depth, json_t **value);

/* The current event must be a scalar: a key. Its text is borrowed until the next event. */
int tree_key(struct tree *tree, const char **key);

/* Behind the root: fails when there is more. */
int tree_end(struct tree *tree);

/* TY_EUSAGE with "FILE:LINE:COLUMN: " of the current event before the text. */
int tree_refuse(struct tree *tree, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A map from addresses to places in a text: where each value and each key of a document was read. */

struct place {
    const void *of; /* NULL when the slot is free */
    uint32_t line, column;
    char *text; /* owned; the place as a message shows it, made when first asked for */
};

struct places {
    struct place *slots; /* owned */
    size_t n_slots;      /* a power of two, or 0 */
    size_t n;
};

void places_done(struct places *places);

/* NULL when the address has none. Valid until the tree has another value. */
struct place *places_get(const struct places *places, const void *of);

#endif
