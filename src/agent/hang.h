/* Which workers hang: those that have said nothing for too long; of those that never said that they are up, the
 * ones that show no other sign of life (hang.c). Anything that a worker says counts, and so does waiting
 * for an answer, which comes when other ranks have done their part: theirs is the hang then. One timer, for the
 * earliest that can be too late. */
#ifndef AGENT_HANG_H
#define AGENT_HANG_H

#include "agent/worker_process.h"

struct hang { /* zero-initialised but for loop, found and context */
    struct loop *loop;
    void (*found)(void *context, struct worker_process *worker); /* called once for each that hangs */
    void *context;
    struct worker_process *workers;
    size_t n;
    nanoseconds limit; /* 0: nobody is watched */
    nanoseconds due;   /* of the next look; monotonic */
    struct loop_timer timer;
};

/* Watches these workers until hang_end. */
void hang_begin(struct hang *hang, struct worker_process *workers, size_t n, nanoseconds limit);
void hang_end(struct hang *hang); /* twice is fine */

/* How long until one that was last heard at `heard` is too late, 0 when it is; times are monotonic. */
nanoseconds hang_remaining(nanoseconds heard, nanoseconds limit, nanoseconds now);

/* True when a look comes so late that this agent did not run itself: it was stopped, or the machine
 * suspended or overloaded, and so its workers could say nothing either. All have their whole time anew. */
bool hang_was_away(nanoseconds due, nanoseconds limit, nanoseconds now);

/* "no report or heartbeat for 30 s", or what else was looked for, and what the kernel says of its state if that
 * is the reason. */
void hang_describe(const struct worker_process *worker, nanoseconds limit, struct buffer *out);

#endif
