/* What stands behind ty_comm: a backend's table. The Gloo backend is a module (gloo.cc, symbol `trainyard_gloo`), loaded when a
 * communicator is first made; nccl.c loads libnccl.so.2 and libcuda.so.1 itself, with our own prototypes. */
#ifndef COLLECTIVE_COLLECTIVE_H
#define COLLECTIVE_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/collective.h>

#include "base/buffer.h"
#include "base/duration.h"

/* How ranks find each other: an all-gather of bytes through the run's store. `*all` receives world-size pieces (u32
 * little-endian size, bytes) in rank order. TY_ETIMEOUT names the ranks that did not come. */
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
    nanoseconds timeout; /* of one call */
    struct comm_exchange exchange;
};

int comm_create(const struct comm_config *config, ty_comm **comm, ty_error *err);
void comm_destroy(ty_comm *comm); /* NULL is fine */

/* A backend. Every call is already checked (not NULL, in range, equal on all ranks). Returns 0 or a code with the error;
 * TY_EUNSUPPORTED for a type or reduction that the library has not. Blocks until the result is in the buffer. */
struct comm_backend {
    const char *version; /* TY_VERSION: a module's first member */
    const char *name;
    int (*create)(const struct comm_config *config, void **state, ty_error *err);
    void (*destroy)(void *state);
    int (*all_reduce)(void *state, void *buffer, size_t count, ty_data_type type, ty_reduction reduction, ty_error *err);
    int (*broadcast)(void *state, void *buffer, size_t count, ty_data_type type, int root, ty_error *err);
    int (*all_gather)(void *state, const void *input, void *output, size_t count, ty_data_type type, ty_error *err);
    int (*reduce_scatter)(void *state, const void *input, void *output, size_t count, ty_data_type type,
                          ty_reduction reduction, ty_error *err);
    int (*barrier)(void *state, ty_error *err);
};

#endif
