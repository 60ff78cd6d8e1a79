/* A worker that is stopped or starved for a while, because a schedule of faults says so (run/chaos.h). */
#ifndef AGENT_DISTURB_H
#define AGENT_DISTURB_H

#include <sys/types.h>

#include "loop/loop.h"

/* Zero-initialised is at rest. */
struct disturbance {
    struct loop *loop;
    pid_t pid; /* a child that was not reaped */
    nanoseconds until;
    bool starves, stopped;
    struct loop_timer timer;
};

/* Stops the process until the length has passed; or, when it `starves`, nine tenths of that time. One that
 * is under way ends first. */
void disturb_begin(struct disturbance *disturbance, struct loop *loop, pid_t pid, bool starves,
                   nanoseconds length);
void disturb_end(struct disturbance *disturbance);    /* lets the process run */
void disturb_forget(struct disturbance *disturbance); /* it was reaped: its number may be another's */

#endif
