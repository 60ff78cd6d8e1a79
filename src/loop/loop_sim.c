/* The simulated loop: a virtual clock and a heap of timers. Time jumps to the next timer, so that hours pass in
 * no time and the same schedule runs the same way every time: timers of one instant fire in the order in which
 * they were started. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "loop/backend.h"

struct sim_timer {
    nanoseconds due;
    uint64_t order; /* of starting, breaks ties */
    size_t index;   /* in the heap */
    struct loop_timer *owner;
};

struct sim_loop {
    struct loop base;
    nanoseconds now;
    uint64_t started;
    struct sim_timer **heap; /* owned; the earliest first */
    size_t n;
};

static bool before(const struct sim_timer *a, const struct sim_timer *b) {
    return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static void place(struct sim_loop *loop, size_t index, struct sim_timer *timer) {
    loop->heap[index] = timer;
    timer->index = index;
}

static void sift_up(struct sim_loop *loop, struct sim_timer *timer) {
    size_t index = timer->index;
    while (index > 0 && before(timer, loop->heap[(index - 1) / 2])) {
        place(loop, index, loop->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    place(loop, index, timer);
}

static void sift_down(struct sim_loop *loop, struct sim_timer *timer) {
    size_t index = timer->index;
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= loop->n) break;
        if (child + 1 < loop->n && before(loop->heap[child + 1], loop->heap[child])) child++;
        if (!before(loop->heap[child], timer)) break;
        place(loop, index, loop->heap[child]);
        index = child;
    }
    place(loop, index, timer);
}

static int timer_start(struct loop *base, struct loop_timer *owner, nanoseconds delay) {
    struct sim_loop *loop = (struct sim_loop *)base;
    struct sim_timer *timer = owner->state;
    if (timer == NULL) {
        if (ARRAY_GROW(loop->heap, loop->n) < 0) return -ENOMEM;
        timer = malloc(sizeof *timer);
        if (timer == NULL) return -ENOMEM;
        timer->owner = owner;
        owner->state = timer;
        place(loop, loop->n++, timer);
    }
    if (__builtin_add_overflow(loop->now, delay, &timer->due)) timer->due = INT64_MAX;
    timer->order = loop->started++;
    sift_up(loop, timer);
    sift_down(loop, timer);
    return 0;
}

static void timer_stop(struct loop *base, struct loop_timer *owner) {
    struct sim_loop *loop = (struct sim_loop *)base;
    struct sim_timer *timer = owner->state, *last = loop->heap[--loop->n];
    if (last != timer) {
        place(loop, timer->index, last);
        sift_up(loop, last);
        sift_down(loop, last);
    }
    free(timer);
    owner->state = NULL;
}

/* One timer a turn: invariants can be checked after every event. */
static bool turn(struct loop *base, bool wait) {
    struct sim_loop *loop = (struct sim_loop *)base;
    if (loop->n == 0) return false;
    struct sim_timer *timer = loop->heap[0];
    if (timer->due > loop->now) {
        if (!wait) return true;
        loop->now = timer->due;
    }
    struct loop_timer *owner = timer->owner;
    timer_stop(base, owner);
    base->called = true;
    owner->callback(owner->context);
    return true; /* the end of the turn may start another */
}

static nanoseconds now(struct loop *base) {
    return ((struct sim_loop *)base)->now;
}

/* Time stands still: the next timer can be had at once. */
static int timeout_ms(struct loop *base) {
    return ((struct sim_loop *)base)->n > 0 ? 0 : -1;
}

static void destroy(struct loop *base) {
    struct sim_loop *loop = (struct sim_loop *)base;
    free(loop->heap);
    free(loop);
}

static const struct loop_backend sim_backend = {
    .destroy = destroy,
    .now = now,
    .turn = turn,
    .timeout_ms = timeout_ms,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};

struct loop *loop_create_sim(ty_error *err) {
    struct sim_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        (void)ty_fail_memory(err);
        return NULL;
    }
    loop->base.backend = &sim_backend;
    return &loop->base;
}
