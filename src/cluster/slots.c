/* The compact index that cluster.h declares: open addressing with linear probing, at most two thirds full.
 * Hashes are not stored but computed again when the table grows, which keeps an item at 6 to 12 bytes. */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>

void slots_done(struct slots *slots) {
    free(slots->table);
    *slots = (struct slots){0};
}

int64_t slots_find(const struct slots *slots, const struct slots_of *of, uint64_t hash, const void *key) {
    if (slots->n_table == 0) return SLOTS_NONE;
    for (size_t at = hash & (slots->n_table - 1); slots->table[at] != 0; at = (at + 1) & (slots->n_table - 1)) {
        uint32_t item = slots->table[at] - 1;
        if (of->equal(of->items, item, key)) return item;
    }
    return SLOTS_NONE;
}

static void put(uint32_t *table, size_t n_table, uint64_t hash, uint32_t entry) {
    size_t at = hash & (n_table - 1);
    while (table[at] != 0)
        at = (at + 1) & (n_table - 1);
    table[at] = entry;
}

static int grow(struct slots *slots, const struct slots_of *of) {
    size_t n_table = slots->n_table == 0 ? 16 : 2 * slots->n_table;
    uint32_t *table = calloc(n_table, sizeof *table);
    if (table == NULL) return -ENOMEM;
    for (size_t i = 0; i < slots->n_table; i++)
        if (slots->table[i] != 0)
            put(table, n_table, of->hash(of->items, slots->table[i] - 1), slots->table[i]);
    free(slots->table);
    slots->table = table;
    slots->n_table = n_table;
    return 0;
}

int slots_add(struct slots *slots, const struct slots_of *of, uint32_t item) {
    if (3 * (slots->n + 1) > 2 * slots->n_table && grow(slots, of) < 0) return -ENOMEM;
    put(slots->table, slots->n_table, of->hash(of->items, item), item + 1);
    slots->n++;
    return 0;
}
