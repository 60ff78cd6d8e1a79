/* Reading --config. The scaling fields are the business of scaling/; here are the sections and the run
 * config. */
#include "cli/config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/str.h"
#include "worker/link.h"

const char *run_settings_text(const struct run_settings *settings, const char *option) {
    for (size_t i = 0; i < settings->n_options; i++)
        if (str_equal(settings->options[i].option, option)) return settings->options[i].text;
    return NULL;
}

void run_settings_done(struct run_settings *settings) {
    free(settings->name);
    free(settings->storage_path);
    free(settings->score_attribute);
    for (size_t i = 0; i < settings->n_environment; i++)
        free(settings->environment[i]);
    free(settings->environment);
    for (size_t i = 0; i < settings->n_options; i++) {
        free(settings->options[i].text);
        free(settings->options[i].where);
    }
    *settings = (struct run_settings){0};
}

int config_check_variable(const char *name, ty_error *err) {
    static const char *const ours[] = {
        "RANK",           "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK",       "MASTER_ADDR",
        "MASTER_PORT",    "GROUP_RANK", "ROLE_RANK",  "ROLE_NAME",        "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE",
        WORKER_VARIABLES,
    };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    if (*name == '\0' || (*name >= '0' && *name <= '9') || name[strspn(name, letters)] != '\0')
        return ty_fail(err, TY_EUSAGE,
                       "'%.60s' cannot be the name of a variable: letters, digits and _, no digit first", name);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (str_equal(ours[i], name))
            return ty_fail(err, TY_EUSAGE, "%s is set by trainyard for each worker and cannot be given", name);
    return 0;
}

/* "FILE:LINE:COLUMN: key must be ..." */
static int refuse(const struct document *document, const json_t *value, const char *key, const char *allowed,
                  ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s: %s must be %s", document_where(document, value), key, allowed);
}

static int read_text(const struct document *document, const json_t *map, const char *key, char **text,
                     ty_error *err) {
    const json_t *value = json_object_get(map, key);
    if (value == NULL || json_is_null(value)) return 0;
    if (!json_is_string(value) || json_string_length(value) == 0)
        return refuse(document, value, key, "a text that is not empty", err);
    *text = strdup(json_string_value(value));
    return *text != NULL ? 0 : ty_fail_memory(err);
}

static int read_whole(const struct document *document, const json_t *map, const char *key, json_int_t least,
                      bool *given, int *number, ty_error *err) {
    const json_t *value = json_object_get(map, key);
    if (value == NULL || json_is_null(value)) return 0;
    json_int_t whole = json_integer_value(value);
    if (!json_is_integer(value) || whole < least || whole > CONFIG_MAX_FAILURES)
        return refuse(document, value, key,
                      least < 0 ? "a whole number from 0 to 1000000, or -1 for no bound"
                                : "a whole number from 1 to 1000000",
                      err);
    *given = true;
    *number = (int)whole;
    return 0;
}

static int read_failures(const struct document *document, const json_t *map, struct run_settings *settings,
                         ty_error *err) {
    static const char *const known[] = {"max_failures", "controller_failure_limit", "max_preemption_failures"};
    const json_t *failure = json_object_get(map, "failure_config");
    if (failure == NULL || json_is_null(failure)) return 0;
    if (!json_is_object(failure)) return refuse(document, failure, "failure_config", "a map", err);
    int result = document_check_keys(document, failure, "failure_config", known, ARRAY_SIZE(known), err);
    bool *given[] = {&settings->has_max_failures, &settings->has_start_failures, &settings->has_preemptions};
    int *numbers[] = {&settings->max_failures, &settings->start_failures, &settings->preemptions};
    for (size_t i = 0; i < ARRAY_SIZE(known) && result >= 0; i++)
        result = read_whole(document, failure, known[i], -1, given[i], numbers[i], err);
    return result;
}

/* One of two words; true for the second. */
static int read_either(const struct document *document, const json_t *map, const char *key, const char *first,
                       const char *second, bool *is_second, ty_error *err) {
    char allowed[40];
    const json_t *value = json_object_get(map, key);
    if (value == NULL || json_is_null(value)) return 0;
    const char *text = json_string_value(value);
    (void)snprintf(allowed, sizeof allowed, "%s or %s", first, second);
    if (!str_equal(text, first) && !str_equal(text, second)) return refuse(document, value, key, allowed, err);
    *is_second = str_equal(text, second);
    return 0;
}

