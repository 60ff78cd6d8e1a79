/* JSON to struct run_request: one table of keys, one reader for each kind of value. What is text is borrowed from the tree, which
 * the request keeps. Whether the values go together is checked where they are used, but for what only this form can get wrong. */
#include "controller/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/str.h"
#include "controller/events.h"
#include "run/run.h"

struct request {
    json_t *root;
    struct scaling scaling;
    struct cluster_overrides overrides;
    struct environment environment;
    const char **argv, **template_argv;
    void *payload;
    struct run_request run;
};

struct field {
    const char *name;
    int (*read)(struct request *request, const struct field *field, const json_t *value, ty_error *err);
    size_t offset;     /* in struct request, where the reader needs one */
    const char *words; /* of a choice: "one|two" */
};

enum { HANG_MAX_S = 4000000, FAILURES_MAX = 1000000, KEEP_MAX = 1000000, SHOWN = 40 };

static void *place(struct request *request, const struct field *field) {
    return (char *)request + field->offset;
}

/* "`name` must be a text, not 5" */
static int refuse(const struct field *field, const json_t *value, const char *rule, ty_error *err) {
    CLEANUP_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text == NULL) return ty_fail_memory(err);
    return ty_fail(err, TY_EUSAGE, "`%s` must be %s, not %.*s%s", field->name, rule, SHOWN, text,
                   strlen(text) > SHOWN ? ".." : "");
}

static bool is_text(const json_t *value) {
    return json_is_string(value) && json_string_length(value) > 0;
}

static int read_text(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!is_text(value)) return refuse(field, value, "a text that is not empty", err);
    *(const char **)place(request, field) = json_string_value(value);
    return 0;
}

static int read_bool(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!json_is_boolean(value)) return refuse(field, value, "true or false", err);
    *(bool *)place(request, field) = json_is_true(value);
    return 0;
}

static int read_amount(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!json_is_number(value) || json_number_value(value) < 0)
        return refuse(field, value, "a number from 0 on", err);
    *(double *)place(request, field) = json_number_value(value);
    return 0;
}

static int read_seconds(const struct field *field, const json_t *value, double max, nanoseconds *to,
                        ty_error *err) {
    char rule[64];
    double seconds = json_number_value(value);
    (void)snprintf(rule, sizeof rule, "a number of seconds from 0 to %g", max);
    if (!json_is_number(value) || seconds < 0 || seconds > max) return refuse(field, value, rule, err);
    *to = (nanoseconds)(seconds * (double)NS_PER_S);
    return 0;
}

static int read_grace(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    return read_seconds(field, value, 86400, &request->run.grace, err);
}

/* A timeout of 0 would be over at once: none is null. */
static int read_hang(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    return read_seconds(field, value, HANG_MAX_S, &request->run.hang_timeout, err);
}

static int read_signal(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    int result = json_is_string(value)
                     ? preempt_signal_parse(json_string_value(value), &request->run.preempt_signal, err)
                     : refuse(field, value, "the name of a signal", err);
    return result < 0 && json_is_string(value) ? ty_wrap(err, "`%s`", field->name) : result;
}

static int read_chaos(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    if (!is_text(value)) return refuse(field, value, "a text SEED[:EVERY]", err);
    int result = chaos_parse(json_string_value(value), &request->run.chaos, err);
    return result < 0 ? ty_wrap(err, "`%s`", field->name) : result;
}

static int read_limit(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    return read_seconds(field, value, 3e9, &request->run.time_limit, err);
}

/* Which of the field's words, from 0 on. */
static int choose(const struct field *field, const json_t *value, int *index, ty_error *err) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    const char *at = field->words;
    for (int i = 0; *at != '\0'; i++) {
        size_t size = strcspn(at, "|");
        if (strlen(text) == size && strncmp(text, at, size) == 0) {
            *index = i;
            return 0;
        }
        at += size + (at[size] == '|');
    }
    char rule[64];
    (void)snprintf(rule, sizeof rule, "one of %s", field->words);
    return refuse(field, value, rule, err);
}

