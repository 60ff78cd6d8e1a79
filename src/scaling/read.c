/* The scaling config as JSON or YAML, in the field names of Python's ScalingConfig: types are checked here,
 * with the place of the value in the message; whether the values go together is checked when the config is
 * resolved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/parts.h"

struct scaling_reader {
    struct scaling *scaling;
    const struct document *document; /* may be NULL */
    const char *field;
    ty_error *err;
};

/* "the text \"4\"", "1.5", "a list": the value where it is short, else its type. */
static const char *describe(const json_t *value, char text[64]) {
    if (json_is_object(value)) return "a map";
    if (json_is_array(value)) return "a list";
    if (json_is_null(value)) return "null";
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_string(value))
        (void)snprintf(text, 64, "the text \"%.40s\"", json_string_value(value));
    else
        (void)str_print(text, 64, "%s%.10g", json_is_real(value) ? "the real number " : "",
                        json_number_value(value));
    return text;
}

/* Puts the place before a message about `value`. */
static int at(const struct scaling_reader *reader, const json_t *value, int code) {
    if (reader->document == NULL) return code;
    return ty_wrap(reader->err, "%s", document_where(reader->document, value));
}

static int refuse(const struct scaling_reader *reader, const json_t *value, const char *rule) {
    char text[64];
    int code =
        ty_fail(reader->err, TY_EUSAGE, "`%s` must be %s, not %s", reader->field, rule, describe(value, text));
    return at(reader, value, code);
}

static int read_bool(const struct scaling_reader *reader, const json_t *value, bool *to) {
    if (!json_is_boolean(value)) return refuse(reader, value, "true or false");
    *to = json_is_true(value);
    return 0;
}

/* Text without NUL bytes, or null for "not given". */
static int read_text(const struct scaling_reader *reader, const json_t *value, char **to) {
    if (!json_is_string(value) && !json_is_null(value)) return refuse(reader, value, "text or null");
    const char *text = json_string_value(value);
    if (text != NULL && (text[0] == '\0' || strlen(text) != json_string_length(value)))
        return at(reader, value,
                  ty_fail(reader->err, TY_EUSAGE, "`%s` must not be empty nor hold a NUL byte", reader->field));
    return scaling_copy_text(to, text) < 0 ? ty_fail_memory(reader->err) : 0;
}

static int read_num_workers(const struct scaling_reader *reader, const json_t *value) {
    struct scaling *scaling = reader->scaling;
    bool is_pair = json_is_array(value) && json_array_size(value) == 2;
    const json_t *min = is_pair ? json_array_get(value, 0) : value;
    const json_t *max = is_pair ? json_array_get(value, 1) : value;
    if (!json_is_integer(min) || !json_is_integer(max))
        return refuse(reader, value, "an int or a tuple of two ints (MIN, MAX)");
    scaling->min_workers = json_integer_value(min);
    scaling->max_workers = json_integer_value(max);
    scaling->elastic = is_pair;
    return 0;
}

/* "8GiB": text is taken as an amount only when a unit makes it clear that it is one. */
static int read_amount_text(const struct scaling_reader *reader, const char *name, const json_t *value,
                            struct resources *resources) {
    const char *text = json_string_value(value);
    size_t size = strlen(text);
    quantity amount;
    if (size == 0 || strchr("KMGTPiBk", text[size - 1]) == NULL)
        return ty_fail(reader->err, TY_EUSAGE,
                       "`%s`: the amount of %.80s must be a number, not the text \"%.80s\"", reader->field,
                       name, text);
    if (quantity_parse(text, name, &amount, reader->err) < 0)
        return ty_wrap(reader->err, "`%s`", reader->field);
    double number = quantity_to_double(amount);
    return scaling_set_amount(resources, reader->field, name, number, reader->err);
}

static int read_amount(const struct scaling_reader *reader, const char *name, const json_t *value,
                       struct resources *resources) {
    int result;
    char text[64];
    if (json_is_number(value))
        result = scaling_set_amount(resources, reader->field, name, json_number_value(value), reader->err);
    else if (json_is_string(value))
        result = read_amount_text(reader, name, value, resources);
    else
        result = ty_fail(reader->err, TY_EUSAGE, "`%s`: the amount of %.80s must be a number, not %s",
                         reader->field, name, describe(value, text));
    return result < 0 ? at(reader, value, result) : 0;
}

static int read_resources(const struct scaling_reader *reader, const json_t *value, struct resources *to,
                          bool *given) {
    struct resources resources = {0};
    const char *name;
    json_t *amount;
    int result = 0;
    if (!json_is_object(value) && !json_is_null(value))
        return refuse(reader, value, "a map of names to amounts, or null");
    if (json_object_size(value) > RESOURCES_MAX)
        return at(reader, value,
                  ty_fail(reader->err, TY_EUSAGE, "`%s`: %zu names; at most %d are possible", reader->field,
                          json_object_size(value), RESOURCES_MAX));
    json_object_foreach((json_t *)value, name, amount) {
        result = read_amount(reader, name, amount, &resources);
        if (result < 0) break;
    }
    if (result < 0) {
        resources_done(&resources);
        return result;
    }
    resources_done(to);
    *to = resources;
    *given = !json_is_null(value);
    return 0;
}

