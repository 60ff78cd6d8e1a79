/* Configuration as a person wrote it: YAML 1.1 core or JSON read into one tree (the tree of jansson), with the
 * line and column of every value kept, so that a message can say where. Refuses: keys twice in a map, anchors
 * and aliases, tags, several documents, nesting deeper than 64, NUL bytes, UTF-16, more than `limit` bytes, and
 * an empty file. Plain scalars follow YAML's core schema: true/false, null/~, decimal integers and reals; all
 * else is a string; quoted scalars are strings; .nan and .inf are refused. */
#ifndef BASE_DOCUMENT_H
#define BASE_DOCUMENT_H

#include <jansson.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

struct document; /* opaque */

int document_read(const char *path, size_t limit, struct document **document, ty_error *err);
int document_parse(const char *text, size_t size, const char *name, struct document **document, ty_error *err);
void document_destroy(struct document *document);

json_t *document_root(const struct document *document); /* borrowed */

/* Streams a document whose root is a map: `entry` is called with each value of the list under `list_key`, which
 * it borrows and which is freed after the call, so that a file of 100,000 nodes costs the memory of one; every
 * other key of the root is given with `entry(context, key, value)` as well. `where` is "FILE:LINE:COLUMN" of
 * the value. */
typedef int document_entry(void *context, const char *key, json_t *value, const char *where, ty_error *err);
int document_stream(const char *path, const char *list_key, document_entry *entry, void *context,
                    ty_error *err);

/* "FILE:LINE:COLUMN" of a value of the tree, for a message; the result lives as long as the document. All true,
 * false and null are one value to jansson: for them it is only "FILE", and document_where_key tells the
 * place. */
const char *document_where(const struct document *document, const json_t *value);

/* The place where `key` stands in `map`. */
const char *document_where_key(const struct document *document, const json_t *map, const char *key);

/* Fails with the unknown key, its place, the nearest known one and the list of known keys. Without a
 * document (NULL) the message has no place. */
int document_check_keys(const struct document *document, const json_t *map, const char *what,
                        const char *const *known, size_t n, ty_error *err);

/* Appends the values of a JSON list as one YAML stream, a document each. Texts keep their meaning for every
 * reader of YAML, whatever they hold. */
int document_write(const json_t *roots, struct buffer *out, ty_error *err);

/* -- trees of jansson and text */

/* As json_loadb. NULL when the text is no JSON: TY_EUSAGE, and why is in `error`; or when memory is short:
 * -ENOMEM. */
json_t *json_parse(const char *text, size_t size, size_t flags, json_error_t *error, ty_error *err);

/* json_dumps with those flags; the caller frees. NULL without memory or a tree. jansson writes 0.98 with 17
 * digits, as 0.97999999999999998; here each real has as few digits as give the same number back. */
char *json_format(const json_t *tree, size_t flags);

#endif
