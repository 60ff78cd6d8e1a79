/* What workers of `trainyard run` inherit: this process's environment, with --env and the config file's
 * variables on top. */
#ifndef CLI_RUN_ENVIRONMENT_H
#define CLI_RUN_ENVIRONMENT_H

#include <stddef.h>

#include "base/environment.h"
#include "base/error.h"

/* "K=V" texts in the order given. Zero-initialised is none. */
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

#endif
