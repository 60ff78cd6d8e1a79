/* From bundles to ranks (docs/spec/train-api.md 2.3). Nodes come in the order in which bundles first name them;
 * on a node workers come by their lowest device; node, local and world ranks follow. So the ranks of a node are
 * consecutive, and local rank 0 has the lowest device. */
#ifndef PLACEMENT_RANKS_H
#define PLACEMENT_RANKS_H

#include <stddef.h>
#include <stdint.h>

/* A worker's lowest device id: a number, or on nodes where some id is none the smallest text. Without devices
 * {0, NULL}. */
struct rank_key {
    int64_t number;
    const char *text;
};

/* order[r] is the bundle of world rank r. Node indices are below n_nodes; equal keys keep the order of bundles.
 * 0 or -ENOMEM. */
int ranks_order(const uint32_t *node_of, const struct rank_key *keys, size_t n, size_t n_nodes,
                uint32_t *order);

struct rank_place {
    uint32_t node_rank, local_rank, local_world_size;
};

/* Places of n ranks whose nodes are given in rank order. */
void ranks_locate(const uint32_t *node_of_rank, size_t n, struct rank_place *places);

#endif
