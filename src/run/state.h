/* The lifecycles of a run, its nodes and its workers, as tables: each state with its text and the states that
 * may follow. Every move goes through one of the _may_follow below; an event that fits no state is late or
 * doubled and changes nothing. */
#ifndef RUN_STATE_H
#define RUN_STATE_H

#include <stdbool.h>

/* X(name, text, states that may follow). What a run does in each of them, input by input, is in table.c.
 *
 * An idle run runs at once where it adopts an attempt. Hanging: a rank said nothing any more, or the run is to
 * quit, and stacks are saved. Completing: all ranks came to their end by themselves, and their last checkpoint
 * is on its way into its place; committing: the same after they were told to stop. Between two attempts a run
 * pauses (the price of failures), checks the latest checkpoint, rests while it does both, or waits for room. */
#define RUN_STATES(X)                                                                         \
    X(RUN_IDLE, "idle", 1u << RUN_STARTING | 1u << RUN_RUNNING)                               \
    X(RUN_STARTING, "starting", 1u << RUN_RUNNING | 1u << RUN_STOPPING | 1u << RUN_FINISHING) \
    X(RUN_RUNNING, "running",                                                                 \
      1u << RUN_HANGING | 1u << RUN_STOPPING | 1u << RUN_COMPLETING | 1u << RUN_FINISHING)    \
    X(RUN_HANGING, "hanging",                                                                 \
      1u << RUN_RUNNING | 1u << RUN_STOPPING | 1u << RUN_COMPLETING | 1u << RUN_FINISHING)    \
    X(RUN_STOPPING, "stopping", 1u << RUN_COMMITTING | RUN_BETWEEN_ATTEMPTS)                  \
    X(RUN_COMPLETING, "completing", 1u << RUN_COMMITTING | 1u << RUN_FINISHING)               \
    X(RUN_COMMITTING, "committing", RUN_BETWEEN_ATTEMPTS)                                     \
    X(RUN_RESTING, "resting", 1u << RUN_PAUSING | 1u << RUN_CHECKING | 1u << RUN_FINISHING)   \
    X(RUN_PAUSING, "pausing", 1u << RUN_WAITING | 1u << RUN_STARTING | 1u << RUN_FINISHING)   \
    X(RUN_CHECKING, "checking", 1u << RUN_WAITING | 1u << RUN_STARTING | 1u << RUN_FINISHING) \
    X(RUN_WAITING, "waiting for room", 1u << RUN_STARTING | 1u << RUN_FINISHING)              \
    X(RUN_FINISHING, "finishing", 1u << RUN_ENDED)                                            \
    X(RUN_ENDED, "ended", 0)

/* What may follow an attempt whose workers are gone. */
#define RUN_BETWEEN_ATTEMPTS                                                                               \
    (1u << RUN_RESTING | 1u << RUN_PAUSING | 1u << RUN_CHECKING | 1u << RUN_WAITING | 1u << RUN_STARTING | \
     1u << RUN_FINISHING)

/* A node is lost when its agent went before its time, and gone when it said bye. A lost one may be started
 * again. */
#define NODE_STATES(X)                                                                   \
    X(NODE_ABSENT, "absent", 1u << NODE_CONNECTING)                                      \
    X(NODE_CONNECTING, "connecting", 1u << NODE_UP | 1u << NODE_LOST)                    \
    X(NODE_UP, "up", 1u << NODE_LAUNCHED | 1u << NODE_FINISHING | 1u << NODE_LOST)       \
    X(NODE_LAUNCHED, "launched", 1u << NODE_UP | 1u << NODE_FINISHING | 1u << NODE_LOST) \
    X(NODE_FINISHING, "finishing", 1u << NODE_GONE | 1u << NODE_LOST)                    \
    X(NODE_GONE, "gone", 0)                                                              \
    X(NODE_LOST, "lost", 1u << NODE_CONNECTING)

/* started, ready, exited and gone are four events; a worker that could not be executed is gone at once. */
#define WORKER_STATES(X)                                                                       \
    X(WORKER_PLANNED, "planned", 1u << WORKER_LAUNCHED | 1u << WORKER_GONE)                    \
    X(WORKER_LAUNCHED, "launched", 1u << WORKER_STARTED | 1u << WORKER_GONE)                   \
    X(WORKER_STARTED, "started", 1u << WORKER_READY | 1u << WORKER_EXITED | 1u << WORKER_GONE) \
    X(WORKER_READY, "ready", 1u << WORKER_EXITED | 1u << WORKER_GONE)                          \
    X(WORKER_EXITED, "exited", 1u << WORKER_GONE)                                              \
    X(WORKER_GONE, "gone", 1u << WORKER_PLANNED)

#define X(name, text, next) name,
enum run_state { RUN_STATES(X) };
enum node_state { NODE_STATES(X) };
enum worker_state { WORKER_STATES(X) };
#undef X

enum { RUN_STATE_COUNT = RUN_ENDED + 1, WORKER_STATE_COUNT = WORKER_GONE + 1 };

const char *run_state_name(enum run_state state);
const char *node_state_name(enum node_state state);
const char *worker_state_name(enum worker_state state);

bool run_state_may_follow(enum run_state from, enum run_state to);
bool node_state_may_follow(enum node_state from, enum node_state to);
bool worker_state_may_follow(enum worker_state from, enum worker_state to);

#endif
