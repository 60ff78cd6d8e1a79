/* The sampler of a node (usage/usage.h) as its agent keeps it: started some time into the run, so that a short
 * one has none; its samples sent on; one that stops to answer ended and, a minute later, replaced. Nothing
 * waits for it, not even the end of the run: one that the kernel cannot end is left behind. */
#ifndef AGENT_SAMPLING_H
#define AGENT_SAMPLING_H

#include "agent/outbox.h"
#include "agent/worker_process.h"

/* X(name, what holds in it) */
#define SAMPLING_STATES(X)                                      \
    X(SAMPLING_OFF, "nothing is sampled")                       \
    X(SAMPLING_DUE, "a sampler is started when the timer ends") \
    X(SAMPLING_ON, "one runs; when the timer ends it has stopped to answer")

enum sampling_state {
#define X(name, meaning) name,
    SAMPLING_STATES(X)
#undef X
};

struct sampling { /* zero-initialised but for loop, outbox and node_name */
    struct loop *loop;
    struct outbox *outbox;
    const char *node_name;
    enum sampling_state state;
    nanoseconds period;
    struct worker_process *const *workers; /* borrowed, as they change */
    const size_t *n_workers;
    pid_t pid; /* 0: none, or it was reaped */
    int fd;    /* in SAMPLING_ON */
    struct loop_watch watch;
    struct loop_timer timer;
    bool told; /* that samples are missing */
};

/* Goes on where one runs already. 0: off. */
void sampling_begin(struct sampling *sampling, nanoseconds period, struct worker_process *const *workers,
                    const size_t *n_workers);
/* Ends it. The process is gone then, or cannot be ended: sampling_owns it. */
void sampling_end(struct sampling *sampling);
bool sampling_owns(const struct sampling *sampling, pid_t pid);
/* A child of this process was reaped: true when it was the sampler. */
bool sampling_reaped(struct sampling *sampling, pid_t pid);

#endif
