/* What can happen to a run, as the journal records it: the state of a run is what replaying its events
 * gives. */
#ifndef RUN_EVENT_H
#define RUN_EVENT_H

#include "base/duration.h"

/* X(name, text, keys of its data, a JSON object). Times are wall; durations in data are seconds (reals). */
#define RUN_EVENTS(X)                                                                              \
    X(EVENT_RUN, "run",                                                                            \
      "name id argv version pid host engine num_workers max_failures submitted(wall s) "           \
      "checkpoint_score_attribute checkpoint_score_order(both only where a score was asked for)")  \
    X(EVENT_WAIT, "wait", "reason holders[{run pid user since}]")                                  \
    X(EVENT_PLAN, "plan", "seconds nodes[name] ranks[node rank of each world rank] devices")       \
    X(EVENT_ATTEMPT, "attempt", "workers nodes reason checkpoint(it begins from)")                 \
    X(EVENT_NODE, "node", "name pid address port")                                                 \
    X(EVENT_NODE_LOST, "node_lost", "reason")                                                      \
    X(EVENT_LAUNCHED, "launched", "")                                                              \
    X(EVENT_STARTED, "started", "pid")                                                             \
    X(EVENT_READY, "ready", "")                                                                    \
    X(EVENT_RENDEZVOUS, "rendezvous", "")                                                          \
    X(EVENT_CHAOS, "chaos", "fault(kill, pause, starve) seconds")                                  \
    X(EVENT_HUNG, "hung", "cause")                                                                 \
    X(EVENT_EXITED, "exited", "code or signal, stopped, cause")                                    \
    X(EVENT_GONE, "gone", "")                                                                      \
    X(EVENT_START_FAILED, "start_failed", "cause")                                                 \
    X(EVENT_CHECKPOINT, "checkpoint", "number path")                                               \
    X(EVENT_CHECKPOINT_LOST, "checkpoint_lost", "number reason unheard(nobody waited for it)")     \
    X(EVENT_CHECKPOINT_LATE, "checkpoint_late", "number seconds ranks(that others wait for) what") \
    X(EVENT_CHECKPOINT_REMOVED, "checkpoint_removed", "number name")                               \
    X(EVENT_STOP, "stop", "reason kill")                                                           \
    X(EVENT_CLEAN, "clean", "clean leftovers")                                                     \
    X(EVENT_ATTEMPT_END, "attempt_end",                                                            \
      "outcome status rank node(its number in plan) cause retry(s until the next attempt) resize " \
      "lost_seconds lost_reports")                                                                 \
    X(EVENT_RUN_END, "run_end", "outcome status rank node cause")

enum run_event_kind {
#define X(name, text, data) name,
    RUN_EVENTS(X)
#undef X
};

enum { RUN_EVENT_KINDS = EVENT_RUN_END + 1 };

/* "run_end"; "?" for a number that is none. Static storage. */
const char *run_event_name(enum run_event_kind kind);

struct run_event {
    nanoseconds time; /* wall */
    enum run_event_kind kind;
    int attempt;      /* 0 before the first */
    int rank;         /* world rank; -1: none */
    int node;         /* node rank; -1: none */
    const char *data; /* JSON object text, or NULL; borrowed */
};

#endif
