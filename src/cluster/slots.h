/* A compact index of numbered items by the hash of their content: four bytes a slot, nothing else is kept for
 * an item. The items lie with the caller, who says how to hash item number i and how to compare it with a
 * key. */
#ifndef CLUSTER_SLOTS_H
#define CLUSTER_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialised is empty. */
struct slots {
    uint32_t *table; /* owned; item + 1, 0 for a free slot */
    size_t n_table;  /* 0 or a power of two */
    size_t n;
};

enum { SLOTS_NONE = -1 };

struct slots_of {
    uint64_t (*hash)(const void *items, uint32_t item);
    bool (*equal)(const void *items, uint32_t item, const void *key);
    const void *items;
};

void slots_done(struct slots *slots);

/* The number of the item equal to `key`, or SLOTS_NONE. */
int64_t slots_find(const struct slots *slots, const struct slots_of *of, uint64_t hash, const void *key);

/* Adds item number `item`, which must not be there; `of->items` must already hold it. 0, or -ENOMEM. */
int slots_add(struct slots *slots, const struct slots_of *of, uint32_t item);

#endif
