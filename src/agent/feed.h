/* The standard input of one worker, where it has any: what the controller sends goes into a pipe as fast as the
 * worker reads. The controller sends no more than it was told that there is room for; each piece that the pipe
 * took is told. A worker that closed its end, or ended, is told once and takes nothing more. */
#ifndef AGENT_FEED_H
#define AGENT_FEED_H

#include "agent/outbox.h"

struct feed { /* zero-initialised: the worker has no input */
    struct outbox *outbox;
    struct loop_watch watch;
    struct buffer queue;
    uint32_t rank;
    int fd;        /* our end of the pipe; -1: closed */
    bool terminal; /* a terminal's: its end is what Ctrl-D says */
    bool last;     /* the end comes behind what is queued */
};

/* Takes over `fd`. */
void feed_start(struct feed *feed, struct outbox *outbox, uint32_t rank, int fd, bool terminal);
void feed_add(struct feed *feed, const void *bytes, size_t size, bool last);
void feed_end(struct feed *feed); /* the worker reads no more; twice is fine */

#endif
