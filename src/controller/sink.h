/* Where relayed output goes: a descriptor that never blocks the loop. What it does not take at once is queued;
 * a full queue is told to the owner, who then stops reading what fills it. */
#ifndef CONTROLLER_SINK_H
#define CONTROLLER_SINK_H

#include <stdbool.h>

#include "base/buffer.h"
#include "loop/loop.h"

enum { SINK_HIGH = 1 << 20 };

struct sink {
    struct loop *loop;
    int fd; /* written to; our own open file where it could be opened anew, so that O_NONBLOCK is ours alone */
    bool owned;    /* fd is our own open file, non-blocking */
    bool was_full; /* `drained` is owed */
    int error;     /* errno of a write that failed, such as EPIPE: what comes is dropped; 0 */
    struct buffer queue;
    struct loop_watch watch;
    void (*drained)(void *context); /* after it was full */
    void *context;
};

/* A non-blocking descriptor of its own of a pipe or a terminal, O_RDONLY or O_WRONLY; -1 for anything else. */
int sink_open_anew(int fd, int mode);

void sink_open(struct sink *sink, struct loop *loop, int fd, void (*drained)(void *context), void *context);
void sink_write(struct sink *sink, const void *bytes, size_t size);
bool sink_full(const struct sink *sink);
/* Drops what is queued and what comes. */
void sink_discard(struct sink *sink);
/* Writes what is queued, waiting for a slow reader as long as `limit` (negative: as long as it takes), and
 * closes what was opened. False: not all was taken. */
bool sink_close(struct sink *sink, nanoseconds limit);

/* A line of our own to standard error, past what is queued for it. Whoever does not read, as a pager that
 * stands still, must not hold a run that is to hear signals: while hurried, what is not taken within 1 s
 * waits for the next line. Else sink_say waits as long as it takes. */
void sink_say(const struct buffer *line);
void sink_hurry(bool hurried);

#endif
