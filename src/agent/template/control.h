/* The agent's end of the socket to a process that forks for it: requests with descriptors go out, lines of
 * text come back.
 *
 * A request is one byte, and beside it (SCM_RIGHTS) the descriptor of a sealed file in memory that holds its
 * words, each ended by a NUL, followed by the descriptors that are handed over: so none is larger than the
 * socket takes, and sending never waits. An answer is a line, cut behind CONTROL_LINE_MAX bytes. */
#ifndef AGENT_CONTROL_H
#define AGENT_CONTROL_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "loop/loop.h"

enum { CONTROL_FDS = 6, CONTROL_LINE_MAX = 4095 };

struct control {
    pid_t pid; /* of the process; 0: not known (yet) */
    int fd;    /* -1: there is none */
    struct loop *loop;
    struct loop_watch watch;
    char
        in[CONTROL_LINE_MAX + 1]; /* what has come of the next lines: there is room without asking for memory */
    size_t size;
    bool cut; /* of a line that was too long the beginning was handed on, and what comes next belongs to it */
    void (*line)(struct control *control, const char *line); /* may close it */
    void (*ended)(struct control *control);                  /* its end closed: so did the process, or will */
};

/* The pair's other end is in `theirs` (close-on-exec, the caller's). */
int control_open(struct control *control, int *theirs, ty_error *err);
/* Listens on the loop: after control_open, or on another loop after control_rest. */
int control_watch(struct control *control, struct loop *loop, ty_error *err);
void control_rest(struct control *control); /* not heard, but open */

int control_send(struct control *control, char kind, const struct buffer *words, const int *fds, size_t n,
                 ty_error *err);
void control_take(struct control *control); /* hands on the lines that have come */

/* Ends the process by force, with its group, and reaps it (two seconds at most); its wait status, -1 when it
 * is not known. Twice is fine. */
int control_close(struct control *control);

#endif
