/* What follows a failed attempt: another one, at once or after a pause, or the end. Each kind of failure has
 * a count and a limit of its own (run/settings.h). The pause grows only while attempts end shortly after
 * they began: a run that dies once a day goes on at once each time, one that cannot get through its first
 * seconds does not keep the machine busy with it. */
#ifndef RUN_RETRY_H
#define RUN_RETRY_H

#include <stdint.h>

#include "base/duration.h"
#include "run/settings.h"

/* X(name, text, member of struct failure_policy that limits it) */
#define RUN_FAILURE_KINDS(X)                                   \
    X(FAILURE_TRAINING, "failure", max_failures)               \
    X(FAILURE_START, "failed start", controller_failure_limit) \
    X(FAILURE_PREEMPTION, "preemption", max_preemption_failures)

enum failure_kind {
#define X(name, text, limit) name,
    RUN_FAILURE_KINDS(X)
#undef X
        FAILURE_KINDS
};

const char *failure_kind_name(enum failure_kind kind); /* "failed start"; static storage */
int failure_limit(const struct failure_policy *policy, enum failure_kind kind);

/* An attempt that lasted so long made progress: the next failure is the first of its row. */
#define RETRY_SHORT (5 * NS_PER_S)
#define RETRY_FIRST_PAUSE (1 * NS_PER_S)
#define RETRY_LONGEST_PAUSE (30 * NS_PER_S)

struct retry {
    int counts[FAILURE_KINDS]; /* failures of the run so far, that of the current attempt included */
    int row;                   /* short attempts in a row */
};

/* Counts a failure of an attempt that lasted so long. True when another attempt follows; `*pause` is then 0
 * for the first of a row, else 1 s, 2 s, 4 s ... 30 s, of which `random` (any number) takes up to a half, so
 * that many runs that failed together do not come back together. */
bool retry_next(struct retry *retry, const struct failure_policy *policy, enum failure_kind kind,
                nanoseconds lasted, uint64_t random, nanoseconds *pause);

#endif
