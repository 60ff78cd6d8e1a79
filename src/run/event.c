/* Events as JSON and back, by the rows of event.h: no kind has code of its own here. What is read was perhaps
 * written by another version, or by somebody else: each value is taken for itself, and a wrong one is none.
 * When events happen is record.c's; what a row of them comes to is replay.c's. */
#include "run/event.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum event_type {
#define X(type, c_type) VALUE_##type,
    EVENT_TYPES(X)
#undef X
};

/* A row of event.h. */
struct event_value {
    const char *key;
    enum event_type type;
    size_t offset; /* in an event */
};

#define F(kind, type, key) {#key, VALUE_##type, offsetof(struct run_event, of.kind.key)},
#define X(kind, name, values) static const struct event_value values_of_##name[] = {values(F)};
#define E(kind, name)
RUN_EVENTS(X, E)
#undef F
#undef X
#undef E

static const struct event_kind {
    const char *name;
    const struct event_value *values;
    size_t n_values;
} kinds[] = {
#define X(kind, name, values) [kind] = {#name, values_of_##name, ARRAY_SIZE(values_of_##name)},
#define E(kind, name) [kind] = {#name, NULL, 0},
    RUN_EVENTS(X, E)
#undef X
#undef E
};

static const struct event_kind none = {"?", NULL, 0};

static const struct event_kind *kind_of(enum run_event_kind kind) {
    return (unsigned)kind < RUN_EVENT_KINDS ? &kinds[kind] : &none;
}

const char *run_event_name(enum run_event_kind kind) {
    return kind_of(kind)->name;
}

/* Every value becomes what stands for one that nobody knows. */
static void forget_all(struct run_event *event) {
    const struct event_kind *kind = kind_of(event->kind);
    for (size_t i = 0; i < kind->n_values; i++) {
        void *value = (char *)event + kind->values[i].offset;
        switch (kind->values[i].type) {
        case VALUE_INT:
            *(event_INT *)value = EVENT_UNKNOWN;
            break;
        case VALUE_REAL0:
        case VALUE_REAL3:
        case VALUE_REAL6:
        case VALUE_REAL17:
            *(event_REAL0 *)value = NAN;
            break;
        case VALUE_TEXT:
            *(event_TEXT *)value = NULL;
            break;
        case VALUE_FLAG:
        case VALUE_MARK:
            *(event_FLAG *)value = false;
            break;
        case VALUE_TEXTS:
            *(event_TEXTS *)value = (event_TEXTS){0};
            break;
        case VALUE_NUMBERS:
            *(event_NUMBERS *)value = (event_NUMBERS){0};
            break;
        case VALUE_HOLDERS:
            *(event_HOLDERS *)value = (event_HOLDERS){0};
            break;
        }
    }
}

struct run_event run_event_new(enum run_event_kind kind) {
    struct run_event event = {.kind = kind, .rank = -1, .node = -1};
    forget_all(&event);
    return event;
}

/* -- written */

static void write_holders(const struct event_holders *holders, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < holders->n; i++) {
        const struct event_holder *holder = &holders->items[i];
        buffer_printf(out, "%s{\"run\": ", i > 0 ? ", " : "");
        buffer_json_text(out, holder->run);
        buffer_printf(out, ", \"pid\": %lld, \"user\": ", (long long)holder->pid);
        buffer_json_text(out, holder->user);
        buffer_printf(out, ", \"since\": %.3f}", holder->since);
    }
    buffer_char(out, ']');
}

static bool is_known(const void *value, enum event_type type) {
    switch (type) {
    case VALUE_INT:
        return *(const event_INT *)value != EVENT_UNKNOWN;
    case VALUE_REAL0:
    case VALUE_REAL3:
    case VALUE_REAL6:
    case VALUE_REAL17:
        return isfinite(*(const event_REAL0 *)value);
    case VALUE_TEXT:
        return *(const event_TEXT *)value != NULL;
    case VALUE_MARK:
        return *(const event_MARK *)value;
    case VALUE_TEXTS:
        return ((const event_TEXTS *)value)->items != NULL;
    case VALUE_NUMBERS:
        return ((const event_NUMBERS *)value)->items != NULL;
    case VALUE_HOLDERS:
        return ((const event_HOLDERS *)value)->items != NULL;
    default:
        return true;
    }
}

static void write_value(const void *value, enum event_type type, struct buffer *out) {
    switch (type) {
    case VALUE_TEXT:
        buffer_json_text(out, *(const event_TEXT *)value);
        break;
    case VALUE_INT:
        buffer_printf(out, "%lld", (long long)*(const event_INT *)value);
        break;
    case VALUE_REAL0:
        buffer_printf(out, "%.0f", *(const event_REAL0 *)value);
        break;
    case VALUE_REAL3:
        buffer_printf(out, "%.3f", *(const event_REAL3 *)value);
        break;
    case VALUE_REAL6:
        buffer_printf(out, "%.6f", *(const event_REAL6 *)value);
        break;
    case VALUE_REAL17:
        buffer_printf(out, "%.17g", *(const event_REAL17 *)value);
        break;
    case VALUE_FLAG:
    case VALUE_MARK:
        buffer_text(out, *(const event_FLAG *)value ? "true" : "false");
        break;
    case VALUE_TEXTS:
        buffer_char(out, '[');
        for (size_t i = 0; i < ((const event_TEXTS *)value)->n; i++) {
            buffer_text(out, i > 0 ? ", " : "");
            buffer_json_text(out, ((const event_TEXTS *)value)->items[i]);
        }
        buffer_char(out, ']');
        break;
    case VALUE_NUMBERS:
        buffer_char(out, '[');
        for (size_t i = 0; i < ((const event_NUMBERS *)value)->n; i++)
            buffer_printf(out, "%s%u", i > 0 ? ", " : "", ((const event_NUMBERS *)value)->items[i]);
        buffer_char(out, ']');
        break;
    case VALUE_HOLDERS:
        write_holders(value, out);
        break;
    }
}

