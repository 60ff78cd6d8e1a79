/* The real loop, over libuv.
 *
 * libuv frees a handle only in its close callback, one turn later. So each running handle of ours has a small
 * object of its own, which is let go of at once when the handle stops and freed when libuv is done with it; the
 * owner's memory is free immediately, as loop.h promises. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "loop/backend.h"

enum { TIMERS_SPARE = 8 };

struct real_loop {
    struct loop base;
    uv_loop_t uv;
    uv_prepare_t before_sleep;
    struct real_timer *spare[TIMERS_SPARE];
    size_t n_spare;
    struct real_loop *next; /* lost */
};

/* A timer without delay is an idle handle: libuv 1.44 fires a timer that starts itself again at once within the
 * same turn, and would never look at its descriptors again. */
struct real_timer {
    union {
        uv_timer_t timer;
        uv_idle_t idle;
    } uv; /* first: the address that libuv gives back is ours */
    struct real_loop *loop;
    struct loop_timer *owner;
};

struct real_watch {
    uv_poll_t uv;
    struct real_loop *loop;
    struct loop_watch *owner; /* NULL once stopped: libuv may still hold an event of this turn */
    int fd;
};

struct real_signal {
    uv_signal_t uv;
    struct real_loop *loop;
    struct loop_signal *owner;
};

static void free_closed(uv_handle_t *handle) {
    free(handle);
}

/* Timers hold the course of things: limits, kills, ends. Some of their memory is put by, for when there is
 * none. */
static void put_by(uv_handle_t *handle) {
    struct real_timer *state = (struct real_timer *)handle;
    struct real_loop *loop = state->loop;
    if (loop->n_spare < TIMERS_SPARE)
        loop->spare[loop->n_spare++] = state;
    else
        free(state);
}

static void timer_stop(struct loop *base, struct loop_timer *timer) {
    (void)base;
    uv_close((uv_handle_t *)TAKE(timer->state), put_by);
}

static void timer_fired(uv_timer_t *uv) {
    struct real_timer *state = (struct real_timer *)uv;
    struct loop_timer *owner = state->owner;
    state->loop->base.called = true;
    timer_stop(&state->loop->base, owner); /* first, so that the callback can start it again */
    owner->callback(owner->context);
}

static void idle_fired(uv_idle_t *uv) {
    timer_fired(&((struct real_timer *)uv)->uv.timer);
}

/* libuv counts whole milliseconds of the monotonic clock, rounded down, from when it last looked: what counts
 * is the millisecond after the due time, so that no timer is early. None of these calls can fail. */
static int timer_start(struct loop *base, struct loop_timer *timer, nanoseconds delay) {
    struct real_loop *loop = (struct real_loop *)base;
    struct real_timer *state = malloc(sizeof *state);
    if (state == NULL && loop->n_spare > 0) state = loop->spare[--loop->n_spare];
    if (state == NULL) return -ENOMEM;
    if (timer->state != NULL) timer_stop(base, timer);
    state->loop = loop;
    state->owner = timer;
    timer->state = state;
    if (delay == 0) {
        (void)uv_idle_init(&loop->uv, &state->uv.idle);
        return uv_idle_start(&state->uv.idle, idle_fired);
    }
    uint64_t due_ms = (uint64_t)((clock_monotonic() + delay + NS_PER_MS - 1) / NS_PER_MS);
    (void)uv_timer_init(&loop->uv, &state->uv.timer);
    return uv_timer_start(&state->uv.timer, timer_fired, due_ms - uv_now(&loop->uv), 0);
}

static void watch_fired(uv_poll_t *uv, int status, int events) {
    struct real_watch *state = (struct real_watch *)uv;
    if (state->owner == NULL) return;
    state->loop->base.called = true;
    unsigned told = 0;
    if (status < 0 || (events & (UV_READABLE | UV_DISCONNECT)) != 0) told |= LOOP_READABLE;
    if ((events & UV_WRITABLE) != 0) told |= LOOP_WRITABLE;
    state->owner->callback(state->owner->context, told);
}

static void watch_stop(struct loop *base, struct loop_watch *watch) {
    struct real_watch *state = TAKE(watch->state);
    state->owner = NULL;
    if (!loop_intact(base))
        return; /* its descriptor may be the program's, in which libuv would look for the watch */
    (void)uv_poll_stop(&state->uv);
    uv_close((uv_handle_t *)&state->uv, free_closed);
}

static int watch_start(struct loop *base, struct loop_watch *watch, int fd, unsigned events) {
    struct real_loop *loop = (struct real_loop *)base;
    struct real_watch *state = watch->state;
    if (state != NULL && state->fd != fd) watch_stop(base, watch);
    state = watch->state;
    if (state == NULL) {
        state = malloc(sizeof *state);
        if (state == NULL) return -ENOMEM;
        state->loop = loop;
        state->owner = watch;
        state->fd = fd;
        int code = uv_poll_init(&loop->uv, &state->uv, fd);
        if (code < 0) {
            free(state); /* libuv keeps nothing of a handle that it refused */
            return code;
        }
        watch->state = state;
    }
    int uv_events = 0;
    if ((events & LOOP_READABLE) != 0) uv_events |= UV_READABLE;
    if ((events & LOOP_WRITABLE) != 0) uv_events |= UV_WRITABLE;
    return uv_poll_start(&state->uv, uv_events, watch_fired);
}

