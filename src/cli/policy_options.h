/* Options of what failures may cost and which checkpoints are kept. */
#ifndef CLI_POLICY_OPTIONS_H
#define CLI_POLICY_OPTIONS_H

#include <stdbool.h>

#include "cli/config_file.h"
#include "cli/options.h"
#include "run/policy.h"

struct policy_options {
    struct failure_policy failures;
    bool has_preemptions; /* their limit was given */
    struct checkpoint_policy checkpoints;
    int order, on_error; /* choices */
};

extern const struct option_group policy_group;

/* What the config file says, else the defaults; texts are borrowed from `settings`. */
void policy_options_init(struct policy_options *options, const struct run_settings *settings);

/* What follows from what was given: preemptions are without bound where failures may be followed by another attempt at all and nothing
 * else was said. TY_EUSAGE for a score order without a score. */
int policy_options_finish(struct policy_options *options, ty_error *err);

#endif
