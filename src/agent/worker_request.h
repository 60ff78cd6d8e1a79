/* What the files of a worker's channel share: worker_channel.c moves bytes, worker_request.c finds the word
 * of a line, and worker_report.c and worker_store.c handle words, which REQUESTS lists. */
#ifndef AGENT_WORKER_REQUEST_H
#define AGENT_WORKER_REQUEST_H

#include "agent/worker_channel.h"
#include "base/buffer.h"

enum { CHANNEL_FDS = 4 };

/* What waits for the controller's answer. LOOK: a question that is answered at once and is no sign of life:
 * what watches over a worker asks it. */
enum waiting { WAITING_NOTHING, WAITING_COMMIT, WAITING_LIST, WAITING_OK, WAITING_VALUE, WAITING_LOOK };

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
    size_t fds_within;   /* bytes in front that they may have come with; behind these nobody may use them */
    size_t left;         /* of a worker that is gone: bytes that are still read */
    uint64_t commit;     /* the number of the checkpoint that it waits for */
    struct buffer asked; /* the frame of what else it waits for, where that is kept */
};

enum { REQUEST_LATER = -1 };

/* Handles one line (NUL-terminated in place of its newline). `value` points behind it, where `available`
 * bytes have come. Returns the bytes of value that belonged to it, or REQUEST_LATER: more bytes, or the
 * answer to an earlier request, must come first. */
long worker_request_handle(struct worker_channel *channel, char *line, size_t size, const char *value,
                           size_t available);

/* The channel was closed: a checkpoint that was begun over it and not committed is given up. */
void worker_request_abandon(struct worker_channel *channel);

/* The channel was closed while it waited for the store: nobody wants the answer any more. */
void worker_request_forget(struct worker_channel *channel);

/* What the channel then waits for, for another controller; where channels keep it. */
void channel_keep_asked(struct worker_channel *channel, const Wire__Message *message);
/* What was asked is answered so: what another controller would have to know of it is kept (worker_store.c). */
void channel_note_answer(struct worker_channel *channel, Wire__Answer__Status status);

/* What it has asked is not answered yet, or the value of the answer is on its way: another answer must wait. */
bool channel_is_answering(const struct worker_channel *channel);

/* Adds an answer, a newline is put behind it. */
void channel_answer(struct worker_channel *channel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Closes it for a want of ours, this errno, and tells the controller. */
void channel_cut(struct worker_channel *channel, int error);

/* Opens a channel on `fd`, which it takes over unless it fails. */
int channel_open(struct speaker *speaker, int fd);

/* X(word, in turn: it has an answer, and waits until the request before it was answered, a sign of life) */
#define REQUESTS(X)            \
    X(report, false, true)     \
    X(ready, false, true)      \
    X(rendezvous, false, true) \
    X(heartbeat, false, true)  \
    X(preemption, true, true)  \
    X(failure, true, true)     \
    X(checkpoint, true, true)  \
    X(checkpoints, true, true) \
    X(reported, true, false)   \
    X(commit, true, true)      \
    X(abort, true, true)       \
    X(set, true, true)         \
    X(get, true, true)         \
    X(wait, true, true)        \
    X(add, true, true)         \
    X(gather, true, true)      \
    X(open, false, false)

/* A line in the hands of its handler. */
struct worker_request {
    struct worker_channel *channel;
    char *at; /* what is left of the line, NUL-terminated */
    const char *value;
    size_t available;
};

/* Handlers return as request_handle. */
#define X(word, in_turn, alive) long request_##word(struct worker_request *request);
REQUESTS(X)
#undef X

/* The next word, "" at the end of the line. It is cut off in place. */
char *worker_request_word(struct worker_request *request);
/* A value that follows a line: its size, or REQUEST_LATER while it is not whole, or -2 when refused (a long
 * one is dropped). */
long worker_request_value(struct worker_request *request, ProtobufCBinaryData *value);

/* Answers, and is a handler's result: the request was wrong, and why. */
long worker_request_refuse(struct worker_request *request, const char *why);
/* The request was right, but memory is short; of words in turn. */
long worker_request_fail_memory(struct worker_request *request);

#endif
