/* The gang planner: places all bundles of a gang or none, on nodes whose free amounts it keeps (spec/placement.md 3.2).
 * Nodes alike (same shape, same free amounts) form one class, so a decision costs by classes, not by nodes. */
#ifndef PLACEMENT_PLANNER_H
#define PLACEMENT_PLANNER_H

#include <stdint.h>

#include "cluster/cluster.h"
#include "scaling/scaling.h"

/* Bundles of a gang, alike ones together. */
struct bundle_kind {
    const struct resources *resources;
    const struct label_selector *selector; /* NULL: any node */
};

struct gang {
    const struct bundle_kind *kinds;
    size_t n_kinds;
    const uint32_t *kind_of; /* n kind indices, NULL: all of kind 0 */
    size_t n;
    enum placement_strategy strategy;
    const uint32_t *excluded; /* nodes that STRICT_SPREAD must not use (host bundles of this gang already); n_excluded */
    size_t n_excluded;
    int64_t soft_target;      /* STRICT_PACK: node tried first; -1 none */
};

enum planner_result { PLANNER_PLACED, PLANNER_BUSY, PLANNER_INFEASIBLE };

struct planner; /* opaque */

struct planner *planner_create(const struct cluster *cluster); /* borrows the cluster; NULL when memory is short */
void planner_destroy(struct planner *planner);

/* On PLANNER_PLACED node_of[i] is the node of bundle i and the amounts are taken until planner_release. A planner_result, or
 * -ENOMEM. Devices are assigned per 3.6; `positions` when not NULL receives them, see planner.c's accessor. */
int planner_place(struct planner *planner, const struct gang *gang, uint32_t *node_of);

/* Gives back what a placed gang holds. */
void planner_release(struct planner *planner, const struct gang *gang, const uint32_t *node_of);

#endif