static int read_checkpoints(const struct document *document, const json_t *map, struct run_settings *settings,
                            ty_error *err) {
    static const char *const known[] = {"num_to_keep", "checkpoint_score_attribute", "checkpoint_score_order",
                                        "on_checkpoint_error"};
    const json_t *checkpoints = json_object_get(map, "checkpoint_config");
    bool given;
    if (checkpoints == NULL || json_is_null(checkpoints)) return 0;
    if (!json_is_object(checkpoints)) return refuse(document, checkpoints, "checkpoint_config", "a map", err);
    int result = document_check_keys(document, checkpoints, "checkpoint_config", known, ARRAY_SIZE(known), err);
    if (result >= 0)
        result = read_whole(document, checkpoints, known[0], 1, &given, &settings->num_to_keep, err);
    if (result >= 0) result = read_text(document, checkpoints, known[1], &settings->score_attribute, err);
    if (result >= 0)
        result = read_either(document, checkpoints, known[2], "max", "min", &settings->score_min, err);
    if (result >= 0)
        result =
            read_either(document, checkpoints, known[3], "fail", "continue", &settings->continue_on_error, err);
    return result;
}

static int add_variable(const struct document *document, struct run_settings *settings, const char *name,
                        const json_t *value, ty_error *err) {
    int result = config_check_variable(name, err);
    if (result < 0) return ty_wrap(err, "%s", document_where(document, value));
    if (!json_is_string(value)) return refuse(document, value, name, "a text (put it in quotes)", err);
    char *entry = NULL;
    if (asprintf(&entry, "%s=%s", name, json_string_value(value)) < 0) return ty_fail_memory(err);
    settings->environment[settings->n_environment++] = entry;
    return 0;
}

static int read_environment(const struct document *document, const json_t *map, struct run_settings *settings,
                            ty_error *err) {
    static const char *const known[] = {"env_vars"};
    json_t *runtime = json_object_get(map, "worker_runtime_env");
    if (runtime == NULL || json_is_null(runtime)) return 0;
    if (!json_is_object(runtime)) return refuse(document, runtime, "worker_runtime_env", "a map", err);
    int result = document_check_keys(document, runtime, "worker_runtime_env", known, ARRAY_SIZE(known), err);
    json_t *variables = json_object_get(runtime, known[0]);
    if (result < 0 || variables == NULL || json_is_null(variables)) return result;
    if (!json_is_object(variables))
        return refuse(document, variables, known[0], "a map of names to texts", err);
    settings->environment = calloc(json_object_size(variables) + 1, sizeof *settings->environment);
    if (settings->environment == NULL) return ty_fail_memory(err);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(variables, name, value) {
        result = add_variable(document, settings, name, value, err);
        if (result < 0) return result;
    }
    return 0;
}

enum kind { FLAG, TEXT, SECONDS };

/* The fields that are read by the setter of an option. */
static const struct option_field {
    const char *name, *option;
    enum kind kind;
} option_fields[] = {
    {"resume", "resume", FLAG},
    {"framework", "framework", TEXT},
    {"backend", "backend", TEXT},
    {"chaos", "chaos", TEXT},
    {"time_limit_s", "time-limit", SECONDS},
    {"grace_s", "grace", SECONDS},
    {"hang_timeout_s", "hang-timeout", SECONDS},
    {"preempt_signal", "preempt-signal", TEXT},
    {"no_wait", "no-wait", FLAG},
    {"isolate_devices", "isolate-devices", FLAG},
    {"bind", "bind", TEXT},
    {"progress", "progress", TEXT},
    {"quiet", "quiet", FLAG},
};
_Static_assert(ARRAY_SIZE(option_fields) <= RUN_SETTINGS_MAX, "room for each");

static bool is_of_kind(const json_t *value, enum kind kind) {
    if (kind == FLAG) return json_is_boolean(value);
    if (kind == TEXT) return json_is_string(value);
    return json_is_number(value) && json_number_value(value) >= 0;
}

