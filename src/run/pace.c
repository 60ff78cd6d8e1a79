/* A ring of intervals for each rank, and the medians of them. Intervals, not times, are kept: clocks of nodes
 * may differ, but each rank's own go on alike. Nothing is decided by it: who is slow is shown, and never ended.
 * */
#include "run/pace.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum { INTERVALS = 8, INTERVALS_LEAST = 3 };

struct pace_rank {
    nanoseconds last; /* 0: no report yet */
    nanoseconds intervals[INTERVALS];
    uint32_t n; /* that came; the ring holds the last ones */
};

struct pace {
    uint32_t n_ranks;
    struct pace_rank ranks[];
};

struct pace *pace_create(uint32_t n_ranks) {
    struct pace *pace = calloc(1, sizeof *pace + n_ranks * sizeof pace->ranks[0]);
    if (pace != NULL) pace->n_ranks = n_ranks;
    return pace;
}

void pace_destroy(struct pace *pace) {
    free(pace);
}

void pace_note(struct pace *pace, uint32_t rank, nanoseconds time) {
    if (rank >= pace->n_ranks) return;
    struct pace_rank *slot = &pace->ranks[rank];
    if (slot->last > 0 && time >= slot->last) slot->intervals[slot->n++ % INTERVALS] = time - slot->last;
    slot->last = time;
}

static int compare(const void *a, const void *b) {
    const nanoseconds *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The lower one of two in the middle. Sorts. */
static nanoseconds median(nanoseconds *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return values[(n - 1) / 2];
}

bool pace_interval(const struct pace *pace, uint32_t rank, nanoseconds *interval) {
    if (rank >= pace->n_ranks || pace->ranks[rank].n < INTERVALS_LEAST) return false;
    const struct pace_rank *slot = &pace->ranks[rank];
    nanoseconds values[INTERVALS];
    size_t n = slot->n < INTERVALS ? slot->n : INTERVALS;
    memcpy(values, slot->intervals, n * sizeof *values);
    *interval = median(values, n);
    return true;
}

bool pace_usual(const struct pace *pace, nanoseconds *usual) {
    CLEANUP_FREE nanoseconds *all = calloc(pace->n_ranks + 1, sizeof *all);
    size_t n = 0;
    for (uint32_t rank = 0; all != NULL && rank < pace->n_ranks; rank++)
        if (pace_interval(pace, rank, &all[n])) n++;
    if (n > 0) *usual = median(all, n);
    return n > 0;
}

/* The slowest rank is one where its median interval is half as long again as the median of all ranks', the
 * lower one in the middle: of two ranks the faster one's. */
bool pace_straggler(const struct pace *pace, struct pace_straggler *straggler) {
    CLEANUP_FREE nanoseconds *all = calloc(pace->n_ranks + 1, sizeof *all);
    size_t n = 0;
    *straggler = (struct pace_straggler){0};
    for (uint32_t rank = 0; all != NULL && rank < pace->n_ranks; rank++) {
        if (!pace_interval(pace, rank, &all[n])) continue;
        nanoseconds interval = all[n++];
        if (interval <= straggler->interval) continue;
        straggler->rank = rank;
        straggler->interval = interval;
    }
    if (n < 2) return false;
    straggler->usual = median(all, n);
    return 2 * straggler->interval >= 3 * straggler->usual && straggler->interval > straggler->usual;
}
