/* Before anything starts: the request is checked, the cluster looked at, every worker placed, devices
 * claimed. */
#ifndef CONTROLLER_PREPARE_H
#define CONTROLLER_PREPARE_H

#include "cluster/lease.h"
#include "controller/controller.h"
#include "engine/engine.h"
#include "framework/framework.h"
#include "placement/plan.h"

struct prepared {
    struct demand demand;
    const struct engine *engine;
    const struct framework *framework;
    struct cluster *cluster;
    struct plan *plan;
    struct lease *lease;   /* NULL: no device is needed, or the nodes are logical */
    nanoseconds plan_time; /* what probing and planning took */
};

/* Checks all that can be checked without looking at nodes. */
int prepare_check(const struct run_request *request, struct prepared *prepared, ty_error *err);

/* True when some worker holds a device, which other runs of this machine may hold as well. */
bool prepare_needs_devices(const struct demand *demand);

/* Plans and claims. TY_EINFEASIBLE, or TY_EBUSY: then `*holders` (the caller's) are the runs that hold what is
 * short, none when nobody can be waited for. May be called again. */
int prepare_plan(const struct run_request *request, const char *run_name, struct prepared *prepared,
                 struct lease_holder **holders, size_t *n_holders, ty_error *err);

void prepare_done(struct prepared *prepared);

#endif
