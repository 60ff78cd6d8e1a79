/* Which cores and memory are near a worker's devices, for `--bind numa`. hwloc knows; it comes as the module
 * topology, loaded by the first topology_place(). Nothing is bound here: the agent does that, of the worker
 * that it starts. */
#ifndef CLUSTER_TOPOLOGY_H
#define CLUSTER_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/idset.h"

/* A worker to be placed: near its devices, or without devices (none of known address) at its share of the NUMA
 * nodes. */
struct topology_request {
    const char *const *bus_ids; /* PCI addresses of its devices, "" where unknown; n of them */
    size_t n;
    size_t index, of; /* local rank and local world size */
};

/* Where it goes. */
struct topology_place {
    struct idset cores; /* logical CPUs as the kernel counts them; empty: leave the worker where it is */
    int64_t numa_node;  /* for its memory, as the kernel counts them; -1 when its cores are of several */
};

struct topology_module {
    const char *version;
    int (*place)(const struct topology_request *request, struct topology_place *place, ty_error *err);
};

/* True when this machine has more than one NUMA node with cores; else binding changes nothing. Asks /sys
 * only. */
bool topology_worthwhile(void);

/* The place of one worker; `place` is filled anew, topology_place_done frees. TY_EUNSUPPORTED without the
 * module. */
int topology_place(const struct topology_request *request, struct topology_place *place, ty_error *err);
void topology_place_done(struct topology_place *place);

#endif
