/* What the files of a channel share: worker_channel.c moves bytes, worker_request.c and those behind it (worker_verbs.h) understand
 * lines. */
#ifndef AGENT_WORKER_REQUEST_H
#define AGENT_WORKER_REQUEST_H

#include "agent/worker_channel.h"
#include "base/buffer.h"

enum { CHANNEL_FDS = 4 };

/* What waits for the controller's answer. */
enum waiting { WAITING_NOTHING, WAITING_COMMIT, WAITING_LIST, WAITING_OK, WAITING_VALUE };

struct worker_channel {
    struct speaker *speaker;
    struct worker_channel *next;
    struct source source;
    uint32_t number;
    enum waiting waiting;
    bool stalled;         /* a line in `in` cannot be taken before the answer */
    bool skipping;        /* a line too long is dropped up to its end */
    size_t skip_bytes;    /* of a value too long, still to be dropped */
    struct buffer in;     /* received, not yet understood */
    struct buffer out;    /* answers that the socket did not take yet, and behind them: */
    struct shared *value; /* the value of the last answer; NULL: there is none, or it was taken */
    size_t value_sent;    /* bytes of it that the socket took */
    int fds[CHANNEL_FDS]; /* received, not yet used by an "open" */
    unsigned n_fds;
    size_t fds_within; /* bytes in front that they may have come with; behind these nobody may use them */
    size_t left;       /* of a worker that is gone: bytes that are still read */
};

enum { REQUEST_LATER = -1 };

/* Handles one line (NUL-terminated in place of its newline). `value` points behind it, where `available` bytes have come. Returns
 * the bytes of value that belonged to it, or REQUEST_LATER: more bytes, or the answer to an earlier request, must come first. */
long worker_request_handle(struct worker_channel *channel, char *line, size_t size, const char *value,
                           size_t available);

/* The channel was closed: a checkpoint that was begun over it and not committed is given up. */
void worker_request_abandon(struct worker_channel *channel);

/* It was closed while it waited for the store: nobody wants the answer any more. */
void worker_request_forget(struct worker_channel *channel);

/* Adds an answer, a newline is put behind it. */
void channel_answer(struct worker_channel *channel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void channel_answer_value(struct worker_channel *channel, const void *bytes, size_t size);
void channel_answer_shared(struct worker_channel *channel, struct shared *value); /* the same; holds it */

/* Closes it for a want of ours, this errno, and tells the controller. */
void channel_cut(struct worker_channel *channel, int error);

/* Opens a channel on `fd`, which it takes over unless it fails. */
int channel_open(struct speaker *speaker, int fd);

#endif
