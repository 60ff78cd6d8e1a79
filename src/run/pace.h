/* How fast each rank goes, by the time between its last reports; and who is notably slower than the rest.
 * Pure. Ranks that wait for each other in every step report alike, whoever is slow: then nobody stands out. */
#ifndef RUN_PACE_H
#define RUN_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/duration.h"

struct pace; /* opaque */

struct pace_straggler {
    uint32_t rank;
    nanoseconds interval; /* between its reports: the median of its last 8 */
    nanoseconds usual;    /* the median of all ranks' */
};

struct pace *pace_create(uint32_t n_ranks); /* NULL when memory is short */
void pace_destroy(struct pace *pace);       /* NULL is fine */

/* A report came; times of one rank must not go back (one that does is ignored). */
void pace_note(struct pace *pace, uint32_t rank, nanoseconds time);

/* True with the slowest rank, when it takes at least 1.5 times as long as usual. Ranks count once 3
 * intervals of theirs are known, and it takes two of them. */
bool pace_straggler(const struct pace *pace, struct pace_straggler *straggler);

/* The interval of a rank, and the median of all ranks': false where too little is known. */
bool pace_interval(const struct pace *pace, uint32_t rank, nanoseconds *interval);
bool pace_usual(const struct pace *pace, nanoseconds *usual);

#endif
