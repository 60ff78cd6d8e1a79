/* The face of the event loop: hands each call to the kind of loop behind it, and keeps what is to be done at
 * the end of turns. Signals, descriptors and time are the kinds' (loop_real.c, loop_sim.c); nothing here makes
 * a system call. */
#include "loop/loop.h"

#include "loop/backend.h"

void loop_destroy(struct loop *loop) {
    if (loop != NULL) loop->backend->destroy(loop);
}

nanoseconds loop_now(struct loop *loop) {
    return loop->backend->now(loop);
}

void loop_end_turn(struct loop *loop) {
    if (!loop->called) return;
    loop->called = false;
    if (loop->turn_end != NULL) loop->turn_end(loop->turn_end_context);
}

bool loop_turn(struct loop *loop, bool wait) {
    bool more = loop->backend->turn(loop, wait);
    loop_end_turn(loop);
    return more;
}

void loop_run(struct loop *loop) {
    loop->stopped = false;
    while (!loop->stopped && loop_turn(loop, true)) {
    }
}

void loop_stop(struct loop *loop) {
    loop->stopped = true;
}

bool loop_intact(struct loop *loop) {
    return !loop->abandoned && (loop->backend->intact == NULL || loop->backend->intact(loop));
}

void loop_abandon(struct loop *loop) {
    loop->abandoned = true;
}

int loop_fd(struct loop *loop) {
    return loop->backend->fd != NULL ? loop->backend->fd(loop) : -1;
}

int loop_timeout_ms(struct loop *loop) {
    return loop->backend->timeout_ms(loop);
}

void loop_on_turn_end(struct loop *loop, void (*callback)(void *context), void *context) {
    loop->turn_end = callback;
    loop->turn_end_context = context;
}

int loop_timer_start(struct loop *loop, struct loop_timer *timer, nanoseconds delay) {
    return loop->backend->timer_start(loop, timer, delay > 0 ? delay : 0);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer) {
    if (timer->state != NULL) loop->backend->timer_stop(loop, timer);
}

int loop_watch_start(struct loop *loop, struct loop_watch *watch, int fd, unsigned events) {
    if (loop->backend->watch_start == NULL) return TY_EUNSUPPORTED;
    return loop->backend->watch_start(loop, watch, fd, events);
}

void loop_watch_stop(struct loop *loop, struct loop_watch *watch) {
    if (watch->state != NULL) loop->backend->watch_stop(loop, watch);
}

int loop_signal_start(struct loop *loop, struct loop_signal *handle, int signal_number) {
    if (loop->backend->signal_start == NULL) return TY_EUNSUPPORTED;
    return loop->backend->signal_start(loop, handle, signal_number);
}

void loop_signal_stop(struct loop *loop, struct loop_signal *handle) {
    if (handle->state != NULL) loop->backend->signal_stop(loop, handle);
}
