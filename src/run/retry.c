/* Counting failures, and the pause before the next attempt. */
#include "run/internal.h"

/* Before the attempt that follows the `row`th short one in a row. */
static nanoseconds pause_after(int row, uint64_t random) {
    if (row <= 1) return 0;
    nanoseconds pause = RETRY_FIRST_PAUSE;
    for (int i = 2; i < row && pause < RETRY_LONGEST_PAUSE; i++)
        pause *= 2;
    if (pause > RETRY_LONGEST_PAUSE) pause = RETRY_LONGEST_PAUSE;
    return pause - (nanoseconds)(random % (uint64_t)(pause / 2 + 1));
}

bool retry_next(struct retry *retry, const struct failure_policy *policy, enum failure_kind kind,
                nanoseconds lasted, uint64_t random, nanoseconds *pause) {
    const int limits[] = {
#define X(name, limit) [name] = policy->limit,
        RUN_FAILURE_KINDS(X)
#undef X
    };
    if (retry->counts[kind] < INT32_MAX) retry->counts[kind]++;
    if (limits[kind] >= 0 && retry->counts[kind] > limits[kind]) return false;
    if (lasted >= RETRY_SHORT) retry->row = 0;
    if (retry->row < INT32_MAX) retry->row++;
    *pause = pause_after(retry->row, random);
    return true;
}
