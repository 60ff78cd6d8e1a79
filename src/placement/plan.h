/* The plan: which worker goes on which node with which devices, or why that is impossible
 * (docs/spec/placement.md 3, docs/spec/train-api.md 2.3). Pure; the same input gives the same plan.
 *
 * A plan claims nothing: what it gives may be another's by the time that it is carried out, which leases tell
 * (cluster/lease.h). */
#ifndef PLACEMENT_PLAN_H
#define PLACEMENT_PLAN_H

#include <stdint.h>

#include "cluster/cluster.h"
#include "scaling/scaling.h"

/* A grant of devices of one resource to one worker: positions in the shape's node_devices. */
struct grant {
    uint16_t devices; /* which of shape->devices */
    uint16_t n;
    uint32_t first; /* into plan->positions: n positions, ascending as granted */
};

/* Workers in world rank order. */
struct plan_worker {
    uint32_t node; /* index in the cluster */
    uint32_t node_rank, local_rank, local_world_size;
    int32_t slice;   /* index in plan->slices, -1 without slices */
    uint32_t bundle; /* which bundle of the demand it came from (per-worker selectors) */
    uint32_t first_grant;
    uint32_t n_grants;
};

struct plan_slice {
    const char *name; /* the label's value, the cluster's memory */
    uint32_t first_worker, n_workers;
};

enum plan_verdict { PLAN_FEASIBLE, PLAN_BUSY, PLAN_INFEASIBLE };

struct plan_short {
    char *resource;
    quantity need, have;
};

struct plan {
    enum plan_verdict verdict;
    size_t n_workers; /* what fits between the demand's least and most; 0 unless feasible */
    struct plan_worker *workers;
    struct grant *grants;
    uint16_t *positions;
    size_t n_nodes_used;
    uint32_t *node_order; /* node index by node rank, n_nodes_used of them */
    struct plan_slice *slices;
    size_t n_slices;
    /* One sentence, NULL when feasible: what is short, where, and the smallest change that would fit. */
    char *reason;
    struct plan_short *shorts;
    size_t n_shorts;
    struct resources total; /* with the trainer's */
};

/* Places every worker of the demand or none: the most that fit for an elastic one. PLAN_BUSY means that it
 * would fit with nothing taken on the nodes, PLAN_INFEASIBLE that it would not even then. `max_workers` 0
 * (local mode) is feasible and places nobody. The plan keeps names of the cluster, which must outlive it. 0
 * also when it does not fit; negative for want of memory. */
int plan_make(const struct cluster *cluster, const struct demand *demand, struct plan **plan, ty_error *err);
void plan_destroy(struct plan *plan);

/* The visible-devices ids of a worker: the union of this run's devices on its node, in order; only its own with
 * `own`, and for TPU chips, which one process alone can open. Calls `change` with each variable (also TPU
 * bounds). */
int plan_worker_environment(const struct plan *plan, const struct cluster *cluster, size_t rank, bool own,
                            environment_change *change, void *context);
/* Own device indices within the visible list ("0,1"), for TRAINYARD_DEVICES; "" without devices. */
void plan_worker_devices(const struct plan *plan, const struct cluster *cluster, size_t rank, bool own,
                         struct buffer *out);

/* Calls `each` with the ids of a worker's own devices of one resource, in order; `numbered`: the id is a whole
 * number. The id is borrowed during the call. 0 or -ENOMEM. */
int plan_each_device(const struct plan *plan, const struct cluster *cluster, size_t rank, size_t devices,
                     void (*each)(void *context, const char *id, bool numbered), void *context);

/* The object of docs/design.md 5.3, pretty-printed. */
void plan_format_json(const struct plan *plan, const struct cluster *cluster, const struct demand *demand,
                      struct buffer *out);
/* A drawing for a person: each node, its devices as cells and who holds them; or the refusal. `colour` uses SGR
 * codes. */
void plan_format_text(const struct plan *plan, const struct cluster *cluster, const struct demand *demand,
                      bool colour, struct buffer *out);

#endif
