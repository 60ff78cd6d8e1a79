/* Documents as others see them: reading, streaming, and saying where a value stood. The events of libyaml
 * become values in tree.c; JSON, of which YAML cannot read all, is read by jansson, then without places. What a
 * document may say is its reader's to check. */
#include "base/document.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/tree.h"

struct document {
    char *name; /* owned */
    json_t *root;
    struct places places;
};

void document_destroy(struct document *document) {
    if (document == NULL) return;
    places_done(&document->places);
    json_decref(document->root);
    free(document->name);
    free(document);
}

static bool is_too_deep(const json_t *value, int depth) {
    if (!json_is_object(value) && !json_is_array(value)) return false;
    if (depth > TREE_DEEPEST) return true;
    const char *key;
    json_t *member;
    size_t i;
    json_object_foreach((json_t *)value, key, member) {
        if (is_too_deep(member, depth + 1)) return true;
    }
    json_array_foreach(value, i, member) {
        if (is_too_deep(member, depth + 1)) return true;
    }
    return false;
}

/* JSON that YAML cannot read: "\ud83d\ude00", keys of more than 1024 characters. It is read without places. */
static bool read_json(const char *text, size_t size, struct document *document) {
    size_t begin = 0;
    while (begin < size && strchr(" \t\r\n", text[begin]) != NULL)
        begin++;
    if (begin == size || (text[begin] != '{' && text[begin] != '[')) return false;
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    if (value == NULL || is_too_deep(value, 1)) {
        json_decref(value);
        return false;
    }
    json_decref(document->root);
    places_done(&document->places);
    document->root = value;
    return true;
}

int document_parse(const char *text, size_t size, const char *name, struct document **document, ty_error *err) {
    struct document *parsed = calloc(1, sizeof *parsed);
    if (parsed == NULL) return ty_fail_memory(err);
    parsed->name = strdup(name);
    struct tree tree = {.name = name, .places = &parsed->places, .err = err};
    int result = parsed->name == NULL ? ty_fail_memory(err) : tree_from_text(&tree, size > 0 ? text : "", size);
    if (result == 0) {
        result = tree_begin(&tree);
        if (result == 0) result = tree_value(&tree, 1, &parsed->root);
        result = result < 0 ? result : tree_end(&tree);
    }
    bool no_yaml = tree.parser.error == YAML_SCANNER_ERROR || tree.parser.error == YAML_PARSER_ERROR;
    tree_done(&tree);
    if (no_yaml && read_json(text, size, parsed)) {
        if (err != NULL) *err = (ty_error){0};
        result = 0;
    }
    if (result < 0)
        document_destroy(parsed);
    else
        *document = parsed;
    return result;
}

static const char *name_of(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int document_read(const char *path, size_t limit, struct document **document, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = file_read(path, limit, &text, err);
    if (result < 0) return result;
    return document_parse(text.data, text.size, name_of(path), document, err);
}

json_t *document_root(const struct document *document) {
    return document->root;
}

static const char *where(const struct document *document, const void *of) {
    if (document == NULL) return NULL;
    struct place *place = places_get(&document->places, of);
    if (place == NULL) return document->name;
    if (place->text == NULL) place->text = str_format("%s:%u:%u", document->name, place->line, place->column);
    return place->text != NULL ? place->text : document->name;
}

const char *document_where(const struct document *document, const json_t *value) {
    return where(document, value);
}

const char *document_where_key(const struct document *document, const json_t *map, const char *key) {
    void *member = json_object_iter_at((json_t *)map, key); /* jansson has no const form */
    return where(document, member != NULL ? json_object_iter_key(member) : NULL);
}

int document_check_keys(const struct document *document, const json_t *map, const char *what,
                        const char *const *known, size_t n, ty_error *err) {
    if (!json_is_object(map))
        return ty_fail(err, TY_EUSAGE, "%s%s%s must be a map of keys and values",
                       document != NULL ? document_where(document, map) : "", document != NULL ? ": " : "",
                       what);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        if (str_find(key, known, n) >= 0) continue;
        CLEANUP(buffer_done) struct buffer list = {0};
        for (size_t i = 0; i < n; i++)
            buffer_printf(&list, "%s%s", i > 0 ? ", " : "", known[i]);
        if (list.failed) return ty_fail_memory(err);
        const char *place = document_where_key(document, map, key), *nearest = str_nearest(key, known, n);
        return ty_fail(err, TY_EUSAGE, "%s%s%s has no key \"%.80s\"%s%s%s; known: %s",
                       place != NULL ? place : "", place != NULL ? ": " : "", what, key,
                       nearest != NULL ? " (did you mean \"" : "", nearest != NULL ? nearest : "",
                       nearest != NULL ? "\"?)" : "", n > 0 ? list.data : "none");
    }
    return 0;
}

