/* The file of --config: scaling config and run config in YAML or JSON, with the field names of Python. */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include <stdbool.h>

#include "base/error.h"
#include "scaling/scaling.h"

/* A field of run_config that is an option of `trainyard run` as well, whose setter reads it. */
struct run_setting {
    const char *option; /* its long name */
    char *text;         /* as for the option; NULL: a flag; owned */
    char *where;        /* "FILE:LINE:COLUMN: field"; owned */
};

enum { RUN_SETTINGS_MAX = 16 };

/* What run_config says; strings are owned, NULL when not given. */
struct run_settings {
    char *name, *storage_path;
    bool has_max_failures, has_start_failures, has_preemptions;
    int max_failures, start_failures, preemptions;
    int num_to_keep;       /* 0: all */
    char *score_attribute; /* owned; NULL: none */
    bool score_min, continue_on_error;
    char **environment; /* "K=V" of worker_runtime_env.env_vars, n of them; owned */
    size_t n_environment;
    struct run_setting options[RUN_SETTINGS_MAX];
    size_t n_options;
};

void run_settings_done(struct run_settings *settings);
/* What the file says of an option by its long name, borrowed; NULL: nothing. */
const char *run_settings_text(const struct run_settings *settings, const char *option);

enum { CONFIG_FILE_MAX = 1 << 20, CONFIG_MAX_FAILURES = 1000000 };

/* Reads the fields of ScalingConfig from the top level, or from `scaling_config` when the file has the sections
 * `scaling_config` and `run_config`. Both targets are initialised; fields that are absent keep their value. */
int config_file_read(const char *path, struct scaling *scaling, struct run_settings *settings, ty_error *err);

/* A variable name that a user may set for workers: TY_EUSAGE for what is no name, and for those that Trainyard
 * sets. */
int config_check_variable(const char *name, ty_error *err);

#endif
