/* The words that a line of a worker may begin with, and what their handlers share. */
#ifndef AGENT_WORKER_VERBS_H
#define AGENT_WORKER_VERBS_H

#include "agent/worker_request.h"

/* X(word, in turn: it has an answer, and waits until the request before it was answered) */
#define REQUESTS(X)      \
    X(report, false)     \
    X(ready, false)      \
    X(rendezvous, false) \
    X(heartbeat, false)  \
    X(preemption, true)  \
    X(failure, true)     \
    X(checkpoint, true)  \
    X(checkpoints, true) \
    X(commit, true)      \
    X(abort, true)       \
    X(set, true)         \
    X(get, true)         \
    X(wait, true)        \
    X(add, true)         \
    X(gather, true)      \
    X(open, false)

/* A line in the hands of its handler. */
struct worker_request {
    struct worker_channel *channel;
    char *at; /* what is left of the line, NUL-terminated */
    const char *value;
    size_t available;
};

/* Handlers return as request_handle. */
#define X(word, in_turn) long request_##word(struct worker_request *request);
REQUESTS(X)
#undef X

/* The next word, "" at the end of the line. It is cut off in place. */
char *worker_request_word(struct worker_request *request);
/* A value that follows a line: its size, or REQUEST_LATER while it is not whole, or -2 when refused (a long one is dropped). */
long worker_request_value(struct worker_request *request, ProtobufCBinaryData *value);

/* Answers, and is a handler's result: it was wrong, and why. */
long worker_request_refuse(struct worker_request *request, const char *why);
/* It was right, but memory is short; of words in turn. */
long worker_request_fail_memory(struct worker_request *request);

#endif
