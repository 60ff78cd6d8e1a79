/* The gang planner: places all bundles of a gang or none, on nodes whose free amounts it keeps
 * (docs/spec/placement.md 3.2). Its words, each with one meaning in this room:
 *
 *   bundle     what one worker takes; the gang is all bundles of a decision
 *   kind       bundles alike: same resources, same label selector, so the same nodes fit them
 *   class      nodes alike: same shape, same free amounts; a decision costs by classes, not by nodes
 *   score      what a class is worth to a kind
 *   tier       whether a decision may still use a node: unused before used, excluded never
 *   open node  the one node whose amounts are being changed; it is in no class meanwhile
 *   decision   one gang placed, or nothing changed; the planner's state goes from decision to decision
 *
 * Like the reference it is greedy: STRICT_SPREAD and PACK do not take a choice back, so they can miss a
 * placement that a search would find. Ties go to the lower bundle and the lower node; the same input gives the
 * same answer. */
#ifndef PLACEMENT_PLANNER_H
#define PLACEMENT_PLANNER_H

#include <stdbool.h>
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
    const char *domain; /* a label that all nodes must agree in (docs/spec/placement.md 3.2 step 9), or NULL */
    /* For a gang of which a part is placed already (3.2 steps 7 and 8, vectors P20 and P22). A run asks for
     * neither: each attempt is placed whole. */
    const uint32_t *excluded; /* nodes that STRICT_SPREAD must not use, n_excluded of them */
    size_t n_excluded;
    int64_t soft_target; /* STRICT_PACK: node tried first; negative: none */
};

enum planner_result { PLANNER_PLACED, PLANNER_BUSY, PLANNER_INFEASIBLE };

struct planner; /* opaque */

/* Borrows the cluster and copies what is free on it; `idle` takes all of it as free. NULL when memory is
 * short. */
struct planner *planner_create(const struct cluster *cluster, bool idle);
void planner_destroy(struct planner *planner);

/* Device positions that one bundle of the gang may need: the length of a row of `positions` below. */
size_t gang_stride(const struct gang *gang);

/* A planner_result, or -ENOMEM. On PLANNER_PLACED node_of[i] is the node of bundle i, and row i of `positions`
 * (n rows of gang_stride; NULL when that is 0) holds the devices granted to it: for each of its device
 * resources, by name in byte order, the positions in the shape's node_devices, ascending (one for a part of a
 * device). The amounts are then taken until planner_release. On another result the arrays hold nothing of use,
 * and nothing is taken. */
int planner_place(struct planner *planner, const struct gang *gang, uint32_t *node_of, uint16_t *positions);

/* Gives back what a placed gang holds, devices to where they were. */
void planner_release(struct planner *planner, const struct gang *gang, const uint32_t *node_of,
                     const uint16_t *positions);

/* Places bundle by bundle where the caller says, in its order: node_of is given. PLANNER_PLACED or
 * PLANNER_BUSY. */
int planner_place_at(struct planner *planner, const struct gang *gang, const uint32_t *node_of,
                     uint16_t *positions);

/* How many alike bundles fit now, at most `limit`: exact for each strategy without a domain. Or -ENOMEM. */
int64_t planner_capacity(struct planner *planner, const struct bundle_kind *bundle,
                         enum placement_strategy strategy, int64_t limit);

/* What is free now of resource number `resource` in the total of the node's shape, and of its device
 * `position`. */
quantity planner_free(const struct planner *planner, uint32_t node, size_t resource);
quantity planner_device_free(const struct planner *planner, uint32_t node, size_t resource, size_t position);

#endif
