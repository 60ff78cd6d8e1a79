/* Collective operations among the workers of a run: host buffers through Gloo, device buffers through NCCL
 * where it is loaded. */
#ifndef TRAINYARD_COLLECTIVE_H
#define TRAINYARD_COLLECTIVE_H

#include <trainyard/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text, bytes) */
#define TY_DATA_TYPES(X)        \
    X(TY_FLOAT32, "float32", 4) \
    X(TY_FLOAT64, "float64", 8) \
    X(TY_INT32, "int32", 4)     \
    X(TY_INT64, "int64", 8)     \
    X(TY_FLOAT16, "float16", 2) \
    X(TY_BFLOAT16, "bfloat16", 2)

typedef enum ty_data_type {
#define TY_X(name, text, bytes) name,
    TY_DATA_TYPES(TY_X)
#undef TY_X
} ty_data_type;

/* X(name, text) */
#define TY_REDUCTIONS(X)     \
    X(TY_SUM, "sum")         \
    X(TY_PRODUCT, "product") \
    X(TY_MIN, "min")         \
    X(TY_MAX, "max")         \
    X(TY_MEAN, "mean")

typedef enum ty_reduction {
#define TY_X(name, text) name,
    TY_REDUCTIONS(TY_X)
#undef TY_X
} ty_reduction;

/* The communicator of all workers of the attempt. */
typedef struct ty_comm ty_comm;

/* The communicator, made when first asked for (all ranks must ask); owned by the worker. NULL with the error:
 * TY_ETIMEOUT names the ranks that did not come. */
TY_API ty_comm *ty_comm_get(ty_worker *worker, ty_error *err);

/* The same as an argument: ty_all_reduce(ty_comm(worker), ...); a failure shows in that call. */
TY_API ty_comm *ty_comm_of(ty_worker *worker);
#define ty_comm(worker) ty_comm_of(worker)

/* Every rank must make the same calls in the same order with the same count, type, reduction and root. Ranks
 * that differ get TY_EMISMATCH, which names a rank and both calls; a rank that does not come within the
 * time-out (30 min, or TRAINYARD_COLLECTIVE_TIMEOUT_S) gives TY_ETIMEOUT; a dead peer TY_ECOMM. After an error
 * the communicator is unusable. `count` counts elements; buffers may be host or device memory, of one kind in a
 * call.
 *   all_reduce      buffer[count], in place
 *   broadcast       buffer[count], from rank `root`
 *   all_gather      input[count] of every rank -> output[count * world size], in rank order
 *   reduce_scatter  input[count * world size] -> output[count], rank r's part */
TY_API int ty_all_reduce(ty_comm *comm, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                         ty_error *err);
TY_API int ty_broadcast(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root, ty_error *err);
TY_API int ty_all_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                         ty_error *err);
TY_API int ty_reduce_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                             ty_reduction reduction, ty_error *err);
TY_API int ty_barrier(ty_comm *comm, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
