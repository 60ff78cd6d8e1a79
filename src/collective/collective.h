/* What stands behind ty_comm: who speaks to whom, and the ways that data take.
 *
 * Every call is agreed before any data moves: each rank tells what it is about to do, and learns the lowest and
 * the highest of all ranks' calls in about log2(ranks) messages; when the two differ, every rank knows whose
 * call differs and how. A wrong argument takes part as an invalid call, so that the other ranks need not wait
 * for it. The agreement is also the barrier.
 *
 * Ranks of one machine agree and move host buffers in memory that they share (segment.h). Others do so over the
 * network (network.c): messages over TCP, and collective calls through the Gloo backend, a module (gloo.cc,
 * symbol `trainyard_gloo`) that is loaded where a communicator needs it. nccl.c loads libnccl.so.2 and
 * libcuda.so.1 itself, with our own prototypes, and carries device buffers. */
#ifndef COLLECTIVE_COLLECTIVE_H
#define COLLECTIVE_COLLECTIVE_H

#include <assert.h>
#include <stdint.h>
#include <trainyard/collective.h>

#include "base/buffer.h"
#include "base/duration.h"

/* How ranks find each other: an all-gather of bytes through the run's store. `*all` receives world-size pieces
 * (u32 little-endian size, bytes) in rank order. TY_ETIMEOUT names the ranks that did not come. */
struct comm_exchange {
    int (*gather)(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                  struct buffer *all, ty_error *err);
    void *context;
};

struct comm_config {
    int rank, size;
    const char *backend; /* "gloo" or "nccl"; NULL: nccl where devices are held and NCCL is there, else gloo */
    const int *devices;  /* own device indices within the visible ones */
    size_t n_devices;
    const char *address; /* address of this node that peers can reach; NULL: loopback */
    const char *machine; /* ranks that name the same one may share memory; NULL: as the kernel names it */
    nanoseconds timeout; /* of one call */
    struct comm_exchange exchange;
};

/* Makes the communicator; every rank must call it. What `config` points to is borrowed until comm_destroy. */
int comm_create(const struct comm_config *config, ty_comm **comm, ty_error *err);
void comm_destroy(ty_comm *comm); /* NULL is fine */

/* A communicator that never stood: each call fails with `why`. Static storage; the next call replaces it. */
ty_comm *comm_unusable(const ty_error *why);

/* X(name, text) */
#define COMM_OPERATIONS(X)                   \
    X(COMM_ALL_REDUCE, "all_reduce")         \
    X(COMM_BROADCAST, "broadcast")           \
    X(COMM_ALL_GATHER, "all_gather")         \
    X(COMM_REDUCE_SCATTER, "reduce_scatter") \
    X(COMM_ALL_TO_ALL, "all_to_all")         \
    X(COMM_BARRIER, "barrier")               \
    X(COMM_SPLIT, "split")                   \
    X(COMM_GATHER, "gather")                 \
    X(COMM_SCATTER, "scatter")               \
    X(COMM_ALL_TO_ALL_V, "all_to_all_v")     \
    X(COMM_ALL_GATHER_V, "all_gather_v")     \
    X(COMM_SEND, "send")                     \
    X(COMM_RECEIVE, "receive")

enum comm_operation {
#define X(name, text) name,
    COMM_OPERATIONS(X)
#undef X
};

/* One call of one rank. Compared as bytes: no padding, all zero but for what the operation uses. */
struct comm_call {
    uint64_t number; /* calls of this communicator before it */
    uint64_t count;
    int32_t root; /* of a message: the other rank */
    uint8_t operation, type, reduction;
    uint8_t device;  /* device buffers */
    uint8_t invalid; /* its arguments are wrong */
    uint8_t zero[3];
    int32_t tag; /* of a message; below 0: it is part of a call */
};
static_assert(sizeof(struct comm_call) == 32, "compared and sent as bytes");

/* A call in the making, or under way. */
struct ty_request {
    struct comm_call call;
    const void *input;
    void *output;
    size_t bytes;      /* of `count` elements */
    const char *fault; /* what was found wrong with its arguments before it was begun, or NULL */
    ty_comm *comm;
    struct ty_request *next;
    size_t step; /* of a collective call; bytes that were moved, of a message */
    int cursor;
    bool started; /* it goes on by itself, rather than in the call that made it */
    bool posted, done;
};

/* What ranks tell each other in an agreement: begins with the own call as lowest and highest. */
struct comm_vote {
    struct comm_call lowest, highest;
    int32_t lowest_rank, highest_rank;
    int32_t failure; /* 0, TY_ETIMEOUT or TY_ECOMM: it came to no end */
    int32_t suspect; /* with a failure: the rank that was waited for */
};

/* "all_reduce(count 10, float32, sum)". */
void comm_call_format(const struct comm_call *call, struct buffer *out);

/* Bytes of one element; 0 for what is no type. */
size_t comm_type_size(ty_data_type type);

/* A backend. Every call is already checked (not NULL, in range, equal on all ranks, count above 0). Returns 0
 * or a code with the error; TY_EUNSUPPORTED for a type or reduction that the library has not. Blocks until the
 * result is in the buffer. After a failure only `destroy` is called. */
struct comm_backend {
    const char *version; /* base_build: a module's first member */
    const char *name;
    int (*create)(const struct comm_config *config, void **state, ty_error *err);
    void (*destroy)(void *state); /* peers that wait for this rank see the connection close */
    /* Merges all ranks' votes into everyone's; a failure of the network is told in the vote, to all ranks that
     * it can reach. The limit is on each wait; 0: none. */
    int (*agree)(void *state, struct comm_vote *vote, nanoseconds limit, ty_error *err);
    /* From another thread: ends an agreement, and all later ones, with a failure. */
    void (*interrupt)(void *state, int failure);
    int (*all_reduce)(void *state, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                      ty_error *err);
    int (*broadcast)(void *state, void *buffer, size_t count, ty_data_type type, int root, ty_error *err);
    int (*all_gather)(void *state, const void *input, void *output, size_t count, ty_data_type type,
                      ty_error *err);
    int (*reduce_scatter)(void *state, const void *input, void *output, size_t count, ty_data_type type,
                          ty_reduction reduction, ty_error *err);
    int (*all_to_all)(void *state, const void *input, void *output, size_t count, ty_data_type type,
                      ty_error *err); /* NULL: never asked */
};

#endif
