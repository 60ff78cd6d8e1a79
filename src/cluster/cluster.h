/* The nodes that an engine offers: what they have, and what of it is free. Made for 100,000 nodes: nodes with the same
 * resources, labels and type share one shape, and a node costs its name and a few words. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include "accelerator/accelerator.h"
#include "base/quantity.h"
#include "scaling/label.h"

/* Devices of one resource name on nodes of a shape. */
struct node_devices {
    char *resource; /* "GPU" */
    size_t n;
    char **ids;     /* n names for the visible-devices variable; NULL: "0", "1", .. */
};

/* What nodes of one kind have. */
struct node_shape {
    struct resources total; /* with accelerator_type:<T> = 1 where the type is known, and node:<name> is never in it */
    struct labels labels;
    char *accelerator_type; /* NULL when unknown */
    struct node_devices *devices; /* one for each device resource in `total` */
    size_t n_devices;
    struct node_shape *next; /* the cluster's list */
};

/* What is free on a node of which something is taken. */
struct node_use {
    struct resources available;  /* every resource of the shape's total, what is left of it */
    quantity **device_free;      /* for each of shape->devices, n amounts of 0..QUANTITY_ONE */
};

struct node {
    const char *name;               /* in the cluster's memory */
    const struct node_shape *shape; /* shared */
    struct node_use *use;           /* NULL: all of it is free */
};

struct cluster {
    struct node *nodes;
    size_t n;
    bool logical; /* nodes of a cluster file, run as logical nodes of this machine */
    /* the rest belongs to cluster.c */
    struct node_shape *shapes;
    struct cluster_names *names;
    size_t capacity;
};

struct cluster *cluster_create(void);
void cluster_destroy(struct cluster *cluster);

/* Takes over what `*shape` holds (it is left empty) and answers the cluster's own; an equal shape is found again. Devices are
 * made from `total` where they are missing. Checks: whole node amounts of devices, non-negative, labels. */
const struct node_shape *cluster_shape(struct cluster *cluster, struct node_shape *shape, ty_error *err);
/* `use` (may be NULL) is taken over. A name that is there already is TY_EUSAGE. */
int cluster_add_node(struct cluster *cluster, const char *name, const struct node_shape *shape, struct node_use **use,
                     ty_error *err);

/* `available` amounts turned into a use: devices in use are the lowest ones. Unknown names or more than total: TY_EUSAGE. */
int node_use_create(const struct node_shape *shape, const struct resources *available, struct node_use **use,
                    ty_error *err);
void node_use_destroy(struct node_use *use);
quantity node_available(const struct node *node, const char *resource);

/* Reads a cluster file (DESIGN.md 5.3), streaming: memory grows by the nodes only. */
int cluster_read(const char *path, struct cluster **cluster, ty_error *err);

/* What the command line or init() says instead of what was probed. */
struct cluster_overrides {
    double num_cpus, num_gpus;       /* negative: as probed */
    struct resources node_resources; /* --node-resources */
};

/* This machine as a cluster of one node: cores this process may use, memory, accelerators, labels; then the overrides.
 * The node's name is the host name. Devices held by leases of other runs are taken from what is free. */
int cluster_probe(const struct cluster_overrides *overrides, struct cluster **cluster, ty_error *err);

#endif
