/* What the workers of a run say to each other while they train: collective operations, messages from one to
 * another, and groups of them. Host buffers go through shared memory among workers of one machine, user and
 * container, and over the network otherwise; device buffers through NCCL, where it is loaded. */
#ifndef TRAINYARD_COLLECTIVE_H
#define TRAINYARD_COLLECTIVE_H

#include <trainyard/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text, bytes) */
#define TY_DATA_TYPES(X)          \
    X(TY_FLOAT32, "float32", 4)   \
    X(TY_FLOAT64, "float64", 8)   \
    X(TY_INT32, "int32", 4)       \
    X(TY_INT64, "int64", 8)       \
    X(TY_FLOAT16, "float16", 2)   \
    X(TY_BFLOAT16, "bfloat16", 2) \
    X(TY_INT8, "int8", 1)         \
    X(TY_UINT8, "uint8", 1)

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

/* Some workers, each with a rank in it: all of the attempt, or a group made by ty_comm_split. One thread at a
 * time uses it: calls of several threads are made one after the other, so that a thread that waits for a peer
 * keeps the others waiting; give each a communicator of its own. A forked child cannot use it. */
typedef struct ty_comm ty_comm;

/* The communicator, made when first asked for (all ranks must ask); owned by the worker. NULL with the error:
 * TY_ETIMEOUT names the ranks that did not come. */
TY_API ty_comm *ty_comm_get(ty_worker *worker, ty_error *err);

/* The same as an argument: ty_all_reduce(ty_comm(worker), ...); a failure shows in that call. */
TY_API ty_comm *ty_comm_of(ty_worker *worker);
#define ty_comm(worker) ty_comm_of(worker)

/* Own rank in the communicator, and how many are in it; TY_EUSAGE for NULL. */
TY_API int ty_comm_rank(const ty_comm *comm);
TY_API int ty_comm_size(const ty_comm *comm);

/* Every rank must make the same calls in the same order with the same count, type, reduction and root. Ranks
 * that differ get TY_EMISMATCH, which names a rank and both calls; a rank that does not come within the
 * time-out (30 min, or TRAINYARD_COLLECTIVE_TIMEOUT_S) gives TY_ETIMEOUT; a dead peer TY_ECOMM. After an error
 * the communicator is unusable. `count` counts elements, and may be 0; buffers may be host or device memory, of
 * one kind in a call, and need no alignment.
 *   all_reduce      buffer[count], in place
 *   broadcast       buffer[count], from rank `root`
 *   all_gather      input[count] of every rank -> output[count * size], in rank order; input may be the own
 *                   part of output
 *   reduce_scatter  input[count * size] -> output[count], rank r's part
 *   all_to_all      input[count * size] -> output[count * size]: part r goes to rank r, and comes from rank r;
 *                   no overlap
 *   gather          input[count] of every rank -> output[count * size] of rank `root`; others may give NULL
 *   scatter         input[count * size] of rank `root` -> output[count], rank r's part; others may give NULL
 *   all_gather_v    input[counts[rank]] of every rank -> output, all of them one behind the other in rank
 *                   order, counts[r] elements of rank r; the counts of all ranks are the same
 *   all_to_all_v    input, for each rank r input_counts[r] elements, one behind the other in rank order ->
 *                   output, output_counts[r] elements from rank r likewise. A rank that gets other counts than
 *                   those it expects gets TY_EMISMATCH; no overlap
 * The last five, and messages, are for host memory; there is no reduction to one root (all_reduce does more).
 * Whole numbers wrap around, and have no mean. float16 and bfloat16 are reduced as float32, and rounded once,
 * to the nearest, ties to even. A NaN is the least and the greatest of numbers. All ranks get the same bits;
 * among the ranks of one machine they are added in rank order, whatever the count. */
TY_API int ty_all_reduce(ty_comm *comm, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                         ty_error *err);
TY_API int ty_broadcast(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root, ty_error *err);
TY_API int ty_all_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                         ty_error *err);
TY_API int ty_reduce_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                             ty_reduction reduction, ty_error *err);
TY_API int ty_all_to_all(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                         ty_error *err);
TY_API int ty_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type, int root,
                     ty_error *err);
