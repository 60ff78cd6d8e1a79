/* The face of the collectives: checks a call, has all ranks agree on it, and lets the backend move the data. */
#include "collective/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "collective/nccl.h"

struct ty_comm {
    struct comm_config config;
    pid_t owner; /* the connections and their threads are those of this process */
    uint64_t calls;
    const struct comm_backend *host; /* Gloo; NULL in a world of one */
    void *host_state;
    bool use_nccl;
    ty_error no_nccl;   /* why device buffers cannot be used */
    void *device_state; /* made at the first call on device buffers */
    ty_error failure;   /* code not 0: unusable ever after */
};

/* A call in the making: what is told to the others, what is kept, and what is wrong with it here. */
struct collective_call {
    struct comm_call call;
    const void *input;
    void *output;
    size_t bytes; /* of `count` elements */
};

/* An argument outside its enum must stay outside when it is told in one byte. */
static uint8_t as_byte(unsigned value) {
    return value < UINT8_MAX ? (uint8_t)value : UINT8_MAX;
}

static bool reduces(enum comm_operation operation) {
    return operation == COMM_ALL_REDUCE || operation == COMM_REDUCE_SCATTER;
}

static bool is_integer(ty_data_type type) {
    return type == TY_INT32 || type == TY_INT64;
}

static const char *text_of(const struct comm_call *call, struct buffer *text) {
    buffer_clear(text);
    comm_call_format(call, text);
    return text->failed ? "a call" : text->data;
}

/* What is wrong with the arguments of a call, in words; NULL when all is well. */
static const char *find_fault(const struct ty_comm *comm, const struct collective_call *request) {
    const struct comm_call *call = &request->call;
    if (call->operation == COMM_BARRIER) return NULL;
    if (comm_type_size(call->type) == 0) return "the type is not one of ty_data_type";
    if (reduces(call->operation) && call->reduction > TY_MEAN)
        return "the reduction is not one of ty_reduction";
    if (reduces(call->operation) && call->reduction == TY_MEAN && is_integer(call->type))
        return "a mean of whole numbers is not defined: take the sum";
    if (call->operation == COMM_BROADCAST && (call->root < 0 || call->root >= comm->config.size))
        return "root is not a rank of this communicator";
    size_t bytes;
    if (__builtin_mul_overflow(call->count, comm_type_size(call->type), &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)comm->config.size, &bytes) || bytes > PTRDIFF_MAX)
        return "the buffers would be larger than memory";
    if (call->count > 0 && (request->input == NULL || request->output == NULL)) return "a buffer is NULL";
    return NULL;
}

static int check_place(const struct ty_comm *comm, struct collective_call *request, ty_error *err) {
    if (request->call.operation == COMM_BARRIER || request->call.count == 0) return 0;
    bool input = nccl_is_device_memory(request->input), output = nccl_is_device_memory(request->output);
    if (input != output) return ty_fail(err, TY_EUSAGE, "one buffer is device memory, the other is not");
    request->call.device = input;
    if (!input || comm->use_nccl) return 0;
    return ty_fail(err, TY_EUNSUPPORTED, "the buffer is device memory, but %s", comm->no_nccl.message);
}

static int check(const struct ty_comm *comm, struct collective_call *request, ty_error *err) {
    const char *fault = find_fault(comm, request);
    if (fault != NULL) return ty_fail(err, TY_EUSAGE, "%s", fault);
    request->bytes = request->call.count * comm_type_size(request->call.type);
    return check_place(comm, request, err);
}

static void close_backends(struct ty_comm *comm) {
    if (comm->device_state != NULL) nccl_backend.destroy(TAKE(comm->device_state));
    if (comm->host_state != NULL) comm->host->destroy(TAKE(comm->host_state));
}

/* Every rank that gave up asks who else is here: the answer names those that did not come. Nothing is said
 * about the others when the exchange itself fails. */
static void find_missing(struct ty_comm *comm, ty_error *err) {
    static const nanoseconds patience = NS_PER_S;
    char key[64];
    (void)snprintf(key, sizeof key, "missing-%" PRIu64, comm->calls);
    CLEANUP(buffer_done) struct buffer all = {0};
    ty_error missing = {0};
    int rc = comm->config.exchange.gather(comm->config.exchange.context, key, "", 0, patience, &all, &missing);
    if (rc == TY_ETIMEOUT) (void)ty_fail(err, err->code, "%s: %s", err->message, missing.message);
}

/* The communicator is unusable from now on; the connections are closed, so that no peer waits for this rank in
 * vain. */
