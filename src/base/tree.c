/* Builds values from the events of libyaml. What a configuration has no use for and an attacker has (aliases,
 * tags, deep nesting) is refused where the event arrives, before anything is built from it. Whether names and
 * values are known is checked by whoever asked for the document. */
#include "base/tree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

/* -- plain scalars: the core schema of YAML, narrowed to decimal numbers -- */

/* NULL with *problem when the text is refused, without when memory is short. */
static json_t *plain_scalar(const char *text, const char **problem) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    static const char *const not_finite[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    if (str_find(text, nulls, ARRAY_SIZE(nulls)) >= 0) return json_null();
    if (str_find(text, trues, ARRAY_SIZE(trues)) >= 0) return json_true();
    if (str_find(text, falses, ARRAY_SIZE(falses)) >= 0) return json_false();
    bool has_sign = *text == '+' || *text == '-';
    if (str_is_decimal(text)) { /* a whole number that an integer cannot hold becomes a real */
        int64_t integer;
        double real;
        if (str_to_int64(*text == '+' ? text + 1 : text, INT64_MIN, INT64_MAX, &integer))
            return json_integer(integer);
        if (str_to_double(text, &real)) return json_real(real);
        *problem = "is too large a number";
        return NULL;
    }
    if (str_find(text + has_sign, not_finite, ARRAY_SIZE(not_finite)) < 0) return json_string(text);
    *problem = "is no finite number";
    return NULL;
}

static int begin_parser(struct tree *tree) {
    if (yaml_parser_initialize(&tree->parser) == 0) {
        (void)memset(&tree->parser, 0, sizeof tree->parser);
        return ty_fail_memory(tree->err);
    }
    return 0;
}

int tree_from_text(struct tree *tree, const char *text, size_t size) {
    int result = begin_parser(tree);
    if (result == 0) yaml_parser_set_input_string(&tree->parser, (const unsigned char *)text, size);
    return result;
}

static int read_some(void *context, unsigned char *bytes, size_t size, size_t *n_read) {
    struct tree *tree = context;
    ssize_t n;
    do
        n = read(tree->fd, bytes, size);
    while (n < 0 && errno == EINTR);
    if (n < 0) tree->read_error = errno;
    *n_read = n < 0 ? 0 : (size_t)n;
    return n >= 0;
}

int tree_from_file(struct tree *tree, int fd) {
    int result = begin_parser(tree);
    tree->fd = fd;
    if (result == 0) yaml_parser_set_input(&tree->parser, read_some, tree);
    return result;
}

void tree_done(struct tree *tree) {
    yaml_event_delete(&tree->event);
    yaml_parser_delete(&tree->parser);
}

int tree_refuse(struct tree *tree, const char *format, ...) {
    const yaml_mark_t *mark = &tree->event.start_mark;
    va_list args;
    va_start(args, format);
    int result = ty_vfail(tree->err, TY_EUSAGE, format, args);
    va_end(args);
    (void)ty_wrap(tree->err, "%s:%zu:%zu", tree->name, mark->line + 1, mark->column + 1);
    return result;
}

static int fail_parser(struct tree *tree) {
    const yaml_parser_t *parser = &tree->parser;
    if (tree->read_error != 0)
        return ty_fail(tree->err, -tree->read_error, "cannot read %s: %s", tree->name,
                       strerror(tree->read_error));
    if (parser->error == YAML_MEMORY_ERROR) return ty_fail_memory(tree->err);
    const char *problem = parser->problem != NULL ? parser->problem : "cannot be understood";
    if (parser->error == YAML_READER_ERROR)
        return ty_fail(tree->err, TY_EUSAGE, "%s: %s (at byte %zu)", tree->name, problem,
                       parser->problem_offset);
    const char *context = parser->context != NULL ? parser->context : "";
    const char *hint =
        strcmp(context, "while scanning a tag") == 0 ? ": put text that begins with ! in quotes" : "";
    return ty_fail(tree->err, TY_EUSAGE, "%s:%zu:%zu: %s%s%s%s", tree->name, parser->problem_mark.line + 1,
                   parser->problem_mark.column + 1, problem, *context != '\0' ? " " : "", context, hint);
}

int tree_next(struct tree *tree) {
    yaml_event_delete(&tree->event);
    if (yaml_parser_parse(&tree->parser, &tree->event) == 0) return fail_parser(tree);
    const yaml_event_t *event = &tree->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return tree_refuse(tree, "aliases are not supported (*%s): write the value out",
                           event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor != NULL)
        return tree_refuse(tree, "anchors are not supported (&%s): write the value out", anchor);
    if (tag != NULL)
        return tree_refuse(tree, "tags are not supported (%s): put text that begins with ! in quotes", tag);
    return 0;
}

int tree_begin(struct tree *tree) {
    int result = tree_next(tree);
    if (result < 0) return result;
    yaml_encoding_t encoding = tree->event.data.stream_start.encoding;
    if (encoding == YAML_UTF16LE_ENCODING || encoding == YAML_UTF16BE_ENCODING)
        return ty_fail(tree->err, TY_EUSAGE, "%s is UTF-16: save it as UTF-8", tree->name);
    result = tree_next(tree);
    if (result < 0) return result;
    if (tree->event.type == YAML_STREAM_END_EVENT)
        return ty_fail(tree->err, TY_EUSAGE, "%s is empty", tree->name);
    return tree_next(tree);
}

