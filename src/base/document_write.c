/* A tree as YAML text, by libyaml's emitter. Readers of YAML disagree about plain scalars (to some, `no`,
 * `1:30` and `0x1` are no texts), so a text is plain only where none of them could take it for something
 * else. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/str.h"

static int take(void *context, unsigned char *text, size_t size) {
    struct buffer *out = context;
    buffer_append(out, text, size);
    return out->failed ? 0 : 1;
}

/* Letters first, and no word that means something else. */
static bool is_plain(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const words[] = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
    if (*text == '\0' || strchr(letters, *text) == NULL || text[strspn(text, rest)] != '\0') return false;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcasecmp(text, words[i]) == 0) return false;
    return true;
}

static int scalar(yaml_emitter_t *emitter, const char *text, yaml_scalar_style_t style) {
    yaml_event_t event;
    if (!yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1,
                                      style))
        return 0;
    return yaml_emitter_emit(emitter, &event);
}

static int text_scalar(yaml_emitter_t *emitter, const char *text) {
    return scalar(emitter, text, is_plain(text) ? YAML_PLAIN_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

static int write_value(yaml_emitter_t *emitter, const json_t *value);

static int write_map(yaml_emitter_t *emitter, const json_t *map) {
    yaml_event_t event;
    const char *key;
    json_t *member;
    yaml_mapping_style_t style = json_object_size(map) > 0 ? YAML_BLOCK_MAPPING_STYLE : YAML_FLOW_MAPPING_STYLE;
    if (!yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, style) ||
        !yaml_emitter_emit(emitter, &event))
        return 0;
    json_object_foreach((json_t *)map, key, member) {
        if (!text_scalar(emitter, key) || !write_value(emitter, member)) return 0;
    }
    return yaml_mapping_end_event_initialize(&event) && yaml_emitter_emit(emitter, &event);
}

static int write_list(yaml_emitter_t *emitter, const json_t *list) {
    yaml_event_t event;
    json_t *member;
    size_t i;
    yaml_sequence_style_t style =
        json_array_size(list) > 0 ? YAML_BLOCK_SEQUENCE_STYLE : YAML_FLOW_SEQUENCE_STYLE;
    if (!yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, style) ||
        !yaml_emitter_emit(emitter, &event))
        return 0;
    json_array_foreach(list, i, member) {
        if (!write_value(emitter, member)) return 0;
    }
    return yaml_sequence_end_event_initialize(&event) && yaml_emitter_emit(emitter, &event);
}

static int write_value(yaml_emitter_t *emitter, const json_t *value) {
    char number[STR_REAL_SIZE];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return write_map(emitter, value);
    case JSON_ARRAY:
        return write_list(emitter, value);
    case JSON_STRING:
        return text_scalar(emitter, json_string_value(value));
    case JSON_INTEGER:
        (void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        str_from_double(json_real_value(value), number);
        break;
    default:
        (void)snprintf(number, sizeof number, "%s",
                       json_is_true(value)    ? "true"
                       : json_is_false(value) ? "false"
                                              : "null");
    }
    return scalar(emitter, number, YAML_PLAIN_SCALAR_STYLE);
}

int document_write(const json_t *roots, struct buffer *out, ty_error *err) {
    yaml_emitter_t emitter;
    yaml_event_t event;
    json_t *root;
    size_t i;
    if (!yaml_emitter_initialize(&emitter)) return ty_fail_memory(err);
    yaml_emitter_set_output(&emitter, take, out);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    int good =
        yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) && yaml_emitter_emit(&emitter, &event);
    json_array_foreach(roots, i, root) {
        good = good && yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 0) &&
               yaml_emitter_emit(&emitter, &event) && write_value(&emitter, root) &&
               yaml_document_end_event_initialize(&event, 1) && yaml_emitter_emit(&emitter, &event);
    }
    good = good && yaml_stream_end_event_initialize(&event) && yaml_emitter_emit(&emitter, &event);
    yaml_emitter_delete(&emitter);
    return good ? 0 : ty_fail_memory(err);
}
