/* Reading --config: a file with the fields of ScalingConfig at its top, or with sections. The scaling fields
 * are the business of scaling/; here are the sections, and the variables for workers. What a setting may be is
 * the table's (run/settings.def). */
#include "cli/run_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/str.h"
#include "worker/link.h"

void config_file_done(struct config_file *file) {
    document_destroy(file->document);
    for (size_t i = 0; i < file->n_environment; i++)
        free(file->environment[i]);
    free(file->environment);
    *file = (struct config_file){0};
}

/* What a run sets for its workers would be overwritten, or would make a worker take itself for another one. */
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
    if (str_find(name, ours, ARRAY_SIZE(ours)) >= 0)
        return ty_fail(err, TY_EUSAGE, "%s is set by trainyard for each worker and cannot be given", name);
    return 0;
}

/* "FILE:LINE:COLUMN: key must be ..." */
static int refuse(const struct document *document, const json_t *value, const char *key, const char *allowed,
                  ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s: %s must be %s", document_where(document, value), key, allowed);
}

static int read_environment(struct config_file *file, const json_t *runtime, ty_error *err) {
    static const char *const known[] = {"env_vars"};
    const struct document *document = file->document;
    if (json_is_null(runtime)) return 0;
    if (!json_is_object(runtime)) return refuse(document, runtime, "worker_runtime_env", "a map", err);
    int result = document_check_keys(document, runtime, "worker_runtime_env", known, ARRAY_SIZE(known), err);
    json_t *variables = json_object_get(runtime, known[0]);
    if (result < 0 || variables == NULL || json_is_null(variables)) return result;
    if (!json_is_object(variables))
        return refuse(document, variables, known[0], "a map of names to texts", err);
    file->environment = calloc(json_object_size(variables) + 1, sizeof *file->environment);
    if (file->environment == NULL) return ty_fail_memory(err);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(variables, name, value) {
        result = config_check_variable(name, err);
        if (result < 0) return ty_wrap(err, "%s", document_where(document, value));
        if (!json_is_string(value)) return refuse(document, value, name, "a text (put it in quotes)", err);
        char *entry = str_format("%s=%s", name, json_string_value(value));
        if (entry == NULL) return ty_fail_memory(err);
        file->environment[file->n_environment++] = entry;
    }
    return 0;
}

int config_file_read(const char *path, struct config_file *file, struct scaling *scaling,
                     struct run_settings *settings, ty_error *err) {
    static const char *const sections[] = {"scaling_config", "run_config"};
    static const char *const others[] = {"worker_runtime_env"};
    int result = document_read(path, CONFIG_FILE_MAX, &file->document, err);
    /* Whatever else keeps a file from being read is wrong usage: its user named it. */
    if (result == -ENOMEM) return result;
    if (result < 0) return ty_fail(err, TY_EUSAGE, "--config: %s", err != NULL ? err->message : "");
    const struct document *document = file->document;
    const json_t *root = document_root(document);
    if (!json_is_object(root))
        return refuse(document, root, "the config", "a map with the fields of ScalingConfig", err);
    const json_t *part = json_object_get(root, sections[0]), *run = json_object_get(root, sections[1]);
    if (part == NULL && run == NULL) return scaling_read(scaling, root, document, err);
    result = document_check_keys(document, root, "a file with sections", sections, ARRAY_SIZE(sections), err);
    if (result >= 0 && part != NULL && !json_is_object(part))
        return refuse(document, part, sections[0], "a map", err);
    if (result >= 0 && part != NULL) result = scaling_read(scaling, part, document, err);
    if (result < 0 || run == NULL) return result;
    result = settings_read(settings, run, document, others, ARRAY_SIZE(others), err);
    const json_t *runtime = result < 0 ? NULL : json_object_get(run, others[0]);
    return runtime == NULL ? result : read_environment(file, runtime, err);
}
