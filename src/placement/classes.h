/* What is free on every node, nodes alike kept together. Two nodes are alike when they have the same shape, the
 * same free amounts and the same free parts of devices, whichever devices those are; such nodes form a class,
 * and the lowest node of a class is known at once. A decision then costs by classes and not by nodes.
 *
 * A node is changed while it is open: classes_open, then the amounts, then classes_close. All memory is claimed
 * by classes_init, so that opening and closing cannot fail and a decision can always be undone. */
#ifndef PLACEMENT_CLASSES_H
#define PLACEMENT_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/cluster.h"

enum { NONE = UINT32_MAX };

/* Whether the nodes of a class may be used in the decision that is being made, and how soon: a lower tier goes
 * first. */
enum tier { TIER_UNUSED, TIER_USED, TIER_EXCLUDED };

struct shape_info {
    const struct node_shape *shape;
    uint32_t n_nodes, first_node;
    uint32_t first_class;    /* list of the shape's classes */
    uint32_t first_resource; /* into classes->devices_at and ->devices_n, one entry for each of shape->total */
    uint32_t n_resources;    /* of shape->total, which lies far away */
    uint32_t n_positions;    /* devices of all resources together */
};

/* Head of a class; its amounts and its devices' free parts (ascending within each resource) follow in
 * memory. */
struct node_class {
    uint64_t hash;
    uint32_t shape; /* index of the shape */
    uint32_t first; /* the lowest node, root of the heap; NONE when there is no such class */
    uint32_t n_nodes;
    uint32_t tier;       /* enum tier */
    uint32_t next, back; /* in the list of the shape's classes */
};

struct heap_link {
    uint32_t child, next, back; /* `back` is the elder sibling, or the parent of an eldest child */
};

struct classes {
    const struct cluster *cluster;
    struct shape_info *shapes;
    uint32_t n_shapes;
    int32_t *devices_at; /* position of a resource's first device in a node's devices, -1 when it has none */
    uint32_t *devices_n;

    uint32_t *class_of;       /* class of each node; NONE while open */
    struct heap_link *links;  /* of each node in its class */
    uint32_t *first_position; /* of each node, into `devices` */
    uint16_t *devices;        /* free part of each device, 0..QUANTITY_ONE */

    char *records;
    size_t stride, devices_offset;
    uint32_t n_slots, n_classes; /* slots in use or freed, classes alive */
    uint32_t *freed;
    uint32_t n_freed;
    uint32_t *table; /* hash table of the classes whose shape has several nodes */
    uint32_t mask;

    uint32_t *log; /* ring of the last classes that changed, for those who keep an order of classes */
    uint64_t log_end;
    uint32_t log_mask;

    struct open_node {
        uint32_t node, shape;
        quantity *amounts; /* one for each of the shape's total */
        uint16_t *devices; /* the node's own */
    } open;
    uint16_t *sorted; /* room for one key */
};

/* `idle`: as if nothing on the nodes were taken. 0 or -ENOMEM. */
int classes_init(struct classes *classes, const struct cluster *cluster, bool idle);
void classes_done(struct classes *classes);

void classes_open(struct classes *classes, uint32_t node);
void classes_close(struct classes *classes, enum tier tier);

/* Moves a node, unchanged, to another tier. */
void classes_move(struct classes *classes, uint32_t node, enum tier tier);

static inline struct node_class *class_at(const struct classes *classes, uint32_t slot) {
    return (struct node_class *)(void *)(classes->records + slot * classes->stride);
}

static inline quantity *class_amounts(const struct node_class *class) {
    return (quantity *)(void *)((char *)class + sizeof *class);
}

static inline uint16_t *class_devices(const struct classes *classes, const struct node_class *class) {
    return (uint16_t *)(void *)((char *)class + classes->devices_offset);
}

static inline enum tier node_tier(const struct classes *classes, uint32_t node) {
    return (enum tier)class_at(classes, classes->class_of[node])->tier;
}

#endif