int tree_end(struct tree *tree) {
    int result = tree_next(tree); /* the end of the document */
    if (result == 0) result = tree_next(tree);
    if (result < 0) return result;
    if (tree->event.type != YAML_STREAM_END_EVENT)
        return tree_refuse(tree, "a second document begins: a file holds one");
    return 0;
}

/* -- places: the address map, by open addressing -- */

void places_done(struct places *places) {
    for (size_t i = 0; i < places->n_slots; i++)
        free(places->slots[i].text);
    free(places->slots);
    *places = (struct places){0};
}

/* The slot of `of`, or the free one in which it belongs. Addresses of heap blocks differ above their lowest
 * four bits. */
static struct place *find(struct place *slots, size_t n_slots, const void *of) {
    size_t at = (size_t)(((uintptr_t)of >> 4) * 0x9e3779b97f4a7c15 >> 32) & (n_slots - 1);
    while (slots[at].of != NULL && slots[at].of != of)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static int grow(struct places *places) {
    size_t n_slots = places->n_slots == 0 ? 16 : 2 * places->n_slots;
    struct place *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < places->n_slots; i++)
        if (places->slots[i].of != NULL) *find(slots, n_slots, places->slots[i].of) = places->slots[i];
    free(places->slots);
    places->slots = slots;
    places->n_slots = n_slots;
    return 0;
}

struct place *places_get(const struct places *places, const void *of) {
    if (places->n == 0) return NULL;
    struct place *place = find(places->slots, places->n_slots, of);
    return place->of == of && of != NULL ? place : NULL;
}

/* An address has one place. */
static int keep_place(struct tree *tree, const void *of) {
    struct places *places = tree->places;
    const yaml_mark_t *mark = &tree->event.start_mark;
    if (places == NULL) return 0;
    if (2 * places->n >= places->n_slots && grow(places) < 0) return ty_fail_memory(tree->err);
    *find(places->slots, places->n_slots, of) =
        (struct place){of, (uint32_t)(mark->line + 1), (uint32_t)(mark->column + 1), NULL};
    places->n++;
    return 0;
}

/* -- values -- */

static int refuse_nul(struct tree *tree) {
    if (memchr(tree->event.data.scalar.value, '\0', tree->event.data.scalar.length) == NULL) return 0;
    return tree_refuse(tree, "text cannot hold a NUL byte");
}

static int scalar_value(struct tree *tree, json_t **value) {
    int result = refuse_nul(tree);
    if (result < 0) return result;
    const char *text = (const char *)tree->event.data.scalar.value, *problem = NULL;
    bool plain = tree->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    json_t *scalar = plain ? plain_scalar(text, &problem) : json_string(text);
    if (scalar == NULL && problem != NULL) return tree_refuse(tree, "\"%.40s\" %s", text, problem);
    if (scalar == NULL) return ty_fail_memory(tree->err);
    if (!(json_is_boolean(scalar) || json_is_null(scalar))) result = keep_place(tree, scalar);
    if (result < 0) json_decref(scalar);
    if (result == 0) *value = scalar;
    return result;
}

static int fill_list(struct tree *tree, json_t *list, int depth) {
    for (;;) {
        int result = tree_next(tree);
        if (result < 0 || tree->event.type == YAML_SEQUENCE_END_EVENT) return result;
        json_t *item = NULL;
        result = tree_value(tree, depth + 1, &item);
        if (result < 0) return result;
        if (json_array_append_new(list, item) < 0) return ty_fail_memory(tree->err);
    }
}

int tree_key(struct tree *tree, const char **key) {
    if (tree->event.type != YAML_SCALAR_EVENT)
        return tree_refuse(tree, "a key must be text, not a list or a map");
    *key = (const char *)tree->event.data.scalar.value;
    return refuse_nul(tree);
}

static int fill_map(struct tree *tree, json_t *map, int depth) {
    for (;;) {
        int result = tree_next(tree);
        if (result < 0 || tree->event.type == YAML_MAPPING_END_EVENT) return result;
        const char *key;
        result = tree_key(tree, &key);
        if (result < 0) return result;
        if (json_object_get(map, key) != NULL)
            return tree_refuse(tree, "key \"%s\" appears twice in one map", key);
        /* The key goes in first, with null: its place is kept by the address of the map's own copy of it. */
        if (json_object_set_new(map, key, json_null()) < 0) return ty_fail_memory(tree->err);
        void *member = json_object_iter_at(map, key);
        result = keep_place(tree, json_object_iter_key(member));
        if (result == 0) result = tree_next(tree);
        json_t *value = NULL;
        if (result == 0) result = tree_value(tree, depth + 1, &value);
        if (result < 0) return result;
        (void)json_object_iter_set_new(map, member, value); /* replaces in place: nothing is allocated */
    }
}

int tree_value(struct tree *tree, int depth, json_t **value) {
    if (tree->event.type == YAML_SCALAR_EVENT) return scalar_value(tree, value);
    if (depth > TREE_DEEPEST) return tree_refuse(tree, "nested deeper than %d levels", TREE_DEEPEST);
    bool is_map = tree->event.type == YAML_MAPPING_START_EVENT;
    json_t *container = is_map ? json_object() : json_array();
    if (container == NULL) return ty_fail_memory(tree->err);
    int result = keep_place(tree, container);
    if (result == 0) result = is_map ? fill_map(tree, container, depth) : fill_list(tree, container, depth);
    if (result < 0) json_decref(container);
    if (result == 0) *value = container;
    return result;
}