TY_API int ty_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type, int root,
                      ty_error *err);
TY_API int ty_all_gather_v(ty_comm *comm, const void *input, void *output, const size_t *counts,
                           ty_data_type type, ty_error *err);
TY_API int ty_all_to_all_v(ty_comm *comm, const void *input, const size_t *input_counts, void *output,
                           const size_t *output_counts, ty_data_type type, ty_error *err);
TY_API int ty_barrier(ty_comm *comm, ty_error *err);

/* One message from a rank to another. What a rank sends to another arrives in the order in which it was sent:
 * the n-th receive takes the n-th send of the same tag. Count and type of both must be equal: the receiver gets
 * TY_EMISMATCH, which names both calls. ty_send returns when `buffer` may be used again, perhaps before it is
 * received; ranks that send to each other at the same time use ty_send_start. `to` and `from` are other ranks
 * than the own: what is for oneself is copied. Otherwise as above.
 *
 * A receive takes the messages of its tag only: 0 or what the tagged calls say, 0 to INT_MAX. A message of
 * another tag that comes first is kept in memory until it is asked for. There is no receive from whoever comes
 * first, nor of any tag. */
TY_API int ty_send(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to, ty_error *err);
TY_API int ty_receive(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from, ty_error *err);

TY_API int ty_send_tagged(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to, int tag,
                          ty_error *err);
TY_API int ty_receive_tagged(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from, int tag,
                             ty_error *err);

/* A call that was started and goes on while the program computes: its buffers are left alone until it is done.
 * Owned by the caller until ty_request_wait, or a ty_request_test that finds it done, takes it. Any number may
 * be under way, also in several communicators. It moves on in every call of this header that waits, and in
 * ty_request_test; collective calls over the network also move on by themselves, in a thread. Collective calls
 * are done in the order in which they were started, which must be the same in all ranks, blocking calls among
 * them; messages do not wait for them. */
typedef struct ty_request ty_request;

/* As the calls above, host memory: `*request` is the caller's. A start does not wait for any rank. An error
 * that it returns (with *request NULL) is of the communicator; what is wrong with the call itself is told by
 * the test or the wait. Gather, scatter and the calls with counts are not started. */
TY_API int ty_all_reduce_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type,
                               ty_reduction reduction, ty_request **request, ty_error *err);
TY_API int ty_broadcast_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root,
                              ty_request **request, ty_error *err);
TY_API int ty_all_gather_start(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                               ty_request **request, ty_error *err);
TY_API int ty_reduce_scatter_start(ty_comm *comm, const void *input, void *output, size_t count,
                                   ty_data_type type, ty_reduction reduction, ty_request **request,
                                   ty_error *err);
TY_API int ty_all_to_all_start(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                               ty_request **request, ty_error *err);
TY_API int ty_barrier_start(ty_comm *comm, ty_request **request, ty_error *err);
TY_API int ty_send_start(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to,
                         ty_request **request, ty_error *err);
TY_API int ty_receive_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from,
                            ty_request **request, ty_error *err);
TY_API int ty_send_tagged_start(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to,
                                int tag, ty_request **request, ty_error *err);
TY_API int ty_receive_tagged_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from,
                                   int tag, ty_request **request, ty_error *err);

/* Whether it is done: 1, and *request is freed and NULL; 0, it goes on; or the error of the call, and *request
 * is freed and NULL. NULL in *request is done. */
TY_API int ty_request_test(ty_request **request, ty_error *err);
/* Waits until it is done. 0 or the error of the call; *request is freed and NULL in both cases. */
TY_API int ty_request_wait(ty_request **request, ty_error *err);

/* Makes a communicator of the ranks that give the same color, ordered by key and then by rank; every rank of
 * `comm` must call it. A rank with a negative color is in none: *part is NULL. `*part` is the caller's until
 * ty_comm_free. Errors as above; `comm` is unusable after them. */
TY_API int ty_comm_split(ty_comm *comm, int color, int key, ty_comm **part, ty_error *err);

/* Ends a communicator of ty_comm_split, after all its requests were waited for; *comm becomes NULL. Peers that
 * still wait for this rank get TY_ECOMM. NULL, and the communicator of the worker, are left alone. */
TY_API void ty_comm_free(ty_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
