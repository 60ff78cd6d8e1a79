/* Each limit is a whole number, -1 without bound. */
#include "cli/policy_options.h"

#include <stddef.h>

#include "base/cleanup.h"
#include "base/str.h"

static const char *const orders[] = {"max", "min", NULL};
static const char *const reactions[] = {"fail", "continue", NULL};

static int set_limit(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct policy_options *options = target;
    int64_t number = 0;
    if (!str_to_int64(value, -1, CONFIG_MAX_FAILURES, &number))
        return ty_fail(err, TY_EUSAGE, "must be a whole number from 0 to %d, or -1 for no bound",
                       CONFIG_MAX_FAILURES);
    *(int *)((char *)target + option->offset) = (int)number;
    if (option->offset == offsetof(struct policy_options, failures.max_preemption_failures))
        options->has_preemptions = true;
    return 0;
}

static int set_keep(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    int64_t number = 0;
    if (!str_to_int64(value, 1, CONFIG_MAX_FAILURES, &number))
        return ty_fail(err, TY_EUSAGE, "must be a whole number from 1 to %d", CONFIG_MAX_FAILURES);
    ((struct policy_options *)target)->checkpoints.num_to_keep = (int)number;
    return 0;
}

#define AT(field) offsetof(struct policy_options, field)

static const struct option_spec specs[] = {
    {"max-failures", 0, "N",
     "start the workers again after a failure, N times at most; -1: without bound (default: 0); sets "
     "failure_config.max_failures",
     set_limit, AT(failures.max_failures), NULL},
    {"max-start-failures", 0, "N",
     "try again when workers could not be started for want of processes or memory, N times at most; -1: "
     "without bound (default: 3); sets failure_config.controller_failure_limit",
     set_limit, AT(failures.controller_failure_limit), NULL},
    {"max-preemptions", 0, "N",
     "start the workers again when a node was taken away, N times at most; -1: without bound (default: 0, or "
     "-1 with --max-failures); sets failure_config.max_preemption_failures",
     set_limit, AT(failures.max_preemption_failures), NULL},
    {"keep-checkpoints", 0, "N",
     "keep the best N checkpoints, and the latest (default: all); sets checkpoint_config.num_to_keep", set_keep,
     0, NULL},
    {"checkpoint-score-attribute", 0, "METRIC",
     "the metric that tells which checkpoints are best (default: the newest are); sets "
     "checkpoint_config.checkpoint_score_attribute",
     option_text, AT(checkpoints.score_attribute), NULL},
    {"checkpoint-score-order", 0, "max|min",
     "whether the largest or the smallest score is best (default: max); sets "
     "checkpoint_config.checkpoint_score_order",
     option_choice, AT(order), orders},
    {"on-checkpoint-error", 0, "fail|continue",
     "when a checkpoint cannot be written: fail, or go on and keep the one before (default: fail); sets "
     "checkpoint_config.on_checkpoint_error",
     option_choice, AT(on_error), reactions},
};
const struct option_group policy_group = {"Failures and checkpoints", specs, ARRAY_SIZE(specs)};

void policy_options_init(struct policy_options *options, const struct run_settings *settings) {
    *options = (struct policy_options){.failures = FAILURE_POLICY_DEFAULT};
    if (settings->has_max_failures) options->failures.max_failures = settings->max_failures;
    if (settings->has_start_failures) options->failures.controller_failure_limit = settings->start_failures;
    if (settings->has_preemptions) options->failures.max_preemption_failures = settings->preemptions;
    options->has_preemptions = settings->has_preemptions;
    options->checkpoints.num_to_keep = settings->num_to_keep;
    options->checkpoints.score_attribute = settings->score_attribute;
    options->order = settings->score_min;
    options->on_error = settings->continue_on_error;
}

int policy_options_finish(struct policy_options *options, ty_error *err) {
    if (!options->has_preemptions && options->failures.max_failures != 0)
        options->failures.max_preemption_failures = -1;
    options->checkpoints.score_min = options->order == 1;
    options->checkpoints.on_error = (enum checkpoint_error)options->on_error;
    if (options->order == 1 && options->checkpoints.score_attribute == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "--checkpoint-score-order min needs --checkpoint-score-attribute, whose order it is");
    return 0;
}
