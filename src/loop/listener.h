/* A listening socket on a loop: whoever connects is handed on. Where nobody can be taken in, as no
 * descriptor is left, those who wait stay, and the listener rests, so that the loop does not wake for them
 * again and again. */
#ifndef LOOP_LISTENER_H
#define LOOP_LISTENER_H

#include "loop/loop.h"

struct loop_listener { /* zero-initialised: it does not listen */
    void (*connected)(void *context,
                      int fd);        /* the callee's from then on; non-blocking. May stop the listener */
    bool (*make_room)(void *context); /* no descriptor is left: false when none can be let go of. NULL: never */
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
