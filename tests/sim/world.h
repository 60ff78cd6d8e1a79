/* A run in a world that goes wrong: workers that report and write checkpoints, and a schedule of faults, all
 * drawn from one seed. After every step what must always hold is looked at. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <stdint.h>

struct world_result {
    int attempts, outcome;
    uint64_t steps, checkpoints, faults, restarts, resizes, shortages;
};

/* Lives through the world of a seed. NULL, or what did not hold, when and where; valid until the next call.
 * With `trace` every event and fault is told on standard error. */
const char *world_live(uint64_t seed, int trace, struct world_result *result);

#endif
