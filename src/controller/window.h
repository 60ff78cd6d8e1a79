/* The size of the driver's terminal, which those of workers follow (--pty). */
#ifndef CONTROLLER_WINDOW_H
#define CONTROLLER_WINDOW_H

#include <signal.h>
#include <stdint.h>

#include "loop/loop.h"
#include "wire/frame.h"

struct window { /* zero-initialised follows nothing */
    struct loop *loop;
    struct loop_signal signal;
    struct sigaction saved;
    void (*send)(void *context, const Wire__Message *message);
    void *context;
};

/* Of whichever standard descriptor is a terminal; zeros without one. */
void window_measure(uint32_t *rows, uint32_t *columns);
/* `send` takes a message for all agents. */
void window_open(struct window *window, struct loop *loop,
                 void (*send)(void *context, const Wire__Message *message), void *context);
void window_close(struct window *window);

#endif
