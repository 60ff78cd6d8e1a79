/* Within the room: a communicator, how a request is carried out in it, and what NCCL offers (nccl.c). */
#ifndef COLLECTIVE_COMM_H
#define COLLECTIVE_COMM_H

#include <pthread.h>
#include <sys/types.h>

#include "collective/collective.h"
#include "collective/way.h"

struct ty_comm {
    struct comm_config config;
    pid_t owner;           /* the connections and the memory are those of this process; 0: it never stood */
    pthread_mutex_t mutex; /* held by the thread that is in a call */
    uint64_t calls;
    struct way *way; /* to the other ranks; NULL: there are none */
    bool use_nccl;
    ty_error no_nccl;   /* why device buffers cannot be used */
    void *device_state; /* made at the first call on device buffers */
    ty_error failure;   /* code not 0: unusable ever after */
    bool is_part;       /* of another communicator, by ty_comm_split */
    struct ty_comm *next;
};

/* An argument outside its enum must stay outside when it is told in one byte. */
static inline uint8_t comm_byte(unsigned value) {
    return value < UINT8_MAX ? (uint8_t)value : UINT8_MAX;
}

static inline bool comm_is_message(const struct comm_call *call) {
    return call->operation == COMM_SEND || call->operation == COMM_RECEIVE;
}

/* Whether host buffers move with the agreement on a collective call: those of gather, scatter and the calls
 * with counts go as messages (parts.c). */
static inline bool comm_moves_data(const struct ty_request *request) {
    const struct comm_call *call = &request->call;
    bool in_parts = call->operation >= COMM_GATHER && call->operation <= COMM_ALL_GATHER_V;
    return call->operation != COMM_BARRIER && !in_parts && call->count > 0 && !call->device && !call->invalid;
}

/* Has the backend make a call, whatever it is. */
int comm_dispatch(const struct comm_backend *backend, void *state, const struct ty_request *request,
                  ty_error *err);

/* Takes the communicator for a call; an error where this process cannot use it. */
int comm_enter(ty_comm *comm, ty_error *err);
void comm_leave(ty_comm *comm);

/* Between those two: takes a request up, which then is among those that go on; ends it. The request must stay
 * where it is meanwhile. */
void comm_begin(ty_comm *comm, struct ty_request *request);
bool comm_is_done(ty_comm *comm, struct ty_request *request); /* or has failed */
int comm_finish(ty_comm *comm, struct ty_request *request, ty_error *err);

/* Between those two: the pieces of all ranks, as comm_exchange gives them, by calls of this communicator. */
int comm_gather(ty_comm *comm, const void *value, size_t size, struct buffer *all, ty_error *err);

/* How many bytes are in a piece of a gather, which stand behind this number of them. */
enum { COMM_PIECE_HEADER = 4 };
static inline size_t comm_piece_size(const unsigned char *piece) {
    return piece[0] | piece[1] << 8 | piece[2] << 16 | (size_t)piece[3] << 24;
}
/* A gather of pieces that are all as long as this rank's, side by side in `pieces`. TY_EPROTOCOL where they are
 * not: the ranks are of different builds. */
int comm_gather_alike(const struct comm_config *config, const char *key, const void *own, size_t size,
                      void *pieces, ty_error *err);

/* NCCL for device buffers (nccl.c), found at run time. Finds the libraries (TRAINYARD_NCCL_LIBRARY and
 * TRAINYARD_CUDA_LIBRARY name others than libnccl.so.2 and libcuda.so.1). TY_EUNSUPPORTED says what is
 * missing. */
int nccl_load(ty_error *err);
/* True for memory of a CUDA device. Costs nothing in a process that has not loaded CUDA. */
bool nccl_is_device_memory(const void *buffer);
/* `create` makes the communicator on the calling thread's device; the ranks find each other by exchange.gather.
 * It has no `agree`. */
extern const struct comm_backend nccl_backend;

#endif
