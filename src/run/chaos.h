/* A schedule of faults for the workers of a real run, so that users can try what their training does when it
 * is killed, stopped or starved. Pure: who performs it counts the time. The same seed and number of workers
 * give the same schedule. */
#ifndef RUN_CHAOS_H
#define RUN_CHAOS_H

#include "base/dice.h"
#include "base/error.h"

/* X(name, word, text) */
#define CHAOS_KINDS(X)                                                      \
    X(CHAOS_KILL, "kill", "is killed")                                      \
    X(CHAOS_PAUSE, "pause", "is stopped for")   /* SIGSTOP, then SIGCONT */ \
    X(CHAOS_STARVE, "starve", "is starved for") /* stopped nine tenths of the time, in short slices */

enum chaos_kind {
#define X(name, word, text) name,
    CHAOS_KINDS(X)
#undef X
        CHAOS_KIND_COUNT
};

const char *chaos_kind_name(enum chaos_kind kind); /* "pause"; static storage */
const char *chaos_kind_text(enum chaos_kind kind); /* "is stopped for"; static storage */

/* Between two faults passes `every` on average; 0: there are none. */
struct chaos_policy {
    uint64_t seed;
    nanoseconds every;
};
#define CHAOS_EVERY_DEFAULT (10 * NS_PER_S)
#define CHAOS_EVERY_LEAST (10 * NS_PER_MS)

/* SEED[:EVERY], as of --chaos; EVERY is a duration. */
int chaos_parse(const char *text, struct chaos_policy *policy, ty_error *err);

struct chaos_fault {
    enum chaos_kind kind;
    uint32_t rank;
    nanoseconds after;  /* the fault before it, or the start */
    nanoseconds length; /* of a pause or a starvation: a tenth of `every` up to the whole */
};

struct chaos {
    struct dice dice;
    nanoseconds every;
    uint32_t n_workers;
};

void chaos_begin(struct chaos *chaos, const struct chaos_policy *policy, uint32_t n_workers);
struct chaos_fault chaos_next(struct chaos *chaos);

#endif