/* A document while it is streamed. */
struct stream {
    struct tree tree;
    struct hash *keys; /* seen at the root */
    const char *list_key;
    document_entry *entry;
    void *context;
};

/* Gives the value that begins here to the caller. */
static int give_value(struct stream *stream, const char *key, int depth) {
    struct tree *tree = &stream->tree;
    const yaml_mark_t *mark = &tree->event.start_mark;
    CLEANUP_FREE char *place = str_format("%s:%zu:%zu", tree->name, mark->line + 1, mark->column + 1);
    if (place == NULL) return ty_fail_memory(tree->err);
    json_t *value = NULL;
    int result = tree_value(tree, depth, &value);
    if (result < 0) return result;
    result = stream->entry(stream->context, key, value, place, tree->err);
    json_decref(value);
    return result;
}

static int give_list(struct stream *stream) {
    struct tree *tree = &stream->tree;
    if (tree->event.type != YAML_SEQUENCE_START_EVENT)
        return tree_refuse(tree, "\"%s\" must be a list", stream->list_key);
    for (;;) {
        int result = tree_next(tree);
        if (result != 0 || tree->event.type == YAML_SEQUENCE_END_EVENT) return result;
        result = give_value(stream, stream->list_key, 3);
        if (result != 0) return result;
    }
}

static int give_member(struct stream *stream) {
    struct tree *tree = &stream->tree;
    const char *text;
    int result = tree_key(tree, &text);
    if (result < 0) return result;
    CLEANUP_FREE char *key = strdup(text);
    int added = key == NULL ? -ENOMEM : hash_set(stream->keys, key, 0);
    if (added < 0) return ty_fail_memory(tree->err);
    if (added == 0) return tree_refuse(tree, "key \"%s\" appears twice in one map", key);
    result = tree_next(tree);
    if (result < 0) return result;
    return strcmp(key, stream->list_key) == 0 ? give_list(stream) : give_value(stream, key, 2);
}

static int give_root(struct stream *stream) {
    struct tree *tree = &stream->tree;
    int result = tree_begin(tree);
    if (result < 0) return result;
    if (tree->event.type != YAML_MAPPING_START_EVENT)
        return tree_refuse(tree, "the file must be a map with the key \"%s\"", stream->list_key);
    for (;;) {
        result = tree_next(tree);
        if (result != 0) return result;
        if (tree->event.type == YAML_MAPPING_END_EVENT) return tree_end(tree);
        result = give_member(stream);
        if (result != 0) return result;
    }
}

int document_stream(const char *path, const char *list_key, document_entry *entry, void *context,
                    ty_error *err) {
    CLEANUP_FD int opened = -1;
    bool standard_input = strcmp(path, "-") == 0;
    if (!standard_input) opened = open(path, O_RDONLY | O_CLOEXEC);
    if (!standard_input && opened < 0) return ty_fail(err, -errno, "cannot open %s: %s", path, strerror(errno));
    struct stream stream = {.tree = {.name = name_of(path), .err = err},
                            .keys = hash_create(),
                            .list_key = list_key,
                            .entry = entry,
                            .context = context};
    int result = stream.keys == NULL ? ty_fail_memory(err) : 0;
    if (result == 0) result = tree_from_file(&stream.tree, standard_input ? STDIN_FILENO : opened);
    if (result == 0) result = give_root(&stream);
    tree_done(&stream.tree);
    hash_destroy(stream.keys);
    return result;
}
