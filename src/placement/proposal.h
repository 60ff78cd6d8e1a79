/* A demand put to a planner: the gang it makes, how many of its workers fit, and where they would go. It is
 * between the plan, which speaks of ranks, and the planner, which knows bundles alone: elastic bounds, the
 * trainer beside bundle 0 and TPU slices are turned into gangs here. */
#ifndef PLACEMENT_PROPOSAL_H
#define PLACEMENT_PROPOSAL_H

#include "placement/planner.h"

struct chosen_slice {
    const char *name; /* the cluster's memory */
    uint32_t first_bundle, n_bundles;
};

struct proposal {
    const struct cluster *cluster;
    const struct demand *demand;
    struct planner *planner; /* what is free now, or all of it */
    bool idle;

    struct resources first;    /* bundle 0: a worker and the trainer beside it */
    struct bundle_kind *kinds; /* one a selector, and one for bundle 0 when the trainer wants something */
    uint32_t *kind_of;
    size_t n_kind_of;

    size_t n; /* workers placed, 0: none */
    uint32_t *node_of;
    uint16_t *positions;
    size_t stride;
    struct chosen_slice *slices; /* by name */
    size_t n_slices;
};

/* `idle`: on nodes of which nothing is taken. 0 or -ENOMEM; done() suits a proposal that failed. */
int proposal_init(struct proposal *proposal, const struct cluster *cluster, const struct demand *demand,
                  bool idle);
void proposal_done(struct proposal *proposal);

/* Places as many workers as fit from `least` to `most`. 1 when it did, 0 when not even the least fit, or
 * -ENOMEM. */
int proposal_place(struct proposal *proposal, size_t least, size_t most);
void proposal_withdraw(struct proposal *proposal); /* gives back what is placed */

/* The most workers from 1 to `most` that fit; 0 when none does. Or -ENOMEM. */
int64_t proposal_most(struct proposal *proposal, size_t most);

/* The gang of n workers. */
struct gang proposal_gang(const struct proposal *proposal, size_t n);

/* TPU slices (docs/spec/accelerators.md 2.7 to 2.9): nodes of one slice name and the right pod type that
 * together have all chips of the topology, worker 0 among them. A slice is given whole or not at all; one after
 * the other, lowest head node first. */

struct slice_host {
    uint32_t node, slice;
    int64_t worker_id;
    int64_t quota; /* workers that go here */
    bool usable;   /* as its slice is */
};

struct slice {
    const char *name;
    uint32_t first_host, n_hosts, head; /* hosts by worker id; the node of the first */
    quantity units;                     /* sum of the TPU totals */
    bool has_head, intact;              /* intact: all chips of the topology are there, and worker 0 */
    bool usable;                        /* and the demand's workers divide over its hosts */
};

struct slice_list {
    struct slice_host *hosts;
    size_t n_hosts;
    struct slice *slices;
    size_t n;
    size_t n_intact;
    quantity units_per_slice;
};

int slices_find(const struct cluster *cluster, const struct demand *demand, struct slice_list *list);
void slices_done(struct slice_list *list);

/* As proposal_place, which calls it with room for slices_bound() workers. */
int slices_place(struct proposal *proposal, size_t least, size_t most);
size_t slices_bound(const struct proposal *proposal, size_t most);

#endif
