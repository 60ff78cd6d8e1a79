/* Devices of a plan's workers by their ids; the rest of plan_devices.c is declared in plan.h. */
#ifndef PLACEMENT_PLAN_DEVICES_H
#define PLACEMENT_PLAN_DEVICES_H

#include "placement/plan.h"

/* Calls `each` with the ids of a worker's own devices of one resource, in order; `numbered`: the id is a whole number. The id is
 * borrowed during the call. 0 or -ENOMEM. */
int plan_each_device(const struct plan *plan, const struct cluster *cluster, size_t rank, size_t devices,
                     void (*each)(void *context, const char *id, bool numbered), void *context);

#endif