/* The first word of a choice is the default, for which the request has NULL. */
static int read_choice(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    int index = 0;
    int result = choose(field, value, &index, err);
    if (result == 0) *(const char **)place(request, field) = index == 0 ? NULL : json_string_value(value);
    return result;
}

static int read_progress(struct request *request, const struct field *field, const json_t *value,
                         ty_error *err) {
    static const enum progress_mode modes[] = {PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_NONE};
    int index = 0;
    int result = choose(field, value, &index, err);
    request->run.progress = modes[index];
    return result;
}

static int read_bind(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    int index = 0;
    int result = choose(field, value, &index, err);
    request->run.bind_numa = index == 1;
    return result;
}

static int read_output(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    int index = 0;
    int result = choose(field, value, &index, err);
    request->run.output_events = index == 1;
    return result;
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

/* -- maps within the map */

static int read_fields(struct request *request, const char *what, const json_t *map, const struct field *fields,
                       size_t n, ty_error *err);

static int read_failures(struct request *request, const struct field *field, const json_t *value,
                         ty_error *err) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < -1 || number > FAILURES_MAX)
        return refuse(field, value, "a whole number from 0 to 1000000, or -1 for no bound", err);
    *(int *)place(request, field) = (int)number;
    return 0;
}

static int read_keep(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > KEEP_MAX)
        return refuse(field, value, "a whole number from 1 to 1000000, or null for all", err);
    request->run.checkpoints.num_to_keep = (int)number;
    return 0;
}

static int read_order(struct request *request, const struct field *field, const json_t *value, ty_error *err) {
    int index = 0;
    int result = choose(field, value, &index, err);
    request->run.checkpoints.score_min = index == 1;
    return result;
}

static int read_on_error(struct request *request, const struct field *field, const json_t *value,
                         ty_error *err) {
    static const enum checkpoint_error ways[] = {CHECKPOINT_ERROR_FAIL, CHECKPOINT_ERROR_CONTINUE};
    int index = 0;
    int result = choose(field, value, &index, err);
    request->run.checkpoints.on_error = ways[index];
    return result;
}

#define AT(member) offsetof(struct request, member)

static int read_failure_config(struct request *request, const struct field *field, const json_t *value,
                               ty_error *err) {
    static const struct field fields[] = {
        {"max_failures", read_failures, AT(run.failures.max_failures), NULL},
        {"controller_failure_limit", read_failures, AT(run.failures.controller_failure_limit), NULL},
        {"max_preemption_failures", read_failures, AT(run.failures.max_preemption_failures), NULL},
    };
    return read_fields(request, field->name, value, fields, ARRAY_SIZE(fields), err);
}

static int read_checkpoint_config(struct request *request, const struct field *field, const json_t *value,
                                  ty_error *err) {
    static const struct field fields[] = {
        {"num_to_keep", read_keep, 0, NULL},
        {"checkpoint_score_attribute", read_text, AT(run.checkpoints.score_attribute), NULL},
        {"checkpoint_score_order", read_order, 0, "max|min"},
        {"on_checkpoint_error", read_on_error, 0, "fail|continue"},
    };
    return read_fields(request, field->name, value, fields, ARRAY_SIZE(fields), err);
}

