/* The ways by which the ranks of a communicator reach each other: memory that they share (segment.c), or the
 * network (network.c). And what is the same for both: messages, over streams of bytes (messages.c). */
#ifndef COLLECTIVE_WAY_H
#define COLLECTIVE_WAY_H

#include "collective/collective.h"

/* The first member of a way's own state. Nothing moves but in calls. */
struct way {
    const struct way_operations *operations;
    struct ty_request *failed; /* the request with which it broke; NULL: all is well */
    struct comm_vote vote;     /* with `failed`: what was found */
    ty_error error;            /* with `failed`: in place of the vote, where its code is not 0 */
};

struct way_operations {
    bool names_missing; /* `missing` tells of all calls, rather than of messages only */
    /* Takes a request up; it moves in `progress` and `wait`. */
    void (*begin)(struct way *way, struct ty_request *request);
    /* Moves what can move now. */
    void (*progress)(struct way *way);
    /* Until the request is done, or the way is broken: true, or false. `elsewhere` is called now and then: true
     * when other communicators have something under way. */
    bool (*wait)(struct way *way, struct ty_request *request, bool (*elsewhere)(void));
    bool (*is_idle)(struct way *way);
    /* After a time-out: "rank 3 did not come"; nothing where no rank is waited for any more. */
    void (*missing)(const struct way *way, struct buffer *out);
    /* Tells the others that this rank takes part no longer, and why (0: it is done). */
    void (*leave)(struct way *way, int code);
    void (*destroy)(struct way *way); /* leaves before */
};

void way_break(struct way *way, struct ty_request *request, int failure, int suspect);

/* Makes the communicator's way; every rank calls it. *way stays NULL, with 0, where the ranks cannot share
 * memory: they are of several machines, users or containers. */
int segment_create(const struct comm_config *config, struct way **way, ty_error *err);
/* Gloo for collective calls, and TCP for messages. */
int network_create(const struct comm_config *config, struct way **way, ty_error *err);

/* Requests in the order in which they are done. */
struct request_list {
    struct ty_request *first, *last;
};
void request_list_append(struct request_list *list, struct ty_request *request);
struct ty_request *request_list_take(struct request_list *list); /* the first one, or NULL */

/* Streams of bytes, one from each rank to each other one. Both return how many bytes there was room for, or
 * were there, now: perhaps 0. */
struct message_streams {
    size_t (*write)(void *context, int to, const void *bytes, size_t size);
    size_t (*read)(void *context, int from, void *bytes, size_t size);
};

/* A message is a header and its data in the stream; the receives of a rank take its messages by their tags. */
struct messages {
    int rank, size;
    const struct message_streams *streams;
    void *context;
    struct way *way;
    struct request_list *sends; /* for each peer */
    struct inbox *inboxes;      /* for each peer: what comes from it */
    size_t under_way;           /* requests */
};

/* With `rank`, `size`, `streams`, `context` and `way` filled in. */
int messages_init(struct messages *messages, ty_error *err);
void messages_done(struct messages *messages);
void messages_begin(struct messages *messages, struct ty_request *request);
void messages_progress(struct messages *messages);
/* The message that waits for the rank, or NULL. */
struct ty_request *messages_waiting_for(const struct messages *messages, int rank);

#endif
