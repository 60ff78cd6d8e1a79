/* What stands behind the face of loop.h: one table of functions a kind of loop. The simulated loop, which has
 * no descriptors, lacks what is about them (NULL). Private to this room. */
#ifndef LOOP_BACKEND_H
#define LOOP_BACKEND_H

#include "loop/loop.h"

struct loop_backend {
    void (*destroy)(struct loop *loop);
    nanoseconds (*now)(struct loop *loop);
    bool (*turn)(struct loop *loop, bool wait); /* without the end of the turn */
    int (*timeout_ms)(struct loop *loop);
    int (*timer_start)(struct loop *loop, struct loop_timer *timer, nanoseconds delay);
    void (*timer_stop)(struct loop *loop, struct loop_timer *timer);
    /* NULL in the simulated loop */
    bool (*intact)(struct loop *loop);
    int (*fd)(struct loop *loop);
    int (*watch_start)(struct loop *loop, struct loop_watch *watch, int fd, unsigned events);
    void (*watch_stop)(struct loop *loop, struct loop_watch *watch);
    int (*signal_start)(struct loop *loop, struct loop_signal *handle, int signal_number);
    void (*signal_stop)(struct loop *loop, struct loop_signal *handle);
};

/* First member of each kind's own struct. */
struct loop {
    const struct loop_backend *backend;
    void (*turn_end)(void *context);
    void *turn_end_context;
    bool called;  /* a callback ran since the last end of a turn */
    bool stopped; /* loop_stop was called since loop_run began */
    bool abandoned;
};

/* Calls the end of the turn when a callback ran since the last. */
void loop_end_turn(struct loop *loop);

#endif
