/* The calls of the public header: each is a request, done at once or started. Here the arguments of a call
 * become the fields of a request, and nothing is checked: a wrong argument takes part as an invalid call, so
 * that all ranks hear of it (collective.c). */
#include <stdlib.h>

#include "base/cleanup.h"
#include "collective/comm.h"

static struct ty_request request_of(enum comm_operation operation, const void *input, void *output,
                                    size_t count, ty_data_type type) {
    return (struct ty_request){
        .call = {.operation = (uint8_t)operation, .count = count, .type = comm_byte(type)},
        .input = input,
        .output = output};
}

static struct ty_request reduction_of(enum comm_operation operation, const void *input, void *output,
                                      size_t count, ty_data_type type, ty_reduction reduction) {
    struct ty_request request = request_of(operation, input, output, count, type);
    request.call.reduction = comm_byte(reduction);
    return request;
}

/* A call that names another rank: the root, or the peer of a message, which has one buffer only. */
static struct ty_request rooted(enum comm_operation operation, void *buffer, size_t count, ty_data_type type,
                                int root) {
    struct ty_request request = request_of(operation, buffer, buffer, count, type);
    request.call.root = root;
    return request;
}

static struct ty_request barrier(void) {
    return (struct ty_request){.call = {.operation = COMM_BARRIER}};
}

/* The request lives on this stack: it is ended, or its communicator is, before this returns. */
static int perform(ty_comm *comm, struct ty_request request, ty_error *err) {
    int rc = comm_enter(comm, err);
    if (rc < 0) return rc;
    comm_begin(comm, &request);
    rc = comm_finish(comm, &request, err);
    comm_leave(comm);
    return rc;
}

/* A wrong argument is told when the request is waited for, and not here: the other ranks are to hear of it. */
static int start(ty_comm *comm, struct ty_request request, ty_request **started, ty_error *err) {
    if (started == NULL) return ty_fail(err, TY_EUSAGE, "there is no place for the request: it is NULL");
    *started = NULL;
    struct ty_request *made = malloc(sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    int rc = comm_enter(comm, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    *made = request;
    made->started = true;
    comm_begin(comm, made);
    comm_leave(comm);
    *started = made;
    return 0;
}

/* The end of a started call: it is freed whatever came of it. */
static int take(ty_request **request, ty_error *err) {
    CLEANUP_FREE struct ty_request *ended = TAKE(*request);
    ty_comm *comm = ended->comm;
    if (comm->owner == getpid()) {
        (void)pthread_mutex_lock(&comm->mutex); /* another thread may have moved it on */
        bool over = ended->done && !ended->call.device && !ended->call.invalid;
        (void)pthread_mutex_unlock(&comm->mutex);
        if (over) return 0; /* whatever may have come of the communicator since */
    }
    int rc = comm_enter(comm, err);
    if (rc < 0) return rc;
    rc = comm_finish(comm, ended, err);
    comm_leave(comm);
    return rc;
}

int ty_request_wait(ty_request **request, ty_error *err) {
    return request == NULL || *request == NULL ? 0 : take(request, err);
}

int ty_request_test(ty_request **request, ty_error *err) {
    if (request == NULL || *request == NULL) return 1;
    ty_comm *comm = (*request)->comm;
    if (comm_enter(comm, NULL) == 0) {
        bool done = comm_is_done(comm, *request);
        comm_leave(comm);
        if (!done) return 0;
    }
    int rc = take(request, err);
    return rc < 0 ? rc : 1;
}

int ty_all_reduce(ty_comm *comm, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                  ty_error *err) {
    return perform(comm, reduction_of(COMM_ALL_REDUCE, buffer, buffer, count, type, reduction), err);
}

int ty_all_reduce_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                        ty_request **request, ty_error *err) {
    return start(comm, reduction_of(COMM_ALL_REDUCE, buffer, buffer, count, type, reduction), request, err);
}

int ty_broadcast(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root, ty_error *err) {
    return perform(comm, rooted(COMM_BROADCAST, buffer, count, type, root), err);
}

int ty_broadcast_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root,
                       ty_request **request, ty_error *err) {
    return start(comm, rooted(COMM_BROADCAST, buffer, count, type, root), request, err);
}

int ty_all_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                  ty_error *err) {
    return perform(comm, request_of(COMM_ALL_GATHER, input, output, count, type), err);
}

int ty_all_gather_start(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                        ty_request **request, ty_error *err) {
    return start(comm, request_of(COMM_ALL_GATHER, input, output, count, type), request, err);
}

int ty_reduce_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                      ty_reduction reduction, ty_error *err) {
    return perform(comm, reduction_of(COMM_REDUCE_SCATTER, input, output, count, type, reduction), err);
}

int ty_reduce_scatter_start(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                            ty_reduction reduction, ty_request **request, ty_error *err) {
    return start(comm, reduction_of(COMM_REDUCE_SCATTER, input, output, count, type, reduction), request, err);
}

int ty_all_to_all(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                  ty_error *err) {
    return perform(comm, request_of(COMM_ALL_TO_ALL, input, output, count, type), err);
}

int ty_all_to_all_start(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                        ty_request **request, ty_error *err) {
    return start(comm, request_of(COMM_ALL_TO_ALL, input, output, count, type), request, err);
}

int ty_barrier(ty_comm *comm, ty_error *err) {
    return perform(comm, barrier(), err);
}

int ty_barrier_start(ty_comm *comm, ty_request **request, ty_error *err) {
    return start(comm, barrier(), request, err);
}

static struct ty_request message(enum comm_operation operation, const void *buffer, size_t count,
                                 ty_data_type type, int peer, int tag) {
    struct ty_request request = rooted(operation, (void *)buffer, count, type, peer);
    request.call.tag = tag;
    if (tag < 0) request.fault = "a tag is 0 or more";
    return request;
}

int ty_send(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to, ty_error *err) {
    return perform(comm, message(COMM_SEND, buffer, count, type, to, 0), err);
}

int ty_send_start(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to,
                  ty_request **request, ty_error *err) {
    return start(comm, message(COMM_SEND, buffer, count, type, to, 0), request, err);
}

int ty_receive(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from, ty_error *err) {
    return perform(comm, message(COMM_RECEIVE, buffer, count, type, from, 0), err);
}

int ty_receive_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from,
                     ty_request **request, ty_error *err) {
    return start(comm, message(COMM_RECEIVE, buffer, count, type, from, 0), request, err);
}

int ty_send_tagged(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to, int tag,
                   ty_error *err) {
    return perform(comm, message(COMM_SEND, buffer, count, type, to, tag), err);
}

int ty_send_tagged_start(ty_comm *comm, const void *buffer, size_t count, ty_data_type type, int to, int tag,
                         ty_request **request, ty_error *err) {
    return start(comm, message(COMM_SEND, buffer, count, type, to, tag), request, err);
}

int ty_receive_tagged(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from, int tag,
                      ty_error *err) {
    return perform(comm, message(COMM_RECEIVE, buffer, count, type, from, tag), err);
}

int ty_receive_tagged_start(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int from, int tag,
                            ty_request **request, ty_error *err) {
    return start(comm, message(COMM_RECEIVE, buffer, count, type, from, tag), request, err);
}

int ty_comm_rank(const ty_comm *comm) {
    return comm != NULL && comm->owner != 0 ? comm->config.rank : TY_EUSAGE;
}

int ty_comm_size(const ty_comm *comm) {
    return comm != NULL && comm->owner != 0 ? comm->config.size : TY_EUSAGE;
}
