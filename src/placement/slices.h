/* TPU slices (docs/spec/accelerators.md 2.7 to 2.9): nodes of one slice name and the right pod type that
 * together have all chips of the topology, worker 0 among them. A slice is given whole or not at all; one after
 * the other, lowest head node first. */
#ifndef PLACEMENT_SLICES_H
#define PLACEMENT_SLICES_H

#include "placement/proposal.h"

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
