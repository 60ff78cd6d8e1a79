/* What a run's events come to, one after the other: the state of a run as whoever reads its journal finds it,
 * and as whoever drives it keeps it. What a summary or a result shows beyond that is computed of it. Nothing is
 * read here, and nothing decided. */
#ifndef RUN_REPLAY_H
#define RUN_REPLAY_H

#include <stdlib.h>

#include <trainyard/trainer.h>

#include "run/event.h"
#include "run/state.h"

/* An event with all that it points at. */
struct kept_event {
    struct run_event event; /* its time is 0: there was none */
    struct event_memory memory;
};

/* A worker in the last attempt; one that only an earlier attempt had stands as that one left it. */
struct replay_worker {
    enum worker_state state;
    bool stopped, failed; /* how it ended; neither: with 0. With its node: as was told before, else failed */
    int64_t pid;          /* 0: not told */
    struct worker_start {
        nanoseconds started, ready, rendezvous; /* wall; 0: not yet */
    } start;
};

/* How an attempt began. */
struct replay_start {
    nanoseconds began, launched; /* its begin (0: it did not), and when the nodes got their orders */
    bool planned;                /* a plan was made for it, and took */
    double plan_seconds;
    struct kept_event node; /* the last one to come up */
};

/* Zero-initialised: nothing happened yet. */
struct run_replay {
    char *id;                    /* of the run; NULL: not told */
    struct kept_event run, plan; /* the last of their kinds */
    struct kept_event wait;      /* for devices or room, while it lasts; it began at */
    nanoseconds waits_since;
    struct kept_event network;  /* that connects the nodes */
    struct kept_event hardware; /* the last fault of a device; in all there were */
    size_t n_hardware;
    struct kept_event end;            /* of the run, unless another controller went on with it */
    struct ty_attempt_info *attempts; /* n_attempts, owned with their texts; `ended` is 0 while one goes on */
    size_t n_attempts;
    struct kept_event attempt_run; /* the last `run` before the last attempt: of who began that one */
    bool lost_node;                /* the last attempt lost one that had not said that nothing is left */
    bool stops;                    /* it was told to end */
    int attempt;                   /* the highest number of any event */
    int64_t nodes;                 /* of the last attempt */
    struct replay_worker *workers; /* n_workers: as many as any attempt had; owned */
    size_t n_workers;
    struct replay_start first_start, last_start; /* of the first attempt, and of the last */
    bool plan_waits;                             /* a plan was made whose attempt has not begun, and took */
    double plan_waits_seconds;                   /* of several the longest */
    struct kept_event *node_events; /* n_node_events, owned; the last of each node, by its number */
    size_t n_node_events;
    nanoseconds last; /* of the last event */
    bool failed;      /* memory was short: something is missing */
};

/* Takes the next event. */
void replay_note(struct run_replay *replay, const struct run_event *event);

/* No controller drives the run any longer: an attempt that has not ended died with its last event. */
void replay_close(struct run_replay *replay);

void replay_done(struct run_replay *replay);

/* Since when a worker can report: since the last that is told of its start; 0: nothing is. */
nanoseconds replay_able(const struct worker_start *start);

/* How long an attempt took, or has gone on at `now` (wall); 0 where the clock was put back meanwhile. */
double attempt_seconds(const struct ty_attempt_info *attempt, nanoseconds now);

/* Whether the cause of a failure begins with its node, as that of a lost one does: "node n2 was lost: ...".
 * Whoever shows the node behind the cause leaves it out then. */
bool replay_cause_names_node(const char *cause, const char *node);

/* Frees n attempts with their texts; NULL is fine. Here, since a result that took them over is freed in the
 * worker's library, which has no replay. */
static inline void attempts_free(struct ty_attempt_info *attempts, size_t n) {
    for (size_t i = 0; attempts != NULL && i < n; i++) {
        free((char *)attempts[i].outcome);
        free((char *)attempts[i].node);
        free((char *)attempts[i].cause);
        free((char *)attempts[i].checkpoint);
    }
    free(attempts);
}

#endif
