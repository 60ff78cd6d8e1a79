/* JSON to struct run_request. What is set of a run (its name, its limits) is read by the table of
 * run/settings.h; here are the keys that say what runs and where: scaling, nodes, program, environment, events.
 * Text is borrowed from the tree, which the request keeps. Whether the values go together is checked where they
 * are used, but for what only this form can get wrong. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/str.h"
#include "controller/controller.h"
#include "controller/events.h"
#include "controller/site.h"
#include "run/run.h"

struct request {
    json_t *root;
    struct scaling scaling;
    struct cluster_overrides overrides;
    struct environment environment;
    const char **argv, **template_argv;
    void *payload;
    struct hosts hosts;
    struct engine_options engine;
    struct run_request run;
};

struct field {
    const char *name;
    int (*read)(struct request *request, const struct field *field, const json_t *value, ty_error *err);
    size_t offset; /* in struct request, where the reader needs one */
};

enum { VALUE_SHOWN = 40 };

static void *place(struct request *request, const struct field *field) {
    return (char *)request + field->offset;
}

/* "`name` must be a text, not 5" */
static int refuse(const struct field *field, const json_t *value, const char *rule, ty_error *err) {
    CLEANUP_FREE char *text = json_format(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text == NULL) return ty_fail_memory(err);
    return ty_fail(err, TY_EUSAGE, "`%s` must be %s, not %.*s%s", field->name, rule, VALUE_SHOWN, text,
                   strlen(text) > VALUE_SHOWN ? ".." : "");
}

static bool is_text(const json_t *value) {
    return json_is_string(value) && json_string_length(value) > 0;
}

static int read_text(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!is_text(value)) return refuse(field, value, "a text that is not empty", err);
    *(const char **)place(request, field) = json_string_value(value);
    return 0;
}

static int read_amount(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!json_is_number(value) || json_number_value(value) < 0)
        return refuse(field, value, "a number from 0 on", err);
    *(double *)place(request, field) = json_number_value(value);
    return 0;
}

static int read_scaling(struct request *request, const struct field *field, const json_t *value,
                        ty_error *err) {
    (void)field;
    return scaling_read(&request->scaling, value, NULL, err);
}

static int read_resources(struct request *request, const struct field *field, const json_t *value,
                          ty_error *err) {
    const char *name;
    json_t *number;
    if (!json_is_object(value) || json_object_size(value) > RESOURCES_MAX)
        return refuse(field, value, "a map of names to amounts", err);
    json_object_foreach((json_t *)value, name, number) {
        quantity amount;
        if (!json_is_number(number))
            return ty_fail(err, TY_EUSAGE, "`%s`: the amount of %.80s must be a number", field->name, name);
        if (quantity_from_double(json_number_value(number), name, &amount, err) < 0)
            return ty_wrap(err, "`%s`", field->name);
        if (resources_set(&request->overrides.node_resources, name, amount) < 0) return ty_fail_memory(err);
    }
    return 0;
}

static int read_words(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    size_t i, n = json_array_size(value);
    json_t *word;
    if (n == 0 || !is_text(json_array_get(value, 0)))
        return refuse(field, value, "a list of texts, of which the first is a program", err);
    const char **words = calloc(n + 1, sizeof *words);
    if (words == NULL) return ty_fail_memory(err);
    *(const char ***)place(request, field) = words;
    json_array_foreach(value, i, word) {
        if (!json_is_string(word)) return refuse(field, word, "a list of texts", err);
        words[i] = json_string_value(word);
    }
    return 0;
}

static int read_environment(struct request *request, const struct field *field, const json_t *value,
                            ty_error *err) {
    const char *name;
    json_t *text;
    if (!json_is_object(value)) return refuse(field, value, "a map of names to texts", err);
    json_object_foreach((json_t *)value, name, text) {
        if (name[0] == '\0' || strchr(name, '=') != NULL)
            return ty_fail(err, TY_EUSAGE, "`%s`: \"%.80s\" is no name of a variable", field->name, name);
        if (!json_is_string(text) && !json_is_null(text))
            return ty_fail(err, TY_EUSAGE, "`%s`: the value of %.80s must be a text or null", field->name,
                           name);
        const char *given = json_is_null(text) ? getenv(name) : json_string_value(text);
        if (environment_set(&request->environment, name, given) < 0) return ty_fail_memory(err);
    }
    /* Empty is not the same as not given. */
    static char *const empty[] = {NULL};
    request->run.environment = request->environment.n > 0 ? request->environment.items : empty;
    return 0;
}