static const struct field request_fields[] = {
    {"scaling", read_scaling, 0, NULL},
    {"name", read_text, AT(run.name), NULL},
    {"storage_path", read_text, AT(run.storage_path), NULL},
    {"resume", read_bool, AT(run.resume), NULL},
    {"engine", read_text, AT(run.engine), NULL},
    {"cluster", read_text, AT(run.cluster_file), NULL},
    {"num_cpus", read_amount, AT(overrides.num_cpus), NULL},
    {"num_gpus", read_amount, AT(overrides.num_gpus), NULL},
    {"node_resources", read_resources, 0, NULL},
    {"argv", read_words, AT(argv), NULL},
    {"environment", read_environment, 0, NULL},
    {"framework", read_text, AT(run.framework), NULL},
    {"backend", read_choice, AT(run.backend), "auto|gloo|nccl"},
    {"bind", read_bind, 0, "none|numa"},
    {"isolate_devices", read_bool, AT(run.isolate_devices), NULL},
    {"grace_s", read_grace, 0, NULL},
    {"time_limit_s", read_limit, 0, NULL},
    {"hang_timeout_s", read_hang, 0, NULL},
    {"preempt_signal", read_signal, 0, NULL},
    {"chaos", read_chaos, 0, NULL},
    {"quiet", read_bool, AT(run.quiet), NULL},
    {"no_wait", read_bool, AT(run.no_wait), NULL},
    {"progress", read_progress, 0, "auto|plain|none"},
    {"output", read_output, 0, "inherit|events"},
    {"events", read_events, 0, NULL},
    {"start_method", read_choice, AT(run.start_method), "spawn|template|auto|fork"},
    {"template_argv", read_words, AT(template_argv), NULL},
    {"failure_config", read_failure_config, 0, NULL},
    {"checkpoint_config", read_checkpoint_config, 0, NULL},
    {"keep_agents", read_bool, AT(run.keep_agents), NULL},
};

static int read_fields(struct request *request, const char *what, const json_t *map, const struct field *fields,
                       size_t n, ty_error *err) {
    const char *known[ARRAY_SIZE(request_fields)];
    for (size_t i = 0; i < n; i++)
        known[i] = fields[i].name;
    int result = document_check_keys(NULL, map, what, known, n, err);
    for (size_t i = 0; i < n && result >= 0; i++) {
        const json_t *value = json_object_get(map, fields[i].name);
        if (value != NULL && !json_is_null(value)) result = fields[i].read(request, &fields[i], value, err);
    }
    return result;
}

static int check_whole(const struct request *request, ty_error *err) {
    const struct cluster_overrides *overrides = &request->overrides;
    const char *method = request->run.start_method;
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

static void set_defaults(struct request *request) {
    scaling_init(&request->scaling);
    request->overrides = (struct cluster_overrides){.num_cpus = -1, .num_gpus = -1};
    request->run = (struct run_request){
        .scaling = &request->scaling,
        .train_v1 = str_equal(getenv("RAY_TRAIN_V2_ENABLED"), "0"),
        .overrides = &request->overrides,
        .grace = RUN_GRACE_DEFAULT,
        .failures = FAILURE_POLICY_DEFAULT,
    };
}

static int copy_payload(struct request *request, const void *payload, size_t size, ty_error *err) {
    if (payload == NULL) return 0;
    request->payload = malloc(size + 1);
    if (request->payload == NULL) return ty_fail_memory(err);
    memcpy(request->payload, payload, size);
    request->run.payload = request->payload;
    request->run.payload_size = size;
    return 0;
}

static int fill(struct request *request, const char *json, ty_error *err) {
    json_error_t problem;
    request->root = json_loads(json, JSON_REJECT_DUPLICATES, &problem);
    if (request->root == NULL)
        return ty_fail(err, TY_EUSAGE, "the request is no JSON: line %d, column %d: %s", problem.line,
                       problem.column, problem.text);
    int result =
        read_fields(request, "the request", request->root, request_fields, ARRAY_SIZE(request_fields), err);
    if (result >= 0) result = check_whole(request, err);
    request->run.argv = request->argv;
    request->run.template_argv = request->template_argv;
    return result;
}

int request_read(const char *json, const void *payload, size_t payload_size, struct request **out,
                 ty_error *err) {
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL) return ty_fail_memory(err);
    set_defaults(request);
    int result = fill(request, json, err);
    if (result >= 0) result = copy_payload(request, payload, payload_size, err);
    if (result < 0)
        request_destroy(request);
    else
        *out = request;
    return result;
}

const struct run_request *request_get(const struct request *request) {
    return &request->run;
}

void request_destroy(struct request *request) {
    if (request == NULL) return;
    scaling_done(&request->scaling);
    resources_done(&request->overrides.node_resources);
    environment_done(&request->environment);
    free(request->argv);
    free(request->template_argv);
    free(request->payload);
    json_decref(request->root);
    free(request);
}
