/* What each worker of a plan would find in its environment, for `trainyard plan --framework`: all that the run
 * sets, with words in place of what is chosen at the start. */
#ifndef CLI_PLAN_ENVIRONMENT_H
#define CLI_PLAN_ENVIRONMENT_H

#include "base/buffer.h"
#include "placement/plan.h"
#include "run/settings.h"

struct plan_environment {
    const struct plan *plan;
    const struct cluster *cluster;
    const struct demand *demand;
    const struct run_settings *settings;
};

/* Appends a paragraph for each worker: its rank, node and slice, and a line for each variable. */
int plan_environment_text(const struct plan_environment *view, struct buffer *out, ty_error *err);
/* Puts the variables into the plan's JSON, in place of the "env" that has the devices alone. */
int plan_environment_json(const struct plan_environment *view, struct buffer *json, ty_error *err);

#endif