static int give_up(struct ty_comm *comm, const struct comm_call *call, const ty_error *why, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)ty_fail(&comm->failure, why->code, "rank %d, call %" PRIu64 " %s: %s", comm->config.rank,
                  call->number + 1, text_of(call, &text), why->message);
    if (why->code == TY_ETIMEOUT) find_missing(comm, &comm->failure);
    close_backends(comm);
    if (err != NULL) *err = comm->failure;
    return comm->failure.code;
}

static int fail_vote(struct ty_comm *comm, const struct comm_call *call, const struct comm_vote *vote,
                     ty_error *err) {
    ty_error why = {0};
    CLEANUP(buffer_done) struct buffer limit = {0};
    duration_format(comm->config.timeout, &limit);
    if (vote->failure == TY_ETIMEOUT)
        (void)ty_fail(&why, TY_ETIMEOUT, "not every rank came to it within %s",
                      limit.failed ? "the limit" : limit.data);
    else
        (void)ty_fail(&why, vote->failure, "the connection to rank %d is lost", vote->suspect);
    return give_up(comm, call, &why, err);
}

/* Ranks differ: the lowest or the highest call, whichever is not ours, is told beside ours. */
static int fail_mismatch(struct ty_comm *comm, const struct comm_call *call, const struct comm_vote *vote,
                         ty_error *err) {
    bool lowest_is_ours = memcmp(&vote->lowest, call, sizeof *call) == 0;
    const struct comm_call *other = lowest_is_ours ? &vote->highest : &vote->lowest;
    int rank = lowest_is_ours ? vote->highest_rank : vote->lowest_rank;
    CLEANUP(buffer_done) struct buffer text = {0};
    ty_error why = {0};
    (void)ty_fail(&why, TY_EMISMATCH, "rank %d made call %" PRIu64 " %s%s", rank, other->number + 1,
                  text_of(other, &text), other->invalid ? " with a wrong argument" : "");
    return give_up(comm, call, &why, err);
}

/* Whether all ranks make this very call. */
static int agree(struct ty_comm *comm, const struct comm_call *call, ty_error *err) {
    if (comm->host == NULL) return 0;
    struct comm_vote vote = {
        .lowest = *call, .highest = *call, .lowest_rank = comm->config.rank, .highest_rank = comm->config.rank};
    ty_error why = {0};
    if (comm->host->agree(comm->host_state, &vote, &why) < 0) return give_up(comm, call, &why, err);
    if (vote.failure != 0) return fail_vote(comm, call, &vote, err);
    if (memcmp(&vote.lowest, &vote.highest, sizeof vote.lowest) != 0)
        return fail_mismatch(comm, call, &vote, err);
    return 0;
}

static int dispatch(const struct comm_backend *backend, void *state, const struct collective_call *request,
                    ty_error *err) {
    const struct comm_call *call = &request->call;
    switch ((enum comm_operation)call->operation) {
    case COMM_ALL_REDUCE:
        return backend->all_reduce(state, request->output, call->count, call->type, call->reduction, err);
    case COMM_BROADCAST:
        return backend->broadcast(state, request->output, call->count, call->type, call->root, err);
    case COMM_ALL_GATHER:
        return backend->all_gather(state, request->input, request->output, call->count, call->type, err);
    case COMM_REDUCE_SCATTER:
        return backend->reduce_scatter(state, request->input, request->output, call->count, call->type,
                                       call->reduction, err);
    case COMM_BARRIER:
        return 0;
    }
    return ty_fail(err, TY_EFAULT, "operation %d is unknown", call->operation);
}

static int move(struct ty_comm *comm, const struct collective_call *request, ty_error *err) {
    if (request->call.operation == COMM_BARRIER || request->call.count == 0) return 0;
    if (request->call.device) {
        int rc = comm->device_state == NULL ? nccl_backend.create(&comm->config, &comm->device_state, err) : 0;
        return rc < 0 ? rc : dispatch(&nccl_backend, comm->device_state, request, err);
    }
    if (comm->host != NULL) return dispatch(comm->host, comm->host_state, request, err);
    /* A world of one: the sum of one is itself. */
    if (request->output != request->input) memmove(request->output, request->input, request->bytes);
    return 0;
}

/* A wrong argument is told to the others as an invalid call, and to the caller by what is wrong. */
static int refuse(struct ty_comm *comm, struct collective_call *request, const ty_error *fault, ty_error *err) {
    request->call.invalid = 1;
    (void)agree(comm, &request->call, NULL);
    if (comm->failure.code == 0) return give_up(comm, &request->call, fault, err);
    CLEANUP(buffer_done) struct buffer text = {0};
    return ty_fail(err, fault->code, "rank %d, call %" PRIu64 " %s: %s", comm->config.rank,
                   request->call.number + 1, text_of(&request->call, &text), fault->message);
}

