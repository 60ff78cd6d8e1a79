/* The options of `trainyard run` that say how the run is named, bounded, stored and shown: the rows of
 * run/settings.def, and the environment of the workers. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include "base/environment.h"
#include "base/error.h"
#include "cli/options.h"
#include "run/settings.h"

/* What --env gives workers, on top of this process's environment and the config file's variables: "K=V" texts
 * in the order given. Zero-initialised is none. */
struct run_environment {
    char **items; /* owned array of borrowed texts; NULL-terminated, NULL when empty */
    size_t n;
};

void run_environment_done(struct run_environment *environment);

/* NAME=VALUE, or NAME alone, which must be set here (it is inherited then). */
int run_environment_add(struct run_environment *environment, const char *text, ty_error *err);

/* Later ones win: this process's, those of the config file (NULL-terminated; may be NULL), those given. `*made`
 * is the caller's. */
int run_environment_make(const struct run_environment *given, char *const *file, struct environment *made,
                         ty_error *err);

/* Target of both groups. */
struct run_options {
    struct run_settings settings;
    struct run_environment environment;
};

extern const struct option_group run_group, run_policy_group;

/* Drives the run, and tells its end in the name of the command: the exit status. `arguments`: of the command
 * line that goes on with it; NULL: neither that nor a success is told, as torchrun does. */
struct run_request;
int run_to_its_end(const char *command, const struct run_request *request, const struct arguments *arguments,
                   ty_error *err);

#endif