static int read_events(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    size_t i;
    json_t *name;
    if (!json_is_array(value)) return refuse(field, value, "a list of kinds of events", err);
    json_array_foreach(value, i, name) {
        uint32_t bit = 0;
        if (!json_is_string(name)) return refuse(field, name, "a list of kinds of events", err);
        if (events_kind(json_string_value(name), &bit, err) < 0) return ty_wrap(err, "`%s`", field->name);
        request->run.events |= bit;
    }
    return 0;
}

/* What `join` and `hosts` have in common: perhaps "signals", a descriptor that gives numbers of signals, and
 * "told", one that takes lines of who is missing. The key is in the environment (wire/key.h). */
static int read_meeting(struct request *request, const json_t *value, ty_error *err) {
    request->engine.signals_fd = (int)json_integer_value(json_object_get(value, "signals"));
    request->engine.told_fd = (int)json_integer_value(json_object_get(value, "told"));
    request->run.engine_options = &request->engine;
    return key_read_variable(&request->engine.key, err);
}

/* {"nodes": 2} or {"nodes": [1, 2]}, "rank", "address". */
static int read_join(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    static const char RULE[] = "{\"nodes\": N or [MIN, MAX], \"rank\": 0, \"address\": \"HOST:PORT\"}";
    const json_t *nodes = json_object_get(value, "nodes"), *rank = json_object_get(value, "rank");
    const json_t *address = json_object_get(value, "address");
    const json_t *least = json_is_array(nodes) ? json_array_get(nodes, 0) : nodes;
    const json_t *most = json_is_array(nodes) ? json_array_get(nodes, 1) : nodes;
    json_int_t min = json_integer_value(least), max = json_integer_value(most);
    bool numbers = min >= 1 && max >= min && max <= RENDEZVOUS_NODES_MAX && json_is_integer(rank);
    if (!json_is_object(value) || !numbers || json_integer_value(rank) != 0 || !is_text(address))
        return refuse(field, value, RULE, err);
    request->engine = (struct engine_options){.min_nodes = (uint32_t)min,
                                              .max_nodes = (uint32_t)max,
                                              .node_rank = 0,
                                              .rendezvous = json_string_value(address)};
    return read_meeting(request, value, err);
}

/* {"names": "a,b:8"} or {"file": PATH}, and perhaps "copy". */
static int read_hosts(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    static const char RULE[] = "{\"names\": \"a,b:8\"} or {\"file\": PATH}";
    const json_t *names = json_object_get(value, "names"), *file = json_object_get(value, "file");
    if (request->engine.rendezvous != NULL)
        return ty_fail(err, TY_EUSAGE, "`hosts` and `join` say where the run goes: give one of the two");
    if (!json_is_object(value) || is_text(names) == is_text(file)) return refuse(field, value, RULE, err);
    int result = is_text(names) ? hosts_parse(json_string_value(names), &request->hosts, err)
                                : hosts_read(json_string_value(file), &request->hosts, err);
    if (result < 0) return ty_wrap(err, "`%s`", field->name);
    request->engine = (struct engine_options){
        .node_rank = -1, .hosts = &request->hosts, .copy = json_is_true(json_object_get(value, "copy"))};
    return read_meeting(request, value, err);
}

#define AT(member) offsetof(struct request, member)

static const struct field request_fields[] = {
    {"scaling", read_scaling, 0},
    {"engine", read_text, AT(run.engine)},
    {"cluster", read_text, AT(run.cluster_file)},
    {"join", read_join, 0},
    {"hosts", read_hosts, 0}, /* behind `join`, which it is compared with */
    {"num_cpus", read_amount, AT(overrides.num_cpus)},
    {"num_gpus", read_amount, AT(overrides.num_gpus)},
    {"node_resources", read_resources, 0},
    {"argv", read_words, AT(argv)},
    {"template_argv", read_words, AT(template_argv)},
    {"environment", read_environment, 0},
    {"events", read_events, 0},
};

