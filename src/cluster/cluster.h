/* The nodes that an engine offers: what they have, and what of it is free. Made for 100,000 nodes: nodes with
 * the same resources, labels and type share one shape, and a node costs its name and a few words.
 *
 * A cluster is filled once, by a probe of this machine, a cluster file, the nodes that have joined, or Slurm,
 * and then read: plans keep names of it, and it must outlive them. What other runs hold is not taken off before
 * lease_apply (lease.h). */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accelerator/accelerator.h"
#include "base/quantity.h"
#include "scaling/label.h"

/* Devices of one resource name on nodes of a shape. */
struct node_devices {
    char *resource; /* "GPU" */
    size_t n;
    /* n of each; NULL: none is known, and ids are "0", "1", .. */
    char **ids;     /* names for the visible-devices variable */
    char **uuids;   /* "" where unknown; leases go by them */
    char **bus_ids; /* PCI addresses, "" where unknown; binding to near cores goes by them */
};

/* Of one resource on one node, and of all nodes together: a plan looks at each of them. */
enum { NODE_MAX_DEVICES = 4096, CLUSTER_MAX_DEVICES = 16 * 1024 * 1024 };

/* What nodes of one kind have. */
struct node_shape {
    /* With accelerator_type:<T> = 1 where the type is known; node:<name> is never in it. */
    struct resources total;
    struct labels labels;
    char *accelerator_type;       /* NULL when unknown */
    struct node_devices *devices; /* one for each device resource in `total` */
    size_t n_devices;
    struct node_shape *next; /* the cluster's list */
};

/* `n` more devices, without names yet; `resource` is copied. NULL when memory is short. */
struct node_devices *node_shape_add_devices(struct node_shape *shape, const char *resource, size_t n);
/* Copies names of devices that have none yet, n of each kind; NULL: those are not known. 0, or -ENOMEM with
 * some of them, which go with the shape. */
int node_devices_name(struct node_devices *devices, char *const *ids, char *const *uuids, char *const *bus_ids);

/* Frees what a shape holds that no cluster has taken over; leaves it empty. */
void node_shape_done(struct node_shape *shape);

/* The name of device `index` for the visible-devices variable; `text` holds it when it is only a number. */
const char *node_device_id(const struct node_devices *devices, size_t index, char text[24]);

/* What is free on a node of which something is taken. */
struct node_use {
    struct resources available; /* every resource of the shape's total, what is left of it */
    /* For each of shape->devices, n amounts of 0..QUANTITY_ONE; one block, free()d as one. */
    quantity **device_free;
};

struct node {
    const char *name;               /* in the cluster's memory */
    const struct node_shape *shape; /* shared */
    struct node_use *use;           /* NULL: all of it is free */
};

enum { CLUSTER_MAX_NODES = 4 * 1024 * 1024 };

struct cluster {
    struct node *nodes;
    size_t n;
    bool logical; /* nodes of a cluster file, run as logical nodes of this machine */
    /* the rest belongs to cluster.c */
    struct node_shape *shapes;
    struct cluster_names *names;
};

struct cluster *cluster_create(void);
void cluster_destroy(struct cluster *cluster);

/* Takes over what `*shape` holds (it is left empty); `*kept` is the cluster's own, an equal shape is found
 * again. On failure (TY_EUSAGE, -ENOMEM) the shape is still the caller's. Adds what follows from the rest
 * (docs/spec/accelerators.md 1.1, 2.7): accelerator_type:<T> and the label ray.io/accelerator-type, the slice
 * and head resources of a TPU host, and devices for the device resources in `total` that have none. Checks
 * (1.4): whole, non-negative amounts; zero entries are dropped. */
int cluster_shape(struct cluster *cluster, struct node_shape *shape, const struct node_shape **kept,
                  ty_error *err);
/* `use` (may be NULL) is taken over. A name that is there already is TY_EUSAGE. */
int cluster_add_node(struct cluster *cluster, const char *name, const struct node_shape *shape,
                     struct node_use **use, ty_error *err);

/* Takes nodes out that `drop` says; no node may be added afterwards. */
void cluster_drop_nodes(struct cluster *cluster, bool (*drop)(void *context, const char *name), void *context);

/* `available` amounts turned into a use: what is not named is all free, devices in use are the lowest ones.
 * Unknown names or more than the total: TY_EUSAGE. */
int node_use_create(const struct node_shape *shape, const struct resources *available, struct node_use **use,
                    ty_error *err);
void node_use_destroy(struct node_use *use);
quantity node_available(const struct node *node, const char *resource);

/* Reads a cluster file (docs/design.md 5.3), streaming: memory grows by the nodes only. */
int cluster_read(const char *path, struct cluster **cluster, ty_error *err);

/* What the command line or init() says instead of what was probed. */
struct cluster_overrides {
    double num_cpus, num_gpus;       /* negative: as probed */
    struct resources node_resources; /* --node-resources */
};

/* This machine as a cluster of one node: cores this process may use, memory, accelerators, labels; then the
 * overrides. The node's name is the host name. Everything is free in it: lease_apply (lease.h) takes off what
 * other runs hold. More devices than an inherited visible-devices variable names: TY_EUSAGE
 * (docs/spec/accelerators.md 1.4). */
int cluster_probe(const struct cluster_overrides *overrides, struct cluster **cluster, ty_error *err);

/* ty_cluster_nodes, for what <trainyard/cluster.h> says. */
int cluster_nodes_json(const char *request_json, char **nodes_json, ty_error *err);

/* What makes node shapes fit to be shared: completing and checking one, and telling equal ones. For
 * cluster.c. */

/* Checks the shape and adds what follows from it, as cluster_shape() promises. After a failure it is good for
 * node_shape_done only. */
int node_shape_complete(struct node_shape *shape, ty_error *err);

/* Over everything but `next`; order of the resources counts. */
uint64_t node_shape_hash(const struct node_shape *shape);
bool node_shape_equal(const struct node_shape *a, const struct node_shape *b);

/* What the kernel lets this process use of the machine: cores and memory, with the limits of its control groups
 * (versions 1 and 2). `root` is put before every path read, "" for this machine; tests bring trees of their
 * own. */

/* Cores in the affinity mask of this process. At least 1. */
int64_t usable_affinity_cores(void);

/* `cores`, or what the CPU quotas leave of them, rounded up. At least 1. */
int64_t usable_quota_cores(const char *root, int64_t cores);

/* Bytes: the machine's memory, or what the memory limits leave of it; 0 when unknown. */
int64_t usable_memory(const char *root);

#endif