static int perform(ty_comm *comm, struct collective_call *request, ty_error *err) {
    if (comm == NULL) return ty_fail(err, TY_EUSAGE, "the communicator is NULL: take it from ty_comm_get");
    if (comm->failure.code != 0)
        return ty_fail(err, comm->failure.code, "the communicator is unusable since an error: %s",
                       comm->failure.message);
    if (comm->owner != getpid()) /* nothing is told to the others, who expect the worker itself */
        return ty_fail(
            err, TY_EUSAGE,
            "the communicator belongs to process %d: a child that it forked takes part in no collective",
            (int)comm->owner);
    request->call.number = comm->calls++;
    ty_error why = {0};
    if (check(comm, request, &why) < 0) return refuse(comm, request, &why, err);
    int rc = agree(comm, &request->call, err);
    if (rc < 0) return rc;
    rc = move(comm, request, &why);
    return rc < 0 ? give_up(comm, &request->call, &why, err) : 0;
}

int ty_all_reduce(ty_comm *comm, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                  ty_error *err) {
    struct collective_call request = {.call = {.operation = COMM_ALL_REDUCE,
                                               .count = count,
                                               .type = as_byte(type),
                                               .reduction = as_byte(reduction)},
                                      .input = buffer,
                                      .output = buffer};
    return perform(comm, &request, err);
}

int ty_broadcast(ty_comm *comm, void *buffer, size_t count, ty_data_type type, int root, ty_error *err) {
    struct collective_call request = {
        .call = {.operation = COMM_BROADCAST, .count = count, .type = as_byte(type), .root = root},
        .input = buffer,
        .output = buffer};
    return perform(comm, &request, err);
}

int ty_all_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                  ty_error *err) {
    struct collective_call request = {
        .call = {.operation = COMM_ALL_GATHER, .count = count, .type = as_byte(type)},
        .input = input,
        .output = output};
    return perform(comm, &request, err);
}

int ty_reduce_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type,
                      ty_reduction reduction, ty_error *err) {
    struct collective_call request = {.call = {.operation = COMM_REDUCE_SCATTER,
                                               .count = count,
                                               .type = as_byte(type),
                                               .reduction = as_byte(reduction)},
                                      .input = input,
                                      .output = output};
    return perform(comm, &request, err);
}

int ty_barrier(ty_comm *comm, ty_error *err) {
    struct collective_call request = {.call = {.operation = COMM_BARRIER}};
    return perform(comm, &request, err);
}

/* nccl where it is asked for, or where devices are held and NCCL is there; why not is kept for the call that
 * needs it. */
static int choose_backend(struct ty_comm *comm, ty_error *err) {
    const char *wanted = comm->config.backend;
    if (wanted != NULL && !str_equal(wanted, "gloo") && !str_equal(wanted, "nccl"))
        return ty_fail(err, TY_EUSAGE, "backend \"%.40s\" is unknown; allowed: gloo, nccl", wanted);
    if (str_equal(wanted, "gloo")) {
        (void)ty_fail(&comm->no_nccl, TY_EUNSUPPORTED,
                      "backend gloo works on host memory: choose backend nccl");
        return 0;
    }
    if (wanted == NULL && comm->config.n_devices == 0) {
        (void)ty_fail(&comm->no_nccl, TY_EUNSUPPORTED,
                      "this worker holds no device: ask for one, or choose backend nccl");
        return 0;
    }
    comm->use_nccl = nccl_load(&comm->no_nccl) == 0;
    if (comm->use_nccl || wanted == NULL) return 0;
    return ty_fail(err, comm->no_nccl.code, "backend nccl: %s", comm->no_nccl.message);
}

static int make_host_backend(struct ty_comm *comm, ty_error *err) {
    if (comm->config.size == 1) return 0;
    comm->host = module_load("gloo", err);
    if (comm->host == NULL) return TY_EUNSUPPORTED;
    return comm->host->create(&comm->config, &comm->host_state, err);
}

int comm_create(const struct comm_config *config, ty_comm **comm, ty_error *err) {
    struct ty_comm *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    made->config = *config;
    made->owner = getpid();
    int rc = choose_backend(made, err);
    if (rc == 0) rc = make_host_backend(made, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    *comm = made;
    return 0;
}

void comm_destroy(ty_comm *comm) {
    if (comm == NULL) return;
    close_backends(comm);
    free(comm);
}

ty_comm *comm_unusable(const ty_error *why) {
    static struct ty_comm comm;
    comm.failure = *why;
    return &comm;
}