/* What only a run needs, or only this form can get wrong; a request that is merely checked (ty_run_check) may
 * lack a program. */
static int check_whole(const struct request *request, ty_error *err) {
    const struct cluster_overrides *overrides = &request->overrides;
    const char *method = request->run.settings.start_method;
    if (request->argv == NULL)
        return ty_fail(err, TY_EUSAGE, "`argv` is missing: which program are the workers?");
    bool fork = str_equal(method, "fork");
    if (method != NULL && !fork && request->template_argv == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "`template_argv` is missing: `start_method` \"%s\" needs a program to fork from",
                       method);
    if (request->run.cluster_file == NULL) return 0;
    if (fork)
        return ty_fail(
            err, TY_EUSAGE,
            "`start_method` \"fork\" is for this machine alone: workers of the nodes of a `cluster` cannot be "
            "forked from this process");
    if (overrides->num_cpus < 0 && overrides->num_gpus < 0 && overrides->node_resources.n == 0) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`num_cpus`, `num_gpus` and `node_resources` say what this machine has, but `cluster` replaces it: "
        "give one of the two");
}

static int fill(struct request *request, const char *json, ty_error *err) {
    json_error_t problem;
    scaling_init(&request->scaling);
    request->overrides = (struct cluster_overrides){.num_cpus = -1, .num_gpus = -1};
    request->run = (struct run_request){
        .scaling = &request->scaling,
        .train_v1 = str_equal(getenv("RAY_TRAIN_V2_ENABLED"), "0"),
        .overrides = &request->overrides,
    };
    int result = site_settings(&request->run.settings, err);
    if (result < 0) return result;
    request->root = json_loads(json, JSON_REJECT_DUPLICATES, &problem);
    if (request->root == NULL)
        return ty_fail(err, TY_EUSAGE, "the request is no JSON: line %d, column %d: %s", problem.line,
                       problem.column, problem.text);
    const char *others[ARRAY_SIZE(request_fields)];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        others[i] = request_fields[i].name;
    result = settings_read(&request->run.settings, request->root, NULL, others, ARRAY_SIZE(others), err);
    for (size_t i = 0; i < ARRAY_SIZE(others) && result >= 0; i++) {
        const json_t *value = json_object_get(request->root, request_fields[i].name);
        if (value != NULL && !json_is_null(value))
            result = request_fields[i].read(request, &request_fields[i], value, err);
    }
    if (result >= 0) result = settings_finish(&request->run.settings, FACE_FIELDS, err);
    request->run.argv = request->argv;
    request->run.template_argv = request->template_argv;
    return result;
}

int request_check(const char *json, ty_error *err) {
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL) return ty_fail_memory(err);
    int result = fill(request, json, err);
    request_destroy(request);
    return result;
}

int request_read(const char *json, const void *payload, size_t payload_size, struct request **out,
                 ty_error *err) {
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL) return ty_fail_memory(err);
    int result = fill(request, json, err);
    if (result >= 0) result = check_whole(request, err);
    if (result >= 0 && payload != NULL) {
        request->run.payload = request->payload = malloc(payload_size + 1);
        request->run.payload_size = payload_size;
        if (request->payload != NULL)
            memcpy(request->payload, payload, payload_size);
        else
            result = ty_fail_memory(err);
    }
    if (result < 0)
        request_destroy(request);
    else
        *out = request;
    return result;
}

const struct run_request *run_request_of(const struct request *request) {
    return &request->run;
}

void request_destroy(struct request *request) {
    if (request == NULL) return;
    scaling_done(&request->scaling);
    resources_done(&request->overrides.node_resources);
    key_forget(&request->engine.key);
    hosts_done(&request->hosts);
    environment_done(&request->environment);
    free(request->argv);
    free(request->template_argv);
    free(request->payload);
    json_decref(request->root);
    free(request);
}