static void signal_fired(uv_signal_t *uv, int signal_number) {
    struct real_signal *state = (struct real_signal *)uv;
    if (state->owner == NULL) return;
    state->loop->base.called = true;
    state->owner->callback(state->owner->context, signal_number);
}

static void signal_stop(struct loop *base, struct loop_signal *handle) {
    (void)base;
    struct real_signal *state = TAKE(handle->state);
    state->owner = NULL;
    uv_close((uv_handle_t *)&state->uv, free_closed);
}

static int signal_start(struct loop *base, struct loop_signal *handle, int signal_number) {
    struct real_loop *loop = (struct real_loop *)base;
    if (handle->state != NULL) signal_stop(base, handle);
    struct real_signal *state = malloc(sizeof *state);
    if (state == NULL) return -ENOMEM;
    state->loop = loop;
    state->owner = handle;
    int code = uv_signal_init(&loop->uv, &state->uv);
    if (code < 0) {
        free(state);
        return code;
    }
    code = uv_signal_start(&state->uv, signal_fired, signal_number);
    if (code < 0) {
        uv_close((uv_handle_t *)&state->uv, free_closed);
        return code;
    }
    handle->state = state;
    return 0;
}

static nanoseconds now(struct loop *base) {
    (void)base;
    return clock_monotonic();
}

/* Timers run before libuv sleeps: what they queued must not wait for the next event. */
static void before_sleep(uv_prepare_t *uv) {
    loop_end_turn((struct loop *)uv->data);
}

static bool turn(struct loop *base, bool wait) {
    struct real_loop *loop = (struct real_loop *)base;
    return uv_run(&loop->uv, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT) != 0 || base->called;
}

static int backend_fd(struct loop *base) {
    return uv_backend_fd(&((struct real_loop *)base)->uv);
}

/* libuv aborts the program that closed it. */
static bool intact(struct loop *base) {
    return descriptors_intact(backend_fd(base));
}

/* libuv counts from when it last looked at the clock. It answers 0 while its descriptor does not know all
 * watches yet. */
static int timeout_ms(struct loop *base) {
    struct real_loop *loop = (struct real_loop *)base;
    if (uv_loop_alive(&loop->uv) == 0) return -1;
    uv_update_time(&loop->uv);
    return uv_backend_timeout(&loop->uv);
}

static void free_spare(struct real_loop *loop) {
    while (loop->n_spare > 0)
        free(loop->spare[--loop->n_spare]);
}

static void destroy(struct loop *base) {
    struct real_loop *loop = (struct real_loop *)base;
    if (!loop_intact(base)) {
        /* libuv can let go of nothing without its descriptor. */
        static _Atomic(struct real_loop *) all;
        loop->next = all;
        while (!atomic_compare_exchange_weak(&all, &loop->next, loop)) {
        }
        return;
    }
    uv_close((uv_handle_t *)&loop->before_sleep, NULL);
    base->turn_end = NULL;
    (void)uv_run(&loop->uv, UV_RUN_NOWAIT); /* the last closed handles are freed here */
    descriptors_let_go(backend_fd(base));
    (void)uv_loop_close(&loop->uv);
    free_spare(loop);
    free(loop);
}

static const struct loop_backend real_backend = {
    .destroy = destroy,
    .now = now,
    .turn = turn,
    .intact = intact,
    .fd = backend_fd,
    .timeout_ms = timeout_ms,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
    .watch_start = watch_start,
    .watch_stop = watch_stop,
    .signal_start = signal_start,
    .signal_stop = signal_stop,
};

struct loop *loop_create(ty_error *err) {
    CLEANUP_FREE struct real_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        (void)ty_fail_memory(err);
        return NULL;
    }
    for (; loop->n_spare < TIMERS_SPARE; loop->n_spare++) {
        loop->spare[loop->n_spare] = malloc(sizeof *loop->spare[0]);
        if (loop->spare[loop->n_spare] == NULL) {
            free_spare(loop);
            (void)ty_fail_memory(err);
            return NULL;
        }
    }
    /* libuv ends the process where it gets no pipe for signals in its first loop, which takes one descriptor
     * before that: whether there is room for both is tried first. */
    int pair[2] = {-1, -1}, first = eventfd(0, EFD_CLOEXEC);
    int code = first < 0 || pipe2(pair, O_CLOEXEC) < 0 ? -errno : 0;
    if (first >= 0) (void)close(first);
    if (pair[0] >= 0) (void)close(pair[0]), (void)close(pair[1]);
    if (code >= 0) code = uv_loop_init(&loop->uv);
    if (code < 0) {
        free_spare(loop);
        (void)ty_fail(err, code, "cannot make an event loop: %s", strerror(-code));
        return NULL;
    }
    loop->base.backend = &real_backend;
    descriptors_withhold(uv_backend_fd(&loop->uv));
    (void)uv_prepare_init(&loop->uv, &loop->before_sleep); /* these two cannot fail */
    (void)uv_prepare_start(&loop->before_sleep, before_sleep);
    loop->before_sleep.data = loop;
    uv_unref((uv_handle_t *)&loop->before_sleep);
    return &TAKE(loop)->base;
}
