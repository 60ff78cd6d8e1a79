/* What can happen to a run, as the journal records it: the state of a run is what replaying its events
 * gives (run/replay.h).
 *
 * An event carries values. The rows below are all that is written of them: from a row are made the member of
 * the kind's struct, the key of the JSON object that the journal and the run's owner get, and what is read back
 * from it. A new value is a row, and the place that sets it. Any value may be unknown: it is then left out. */
#ifndef RUN_EVENT_H
#define RUN_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"

/* A list is unknown when its items are NULL. */
struct event_texts {
    const char *const *items;
    size_t n;
};

struct event_numbers {
    const uint32_t *items;
    size_t n;
};

/* Another run that holds what is waited for. */
struct event_holder {
    const char *run, *user;
    int64_t pid;
    double since; /* wall seconds */
};

struct event_holders {
    const struct event_holder *items;
    size_t n;
};

/* An INT that is unknown; a TEXT is NULL then, a REAL not a number. */
#define EVENT_UNKNOWN INT64_MIN

/* The types of values. A REAL is followed by its digits behind the point, 17 for all that it has; a FLAG always
 * has a value, a MARK is there when it is true. */
#define EVENT_TYPES(X)               \
    X(TEXT, const char *)            \
    X(INT, int64_t)                  \
    X(REAL0, double)                 \
    X(REAL3, double)                 \
    X(REAL6, double)                 \
    X(REAL17, double)                \
    X(FLAG, bool)                    \
    X(MARK, bool)                    \
    X(TEXTS, struct event_texts)     \
    X(NUMBERS, struct event_numbers) \
    X(HOLDERS, struct event_holders)

/* F(kind, type, key). Times are wall seconds, durations seconds. */
#define EVENT_RUN_VALUES(F)                                                    \
    F(run, TEXT, name)                                                         \
    F(run, TEXT, id)                                                           \
    F(run, TEXTS, argv)                                                        \
    F(run, TEXT, version)                                                      \
    F(run, INT, pid)                                                           \
    F(run, TEXT, host)                                                         \
    F(run, TEXT, engine)                                                       \
    F(run, INT, num_workers)                                                   \
    F(run, INT, max_failures)                                                  \
    F(run, REAL3, outlive) /* seconds that workers go on without controller */ \
    F(run, REAL17, submitted)                                                  \
    F(run, INT, preempt_signal)              /* unknown: SIGTERM */            \
    F(run, INT, num_to_keep)                 /* checkpoints; unknown: all */   \
    F(run, TEXT, checkpoint_score_attribute) /* both only where a score was */ \
    F(run, TEXT, checkpoint_score_order)     /* asked for */
#define EVENT_WAIT_VALUES(F) \
    F(wait, TEXT, reason)    \
    F(wait, HOLDERS, holders)
#define EVENT_PLAN_VALUES(F)                                                                \
    F(plan, REAL6, seconds)                                                                 \
    F(plan, TEXTS, nodes)   /* names */                                                     \
    F(plan, NUMBERS, ranks) /* node of each world rank */                                   \
    F(plan, TEXTS, slices)  /* of TPUs: "0-3 v6e-16 4x4 NAME", ranks, pod type, topology */ \
    F(plan, TEXTS, devices) /* of each world rank */                                        \
    F(plan, INT, spares)    /* nodes that wait */                                           \
    F(plan, TEXT, replaced) /* "c for b": by spare ones */
#define EVENT_NETWORK_VALUES(F)                                     \
    F(network, TEXT, used)   /* "10.0.0.0/24"; unknown: none was */ \
    F(network, TEXTS, tried) /* a line for each */
#define EVENT_ATTEMPT_VALUES(F) \
    F(attempt, INT, workers)    \
    F(attempt, INT, nodes)      \
    F(attempt, TEXT, reason)    \
    F(attempt, TEXT, checkpoint) /* it begins from */
#define EVENT_NODE_VALUES(F)                                                                          \
    F(node, TEXT, name)                                                                               \
    F(node, INT, pid)                                                                                 \
    F(node, TEXT, address)                                                                            \
    F(node, TEXT, accelerator_type)                                                                   \
    F(node, TEXTS, uuids)        /* of its GPUs, by their numbers */                                  \
    F(node, REAL6, clock_offset) /* so far ahead is its clock; of the controller's machine unknown */ \
    F(node, REAL6, clock_uncertainty)
