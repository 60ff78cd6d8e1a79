/* The tables of state.h, unrolled. */
#include "run/state.h"

#include <stdint.h>

#define LIFECYCLE(kind, STATES)                            \
    const char *kind##_name(enum kind state) {             \
        static const char *const names[] = {STATES(NAME)}; \
        return names[state];                               \
    }                                                      \
    bool kind##_may_follow(enum kind from, enum kind to) { \
        static const uint32_t next[] = {STATES(NEXT)};     \
        return next[from] >> to & 1;                       \
    }

#define NAME(name, text, next) [name] = text,
#define NEXT(name, text, next) [name] = next,

LIFECYCLE(run_state, RUN_STATES)
LIFECYCLE(node_state, NODE_STATES)
LIFECYCLE(worker_state, WORKER_STATES)
