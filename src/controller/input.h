/* Standard input of the driver on its way to workers (--stdin).
 *
 * It is read no faster than the workers that get it: each has a window of bytes that its pipe has not taken
 * yet, and with `all` the slowest one holds the others, as with tee; one that closed its input, or ended, is
 * not waited for. What nobody takes stays where it comes from. The end is passed on. What an attempt has read
 * is gone for the next, which reads on from there, and is told so. */
#ifndef CONTROLLER_INPUT_H
#define CONTROLLER_INPUT_H

#include <signal.h>
#include <stdint.h>
#include <termios.h>

#include "loop/loop.h"
#include "wire/frame.h"

struct input { /* zero-initialised: nobody gets any */
    struct loop *loop;
    void (*send)(void *context, uint32_t rank, const Wire__Message *message);
    void *context;
    int rank;               /* who gets it, or RANK_ALL */
    int fd;                 /* an open file of its own where that could be had */
    struct termios modes;   /* the terminal's own, to be restored where keys are read one by one */
    bool by_key;            /* the terminal gives each key as it is hit, and shows none */
    bool owned;             /* `fd` was opened anew */
    bool ended;             /* nothing more comes */
    uint64_t passed;        /* bytes, in all */
    struct reader *readers; /* one for each rank of the attempt */
    uint32_t n;
    struct loop_watch watch;
    struct loop_timer timer; /* for what cannot be waited for: a file has always something */
};

/* `rank` as of the setting. `send` takes a message for the agent of a rank. */
void input_open(struct input *input, struct loop *loop, int rank,
                void (*send)(void *context, uint32_t rank, const Wire__Message *message), void *context);
/* The worker that gets the input has a terminal of its own, which shows what is typed: ours is to give each key
 * as it is hit, but for those that are signals, and to show none. */
void input_by_key(struct input *input);
void input_close(struct input *input);

/* An attempt of so many ranks begins. */
void input_begin(struct input *input, uint32_t n, int attempt);
void input_started(struct input *input, uint32_t rank);
/* The pipe of a worker took so many bytes more, or was closed. */
void input_taken(struct input *input, const Wire__Fed *fed);
/* That worker reads no more. */
void input_left(struct input *input, uint32_t rank);

/* The size of the driver's terminal, which those of workers follow (--pty). SIGWINCH tells of another. */

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
