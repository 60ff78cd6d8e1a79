/* The options of `trainyard run` that say how the run is named, bounded, stored and shown: the rows of
 * run/settings.def, and the environment of the workers. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include "cli/options.h"
#include "cli/run_environment.h"
#include "run/settings.h"

/* Target of both groups. */
struct run_options {
    struct run_settings settings;
    struct run_environment environment;
};

extern const struct option_group run_group, run_policy_group;

#endif
