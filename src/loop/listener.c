/* Accepts some a turn, so that others of the loop have theirs. Where no descriptor is left nobody is accepted
 * for a while, unless the owner makes room, and those who knock wait in the kernel's queue. A connection is its
 * owner's from then on; who is let in is not decided here. */
#include "loop/loop.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/descriptors.h"

enum { ACCEPTS_A_TURN = 16 };

static void go_on(void *context) {
    struct loop_listener *listener = context;
    (void)loop_watch_start(listener->loop, &listener->watch, listener->fd, LOOP_READABLE);
}

static void rest(struct loop_listener *listener) {
    if (loop_timer_start(listener->loop, &listener->rest, DESCRIPTORS_REST) == 0)
        (void)loop_watch_start(listener->loop, &listener->watch, listener->fd, 0);
}

static void on_knock(void *context, unsigned events) {
    struct loop_listener *listener = context;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN && listener->loop != NULL; i++) {
        int fd = descriptors_accept(listener->fd);
        bool full = fd == -EMFILE || fd == -ENFILE;
        if (fd >= 0)
            listener->connected(listener->context, fd);
        else if (fd == -EAGAIN)
            return;
        else if (!full || listener->make_room == NULL || !listener->make_room(listener->context))
            return rest(listener);
    }
}

int loop_listener_start(struct loop *loop, struct loop_listener *listener, int fd) {
    listener->watch = (struct loop_watch){.callback = on_knock, .context = listener};
    listener->rest = (struct loop_timer){.callback = go_on, .context = listener};
    int result = loop_watch_start(loop, &listener->watch, fd, LOOP_READABLE);
    if (result < 0) return result;
    listener->loop = loop;
    listener->fd = fd;
    return 0;
}

void loop_listener_stop(struct loop_listener *listener) {
    struct loop *loop = TAKE(listener->loop);
    if (loop == NULL) return;
    loop_timer_stop(loop, &listener->rest);
    loop_watch_stop(loop, &listener->watch);
}
