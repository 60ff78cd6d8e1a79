/* Which rank each bundle of a plan has. Rank order by counting: nodes in first-seen order, each node's bundles
 * in their place, then by lowest device. Bundles stay where they were put. Whether there are enough of them was
 * decided before. */
#include "placement/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct keyed_bundle {
    struct rank_key key;
    uint32_t bundle;
};

static int entry_order(const void *a, const void *b) {
    const struct keyed_bundle *x = a, *y = b;
    int order = 0;
    if (x->key.text || y->key.text) {
        order = strcmp(x->key.text ? x->key.text : "", y->key.text ? y->key.text : "");
    } else if (x->key.number != y->key.number) {
        order = x->key.number < y->key.number ? -1 : 1;
    }
    return order ? order : (x->bundle > y->bundle) - (x->bundle < y->bundle);
}

int ranks_order(const uint32_t *node_of, const struct rank_key *keys, size_t n, size_t n_nodes,
                uint32_t *order) {
    uint32_t *count = calloc(n_nodes + 1, sizeof *count), *start = malloc((n_nodes + 1) * sizeof *start);
    struct keyed_bundle *entries = malloc((n + 1) * sizeof *entries);
    if (count && start && entries) {
        /* Counts of each node's bundles turned into where its first goes; nodes in first-seen order. */
        uint32_t at = 0;
        for (size_t i = 0; i < n; i++)
            count[node_of[i]]++;
        for (size_t i = 0; i < n; i++) {
            uint32_t node = node_of[i];
            if (!count[node]) continue;
            start[node] = at;
            at += count[node];
            count[node] = 0;
        }
        for (uint32_t i = 0; i < n; i++)
            entries[start[node_of[i]]++] = (struct keyed_bundle){keys[i], i};
        for (size_t first = 0, end; first < n; first = end) {
            for (end = first + 1; end < n && node_of[entries[end].bundle] == node_of[entries[first].bundle];)
                end++;
            qsort(entries + first, end - first, sizeof *entries, entry_order);
        }
        for (size_t i = 0; i < n; i++)
            order[i] = entries[i].bundle;
    }
    int result = count && start && entries ? 0 : -ENOMEM;
    free(count);
    free(start);
    free(entries);
    return result;
}

void ranks_locate(const uint32_t *node_of_rank, size_t n, struct rank_place *places) {
    uint32_t node_rank = 0;
    for (size_t first = 0, end; first < n; first = end, node_rank++) {
        for (end = first + 1; end < n && node_of_rank[end] == node_of_rank[first];)
            end++;
        for (size_t i = first; i < end; i++)
            places[i] = (struct rank_place){node_rank, (uint32_t)(i - first), (uint32_t)(end - first)};
    }
}