static int add_setting(const struct document *document, const json_t *value, const struct option_field *field,
                       struct run_settings *settings, ty_error *err) {
    struct run_setting *setting = &settings->options[settings->n_options++];
    int size = 0;
    *setting = (struct run_setting){.option = field->option};
    if (field->kind == TEXT)
        size = (setting->text = strdup(json_string_value(value))) != NULL ? 0 : -1;
    else if (field->kind == SECONDS)
        size = asprintf(&setting->text, "%.9f", json_number_value(value));
    if (size < 0) setting->text = NULL;
    if (size < 0 || asprintf(&setting->where, "%s: %s", document_where(document, value), field->name) < 0) {
        setting->where = NULL;
        return ty_fail_memory(err);
    }
    return 0;
}

static int read_options(const struct document *document, const json_t *map, struct run_settings *settings,
                        ty_error *err) {
    static const char *const allowed[] = {"true or false", "a text", "a number of seconds, 0 or more"};
    for (size_t i = 0; i < ARRAY_SIZE(option_fields); i++) {
        const struct option_field *field = &option_fields[i];
        const json_t *value = json_object_get(map, field->name);
        if (value == NULL || json_is_null(value)) continue;
        if (!is_of_kind(value, field->kind))
            return refuse(document, value, field->name, allowed[field->kind], err);
        if (json_is_false(value)) continue;
        int result = add_setting(document, value, field, settings, err);
        if (result < 0) return result;
    }
    return 0;
}

static int check_run_fields(const struct document *document, const json_t *map, ty_error *err) {
    enum { N = 5 };
    const char *known[N + ARRAY_SIZE(option_fields)] = {"name", "storage_path", "failure_config",
                                                        "checkpoint_config", "worker_runtime_env"};
    for (size_t i = 0; i < ARRAY_SIZE(option_fields); i++)
        known[N + i] = option_fields[i].name;
    return document_check_keys(document, map, "run_config", known, ARRAY_SIZE(known), err);
}

static int read_run_config(const struct document *document, const json_t *map, struct run_settings *settings,
                           ty_error *err) {
    if (!json_is_object(map)) return refuse(document, map, "run_config", "a map", err);
    int result = check_run_fields(document, map, err);
    if (result >= 0) result = read_text(document, map, "name", &settings->name, err);
    if (result >= 0) result = read_text(document, map, "storage_path", &settings->storage_path, err);
    if (result >= 0) result = read_failures(document, map, settings, err);
    if (result >= 0) result = read_checkpoints(document, map, settings, err);
    if (result >= 0) result = read_environment(document, map, settings, err);
    if (result >= 0) result = read_options(document, map, settings, err);
    return result;
}

static int read_sections(const struct document *document, const json_t *root, struct scaling *scaling,
                         struct run_settings *settings, ty_error *err) {
    static const char *const known[] = {"scaling_config", "run_config"};
    int result = document_check_keys(document, root, "a file with sections", known, ARRAY_SIZE(known), err);
    const json_t *part = json_object_get(root, known[0]);
    if (result >= 0 && part != NULL && !json_is_object(part))
        return refuse(document, part, known[0], "a map", err);
    if (result >= 0 && part != NULL) result = scaling_read(scaling, part, document, err);
    const json_t *run = json_object_get(root, known[1]);
    if (result >= 0 && run != NULL) result = read_run_config(document, run, settings, err);
    return result;
}

int config_file_read(const char *path, struct scaling *scaling, struct run_settings *settings, ty_error *err) {
    struct document *document = NULL;
    int result = document_read(path, CONFIG_FILE_MAX, &document, err);
    if (result == -ENOMEM) return result;
    if (result < 0) return ty_fail(err, TY_EUSAGE, "--config: %s", err != NULL ? err->message : "");
    const json_t *root = document_root(document);
    if (!json_is_object(root))
        result = refuse(document, root, "the config", "a map with the fields of ScalingConfig", err);
    else if (json_object_get(root, "scaling_config") != NULL || json_object_get(root, "run_config") != NULL)
        result = read_sections(document, root, scaling, settings, err);
    else
        result = scaling_read(scaling, root, document, err);
    document_destroy(document);
    return result;
}
