/* What makes node shapes fit to be shared: completing and checking one, and telling equal ones. For
 * cluster.c. */
#ifndef CLUSTER_SHAPE_H
#define CLUSTER_SHAPE_H

#include <stdint.h>

#include "cluster/cluster.h"

/* Checks the shape and adds what follows from it, as cluster_shape() promises. After a failure it is good for
 * node_shape_done only. */
int node_shape_complete(struct node_shape *shape, ty_error *err);

/* Over everything but `next`; order of the resources counts. */
uint64_t node_shape_hash(const struct node_shape *shape);
bool node_shape_equal(const struct node_shape *a, const struct node_shape *b);

#endif
