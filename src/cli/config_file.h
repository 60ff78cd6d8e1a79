/* The file of --config: scaling config and run config in YAML or JSON, with the field names of Python. */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include "base/document.h"
#include "base/error.h"
#include "run/settings.h"
#include "scaling/scaling.h"

enum { CONFIG_FILE_MAX = 1 << 20 };

/* What was read; zero-initialised is no file. */
struct config_file {
    struct document *document; /* owned; texts of the settings are borrowed from it */
    char **environment;        /* "K=V" of worker_runtime_env.env_vars, n of them; owned */
    size_t n_environment;
};

/* Reads the fields of ScalingConfig from the top level, or from `scaling_config` when the file has the sections
 * `scaling_config` and `run_config`. Both targets are initialised; fields that are absent keep their value. */
int config_file_read(const char *path, struct config_file *file, struct scaling *scaling,
                     struct run_settings *settings, ty_error *err);
void config_file_done(struct config_file *file);

/* A variable name that a user may set for workers: TY_EUSAGE for what is no name, and for those that Trainyard
 * sets. */
int config_check_variable(const char *name, ty_error *err);

#endif