bool run_event_members(const struct run_event *event, struct buffer *out) {
    const struct event_kind *kind = kind_of(event->kind);
    bool any = false;
    for (size_t i = 0; i < kind->n_values; i++) {
        const struct event_value *value = &kind->values[i];
        const void *at = (const char *)event + value->offset;
        if (!is_known(at, value->type)) continue;
        buffer_printf(out, "%s\"%s\": ", any ? ", " : "", value->key);
        write_value(at, value->type, out);
        any = true;
    }
    return any;
}

void run_event_encode(const struct run_event *event, struct buffer *out) {
    if (kind_of(event->kind)->n_values == 0) return;
    buffer_char(out, '{');
    (void)run_event_members(event, out);
    buffer_char(out, '}');
}

/* -- read */

/* Room for a list's items, at least one, so that an empty list is known; NULL: memory is short. */
static void *make_list(struct event_memory *memory, size_t n, size_t item_size) {
    void *items = memory->n_lists < RUN_EVENT_LISTS ? calloc(n > 0 ? n : 1, item_size) : NULL;
    if (items != NULL) memory->lists[memory->n_lists++] = items;
    return items;
}

static int read_texts(const json_t *list, struct event_texts *texts, struct event_memory *memory) {
    const char **items = make_list(memory, json_array_size(list), sizeof *items);
    if (items == NULL) return -ENOMEM;
    *texts = (struct event_texts){items, json_array_size(list)};
    for (size_t i = 0; i < texts->n; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        items[i] = text != NULL ? text : "?";
    }
    return 0;
}

/* A list with an item that is no number means nothing: those behind would be another rank's. */
static int read_numbers(const json_t *list, struct event_numbers *numbers, struct event_memory *memory) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t number = json_integer_value(item);
        if (!json_is_integer(item) || number < 0 || number > UINT32_MAX) return 0;
    }
    uint32_t *items = make_list(memory, json_array_size(list), sizeof *items);
    if (items == NULL) return -ENOMEM;
    *numbers = (struct event_numbers){items, json_array_size(list)};
    for (size_t i = 0; i < numbers->n; i++)
        items[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return 0;
}

static int read_holders(const json_t *list, struct event_holders *holders, struct event_memory *memory) {
    struct event_holder *items = make_list(memory, json_array_size(list), sizeof *items);
    if (items == NULL) return -ENOMEM;
    *holders = (struct event_holders){items, json_array_size(list)};
    for (size_t i = 0; i < holders->n; i++) {
        const json_t *one = json_array_get(list, i);
        items[i] = (struct event_holder){.run = json_string_value(json_object_get(one, "run")),
                                         .user = json_string_value(json_object_get(one, "user")),
                                         .pid = json_integer_value(json_object_get(one, "pid")),
                                         .since = json_number_value(json_object_get(one, "since"))};
    }
    return 0;
}

static int read_value(const json_t *from, void *value, enum event_type type, struct event_memory *memory) {
    switch (type) {
    case VALUE_TEXT:
        *(event_TEXT *)value = json_string_value(from);
        break;
    case VALUE_INT:
        if (json_is_integer(from)) *(event_INT *)value = json_integer_value(from);
        break;
    case VALUE_REAL0:
    case VALUE_REAL3:
    case VALUE_REAL6:
    case VALUE_REAL17:
        if (json_is_number(from)) *(event_REAL0 *)value = json_number_value(from);
        break;
    case VALUE_FLAG:
    case VALUE_MARK:
        *(event_FLAG *)value = json_is_true(from);
        break;
    case VALUE_TEXTS:
        return json_is_array(from) ? read_texts(from, value, memory) : 0;
    case VALUE_NUMBERS:
        return json_is_array(from) ? read_numbers(from, value, memory) : 0;
    case VALUE_HOLDERS:
        return json_is_array(from) ? read_holders(from, value, memory) : 0;
    }
    return 0;
}

/* Texts are borrowed from the tree, which the memory keeps; lists are made, as jansson has none that could be
 * borrowed. */
int run_event_decode(struct run_event *event, const char *data, struct event_memory *memory) {
    const struct event_kind *kind = kind_of(event->kind);
    json_error_t error;
    forget_all(event);
    if (data == NULL || kind->n_values == 0) return 0;
    memory->data = json_loads(data, JSON_ALLOW_NUL, &error);
    if (memory->data == NULL) return json_error_code(&error) == json_error_out_of_memory ? -ENOMEM : 0;
    int result = 0;
    for (size_t i = 0; i < kind->n_values && result == 0; i++) {
        const struct event_value *value = &kind->values[i];
        const json_t *from = json_object_get(memory->data, value->key);
        result = read_value(from, (char *)event + value->offset, value->type, memory);
    }
    return result;
}

void event_memory_done(struct event_memory *memory) {
    json_decref(memory->data);
    for (size_t i = 0; i < memory->n_lists; i++)
        free(memory->lists[i]);
    *memory = (struct event_memory){0};
}