#define EVENT_NODE_LOST_VALUES(F) \
    F(node_lost, TEXT, reason)    \
    F(node_lost, MARK, swept)      /* its agent said that nothing is left there */
#define EVENT_NODE_STATE_VALUES(F) /* as the scheduler that lent it says */ \
    F(node_state, TEXT, name)                                               \
    F(node_state, TEXT, scheduler)                                          \
    F(node_state, TEXT, state)                                              \
    F(node_state, TEXT, reason)
#define EVENT_STARTED_VALUES(F) F(started, INT, pid)
#define EVENT_CHAOS_VALUES(F)                       \
    F(chaos, TEXT, fault) /* kill, pause, starve */ \
    F(chaos, REAL3, seconds)
#define EVENT_HUNG_VALUES(F) F(hung, TEXT, cause)
#define EVENT_HARDWARE_VALUES(F)                                                      \
    F(hardware, TEXT, fault) /* xid, lost, ecc, throttled (usage/usage.h) */          \
    F(hardware, INT, device) /* its number among the node's */                        \
    F(hardware, INT, code)   /* of xid the driver's number, of ecc how many errors */ \
    F(hardware, TEXT, ranks) /* that use the device */                                \
    F(hardware, TEXT, cause)
#define EVENT_EXITED_VALUES(F)                    \
    F(exited, INT, signal) /* one of these two */ \
    F(exited, INT, code)                          \
    F(exited, MARK, stopped)                      \
    F(exited, TEXT, cause)
#define EVENT_START_FAILED_VALUES(F) F(start_failed, TEXT, cause)
#define EVENT_CHECKPOINT_VALUES(F) \
    F(checkpoint, INT, number)     \
    F(checkpoint, TEXT, path)
#define EVENT_CHECKPOINT_LOST_VALUES(F) \
    F(checkpoint_lost, INT, number)     \
    F(checkpoint_lost, TEXT, reason)    \
    F(checkpoint_lost, MARK, unheard) /* nobody waited for it */
#define EVENT_CHECKPOINT_LATE_VALUES(F)                        \
    F(checkpoint_late, INT, number)                            \
    F(checkpoint_late, REAL0, seconds)                         \
    F(checkpoint_late, TEXT, ranks) /* that others wait for */ \
    F(checkpoint_late, TEXT, what)
#define EVENT_CHECKPOINT_REMOVED_VALUES(F) \
    F(checkpoint_removed, INT, number)     \
    F(checkpoint_removed, TEXT, name)
#define EVENT_STOP_VALUES(F) \
    F(stop, TEXT, reason)    \
    F(stop, FLAG, kill)
#define EVENT_CLEAN_VALUES(F) \
    F(clean, FLAG, clean)     \
    F(clean, INT, leftovers)
#define EVENT_ATTEMPT_END_VALUES(F)                        \
    F(attempt_end, TEXT, outcome)                          \
    F(attempt_end, INT, status)                            \
    F(attempt_end, INT, rank)                              \
    F(attempt_end, INT, node) /* its number in the plan */ \
    F(attempt_end, TEXT, cause)                            \
    F(attempt_end, TEXT, resize)                           \
    F(attempt_end, REAL3, lost_seconds)                    \
    F(attempt_end, INT, lost_reports)                      \
    F(attempt_end, REAL3, retry) /* seconds until the next attempt */
#define EVENT_RUN_END_VALUES(F) \
    F(run_end, TEXT, outcome)   \
    F(run_end, INT, status)     \
    F(run_end, INT, rank)       \
    F(run_end, INT, node)       \
    F(run_end, TEXT, cause)

