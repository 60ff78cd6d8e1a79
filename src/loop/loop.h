/* The event loop's face. Two loops stand behind it: the real one (libuv, loop_real.c) and the simulated one (a
 * virtual clock and no descriptors, loop_sim.c). One thread, no polling; a loop with nothing to wait for sleeps
 * without a tick.
 *
 * A handle (timer, watch) is embedded in its owner, which must outlive it: after stopping one, its callback is
 * not called again, and the memory may be reused at once. */
#ifndef LOOP_LOOP_H
#define LOOP_LOOP_H

#include <stdbool.h>

#include "base/duration.h"
#include "base/error.h"

struct loop; /* opaque */

struct loop *loop_create(ty_error *err);     /* real; NULL with the error */
struct loop *loop_create_sim(ty_error *err); /* time stands still between events */
void loop_destroy(struct loop *loop);        /* all handles must be stopped */

nanoseconds loop_now(struct loop *loop); /* monotonic (real: read when asked, not cached) or virtual */

/* Runs until loop_stop. The simulated loop also returns when nothing is left to happen. */
void loop_run(struct loop *loop);
/* One turn: waits for events (when `wait`) and calls their callbacks. False when nothing is left. */
bool loop_turn(struct loop *loop, bool wait);
void loop_stop(struct loop *loop);

/* False once somebody else has closed its descriptor, or it was abandoned: it can neither turn any more nor
 * tell of anything. */
bool loop_intact(struct loop *loop);
/* Somebody else has closed what it watches. */
void loop_abandon(struct loop *loop);

/* For an owner that waits elsewhere: a descriptor that is readable when a turn has something to do (-1: there
 * is none), and how long at most to wait for it: -1 without limit, 0 not at all. Both hold until the loop is
 * touched again. */
int loop_fd(struct loop *loop);
int loop_timeout_ms(struct loop *loop);

/* Called at the end of every turn in which a callback ran, before the loop sleeps: batches are written there.
 * One a loop. */
void loop_on_turn_end(struct loop *loop, void (*callback)(void *context), void *context);

struct loop_timer {
    void (*callback)(void *context);
    void *context;
    void *state; /* the loop's; NULL when not running */
};
/* Calls back once after `delay` (at least 0). Starting a running timer moves it. */
int loop_timer_start(struct loop *loop, struct loop_timer *timer, nanoseconds delay);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

enum { LOOP_READABLE = 1, LOOP_WRITABLE = 2 };

struct loop_watch {
    void (*callback)(void *context, unsigned events);
    void *context;
    void *state; /* the loop's; NULL when not running */
};
/* Watches a descriptor (made non-blocking), level-triggered; error and hang-up count as readable. Changing the
 * events of a running watch is another start; no events at all let it rest without forgetting it. Stop before
 * closing the descriptor. Real loop only (TY_EUNSUPPORTED). */
int loop_watch_start(struct loop *loop, struct loop_watch *watch, int fd, unsigned events);
void loop_watch_stop(struct loop *loop, struct loop_watch *watch);

/* Signals arrive as events. Real loop only; blocks nothing in children (spawn resets them). */
struct loop_signal {
    void (*callback)(void *context, int signal_number);
    void *context;
    void *state;
};
int loop_signal_start(struct loop *loop, struct loop_signal *handle, int signal_number);
void loop_signal_stop(struct loop *loop, struct loop_signal *handle);

/* A listening socket: whoever connects is handed on. Where nobody can be taken in, as no descriptor is left,
 * those who wait stay, and the listener rests, so that the loop does not wake for them again and again. */
struct loop_listener { /* zero-initialised: it does not listen */
    /* `fd`, non-blocking, is the callee's from then on. May stop the listener. */
    void (*connected)(void *context, int fd);
    /* No descriptor is left: false when none can be let go of. NULL: none ever can. */
    bool (*make_room)(void *context);
    void *context;
    struct loop *loop; /* NULL: stopped */
    int fd;
    struct loop_watch watch;
    struct loop_timer rest;
};

/* `fd` listens, is non-blocking, and stays the caller's, who stops the listener before closing it. As
 * loop_watch_start. */
int loop_listener_start(struct loop *loop, struct loop_listener *listener, int fd);
void loop_listener_stop(struct loop_listener *listener); /* twice is fine */

#endif
