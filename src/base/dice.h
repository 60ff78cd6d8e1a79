/* Random numbers that can be had again: the same seed gives the same row on every machine (xoshiro256** by
 * Blackman and Vigna, seeded through splitmix64). For simulation and schedules of faults, never for secrets. */
#ifndef BASE_DICE_H
#define BASE_DICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/duration.h"

struct dice {
    uint64_t state[4];
};

void dice_seed(struct dice *dice, uint64_t seed);

uint64_t dice_next(struct dice *dice);
uint64_t dice_below(struct dice *dice, uint64_t limit); /* 0 to limit - 1, all alike; limit at least 1 */
double dice_unit(struct dice *dice);                    /* above 0, at most 1 */
bool dice_chance(struct dice *dice, double probability);
/* The time until an event that happens once in `mean`, memoryless; at most 100 years. */
nanoseconds dice_exponential(struct dice *dice, double mean);

#endif