/* X(enumerator, name, values); E(enumerator, name) of those that have none. */
#define RUN_EVENTS(X, E)                                                             \
    X(EVENT_RUN, run, EVENT_RUN_VALUES)                                              \
    X(EVENT_WAIT, wait, EVENT_WAIT_VALUES)                                           \
    X(EVENT_PLAN, plan, EVENT_PLAN_VALUES)                                           \
    X(EVENT_NETWORK, network, EVENT_NETWORK_VALUES)                                  \
    X(EVENT_ATTEMPT, attempt, EVENT_ATTEMPT_VALUES)                                  \
    X(EVENT_NODE, node, EVENT_NODE_VALUES)                                           \
    X(EVENT_NODE_LOST, node_lost, EVENT_NODE_LOST_VALUES)                            \
    X(EVENT_NODE_STATE, node_state, EVENT_NODE_STATE_VALUES)                         \
    E(EVENT_LAUNCHED, launched)                                                      \
    E(EVENT_ADOPTED, adopted)                                                        \
    X(EVENT_STARTED, started, EVENT_STARTED_VALUES)                                  \
    E(EVENT_READY, ready)                                                            \
    E(EVENT_RENDEZVOUS, rendezvous)                                                  \
    X(EVENT_CHAOS, chaos, EVENT_CHAOS_VALUES)                                        \
    X(EVENT_HUNG, hung, EVENT_HUNG_VALUES)                                           \
    X(EVENT_HARDWARE, hardware, EVENT_HARDWARE_VALUES)                               \
    X(EVENT_EXITED, exited, EVENT_EXITED_VALUES)                                     \
    E(EVENT_GONE, gone)                                                              \
    X(EVENT_START_FAILED, start_failed, EVENT_START_FAILED_VALUES)                   \
    X(EVENT_CHECKPOINT, checkpoint, EVENT_CHECKPOINT_VALUES)                         \
    X(EVENT_CHECKPOINT_LOST, checkpoint_lost, EVENT_CHECKPOINT_LOST_VALUES)          \
    X(EVENT_CHECKPOINT_LATE, checkpoint_late, EVENT_CHECKPOINT_LATE_VALUES)          \
    X(EVENT_CHECKPOINT_REMOVED, checkpoint_removed, EVENT_CHECKPOINT_REMOVED_VALUES) \
    X(EVENT_STOP, stop, EVENT_STOP_VALUES)                                           \
    X(EVENT_CLEAN, clean, EVENT_CLEAN_VALUES)                                        \
    X(EVENT_ATTEMPT_END, attempt_end, EVENT_ATTEMPT_END_VALUES)                      \
    X(EVENT_RUN_END, run_end, EVENT_RUN_END_VALUES)

enum run_event_kind {
#define X(kind, name, values) kind,
#define E(kind, name) kind,
    RUN_EVENTS(X, E)
#undef X
#undef E
};

enum { RUN_EVENT_KINDS = EVENT_RUN_END + 1 };

#define X(type, c_type) typedef c_type event_##type;
EVENT_TYPES(X)
#undef X

/* struct event_exited { int64_t signal, code; bool stopped; const char *cause; }, and so for all. */
#define F(kind, type, key) event_##type key;
#define X(kind, name, values) \
    struct event_##name {     \
        values(F)             \
    };
#define E(kind, name)
RUN_EVENTS(X, E)
#undef F
#undef X
#undef E

struct run_event {
    nanoseconds time; /* wall */
    enum run_event_kind kind;
    int attempt; /* 0 before the first */
    int rank;    /* world rank; -1: none */
    int node;    /* node rank; -1: none */
    union {      /* borrowed, as all that they point at */
#define X(kind, name, values) struct event_##name name;
#define E(kind, name)
        RUN_EVENTS(X, E)
#undef X
#undef E
    } of;
};

/* "run_end"; "?" for a number that is none. Static storage. */
const char *run_event_name(enum run_event_kind kind);

/* An event of which nothing but its kind is known yet: of no rank, node or attempt. */
struct run_event run_event_new(enum run_event_kind kind);

/* What is known, as members of a JSON object: `"signal": 9, "cause": "..."`. True when there is any. */
bool run_event_members(const struct run_event *event, struct buffer *out);
/* The same as an object; nothing for a kind that has no values. */
void run_event_encode(const struct run_event *event, struct buffer *out);

enum { RUN_EVENT_LISTS = 4 }; /* the most that one kind has: those of a plan */

/* What the values of an event that was read point at. Zero-initialised. */
struct event_memory {
    struct json_t *data;
    void *lists[RUN_EVENT_LISTS];
    size_t n_lists;
};

/* Reads the values of the event's kind from a JSON object (NULL: none); the rest of `event` stays. What is
 * missing, or of another type than its own, is unknown, and what is no object tells nothing. The values live as
 * long as the memory, also where the result is -ENOMEM. */
int run_event_decode(struct run_event *event, const char *data, struct event_memory *memory);
void event_memory_done(struct event_memory *memory);

#endif
