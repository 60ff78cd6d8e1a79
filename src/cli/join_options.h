/* The options of `trainyard run` and `trainyard plan` for several machines, on each of which the same command
 * is started. */
#ifndef CLI_JOIN_OPTIONS_H
#define CLI_JOIN_OPTIONS_H

#include "cli/options.h"
#include "cli/scaling_options.h"
#include "engine/engine.h"
#include "run/settings.h"

/* Target of the group. */
struct join_options {
    struct engine_options options;
    const char *key_file;
    struct hosts hosts;
};

extern const struct option_group join_group;

void join_options_init(struct join_options *join);
/* Reads the key, and checks what belongs together. */
int join_options_finish(struct join_options *join, const struct cluster_options *cluster, ty_error *err);
/* A node of another rank than 0: serves the controller of that one; the run's exit status. */
int join_options_serve(const struct join_options *join, const char *command,
                       const struct cluster_options *cluster);

#endif