/* On failure the selector holds what was read, which its owner frees. */
static int read_selector(const struct scaling_reader *reader, const json_t *map,
                         struct label_selector *selector) {
    const char *key;
    json_t *value;
    char text[64];
    if (!json_is_object(map)) return refuse(reader, map, "a map of labels to text, or a list of such maps");
    json_object_foreach((json_t *)map, key, value) {
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return at(reader, value,
                      ty_fail(reader->err, TY_EUSAGE,
                              "`label_selector`: the value of %.80s must be text, not %s", key,
                              describe(value, text)));
        if (label_selector_add(selector, key, json_string_value(value), reader->err) == 0) continue;
        return at(reader, value, ty_wrap(reader->err, "`label_selector`"));
    }
    return 0;
}

static int read_label_selector(const struct scaling_reader *reader, const json_t *value) {
    struct scaling *scaling = reader->scaling;
    bool is_list = json_is_array(value);
    size_t n = json_is_null(value) ? 0 : is_list ? json_array_size(value) : 1;
    struct label_selector *selectors = calloc(n > 0 ? n : 1, sizeof *selectors);
    int result = selectors == NULL ? ty_fail_memory(reader->err) : 0;
    for (size_t i = 0; i < n && result == 0; i++)
        result = read_selector(reader, is_list ? json_array_get(value, i) : value, &selectors[i]);
    if (result < 0) {
        scaling_selectors_done(selectors, selectors == NULL ? 0 : n);
        return result;
    }
    scaling_selectors_done(scaling->selectors, scaling->n_selectors);
    scaling->selectors = selectors;
    scaling->n_selectors = n;
    scaling->selector_per_worker = is_list;
    return 0;
}

static int read_topology_strategy(const struct scaling_reader *reader, const json_t *value) {
    const char *label;
    json_t *strategy;
    char text[64];
    if (!json_is_object(value) && !json_is_null(value))
        return refuse(reader, value, "a map of labels to strategies, or null");
    scaling_forget_topology(reader->scaling);
    json_object_foreach((json_t *)value, label, strategy) {
        if (!json_is_string(strategy))
            return at(reader, strategy,
                      ty_fail(reader->err, TY_EUSAGE, "`%s`: the strategy of %.80s must be text, not %s",
                              reader->field, label, describe(strategy, text)));
        if (scaling_add_topology(reader->scaling, label, json_string_value(strategy), reader->err) == 0)
            continue;
        return at(reader, strategy, ty_wrap(reader->err, "`%s`", reader->field));
    }
    return 0;
}

/* The value of reader->field. */
static int read_field(const struct scaling_reader *reader, const json_t *value) {
    struct scaling *to = reader->scaling;
    const char *field = reader->field;
    if (str_equal(field, "trainer_resources"))
        return read_resources(reader, value, &to->trainer_resources, &to->has_trainer_resources);
    if (str_equal(field, "num_workers")) return read_num_workers(reader, value);
    if (str_equal(field, "use_gpu")) return read_bool(reader, value, &to->use_gpu);
    if (str_equal(field, "resources_per_worker"))
        return read_resources(reader, value, &to->resources_per_worker, &to->has_resources);
    if (str_equal(field, "placement_strategy")) {
        if (!json_is_string(value)) return refuse(reader, value, "PACK, SPREAD, STRICT_PACK or STRICT_SPREAD");
        const char *text = json_string_value(value);
        if (placement_strategy_parse(text, &to->placement_strategy, reader->err) == 0) return 0;
        return at(reader, value, scaling_wrap_strategy(text, reader->err));
    }
    if (str_equal(field, "accelerator_type")) return read_text(reader, value, &to->accelerator_type);
    if (str_equal(field, "label_selector")) return read_label_selector(reader, value);
    if (str_equal(field, "use_tpu")) return read_bool(reader, value, &to->use_tpu);
    if (str_equal(field, "topology")) return read_text(reader, value, &to->topology);
    if (str_equal(field, "topology_strategy")) return read_topology_strategy(reader, value);
    if (!json_is_number(value)) return refuse(reader, value, "a number of seconds");
    to->elastic_resize_monitor_interval_s = json_number_value(value);
    return 0;
}

/* Into a copy, which takes the config's place when all of it is good. Fields are read in the order of this list
 * and not of the file, so that of several errors the same one is told, whoever writes the file. */
int scaling_read(struct scaling *scaling, const json_t *map, const struct document *document, ty_error *err) {
    static const char *const fields[] = {
        "trainer_resources",
        "num_workers",
        "use_gpu",
        "resources_per_worker",
        "placement_strategy",
        "accelerator_type",
        "label_selector",
        "use_tpu",
        "topology",
        "topology_strategy",
        "elastic_resize_monitor_interval_s",
    };
    struct scaling made;
    struct scaling_reader reader = {&made, document, "", err};
    if (!json_is_object(map)) {
        reader.field = "scaling config";
        return refuse(&reader, map, "a map of fields");
    }
    if (scaling_copy(&made, scaling) < 0) return ty_fail_memory(err);
    int result = document_check_keys(document, map, "scaling config", fields, ARRAY_SIZE(fields), err);
    for (size_t i = 0; i < ARRAY_SIZE(fields) && result == 0; i++) {
        const json_t *value = json_object_get(map, fields[i]);
        reader.field = fields[i];
        if (value != NULL) result = read_field(&reader, value);
    }
    if (result < 0) {
        scaling_done(&made);
        return result;
    }
    scaling_done(scaling);
    *scaling = made;
    return 0;
}
