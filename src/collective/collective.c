/* The face of the collectives: checks a call, has all ranks agree on it, and lets the backend move the data.
 * One call of a communicator at a time; a communicator whose ranks did not agree is given up, since who waits
 * for whom is unknown then. How bytes travel is in the ways (way.h). */
#include "collective/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "collective/comm.h"

/* Those of this process: what was started in one moves on while another waits. */
static struct {
    pthread_mutex_t mutex;
    ty_comm *first;
} comms = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The first failure stands: callers look at `failed` before. */
void way_break(struct way *way, struct ty_request *request, int failure, int suspect) {
    way->failed = request;
    way->vote = (struct comm_vote){.failure = failure, .suspect = suspect};
}

static bool reduces(enum comm_operation operation) {
    return operation == COMM_ALL_REDUCE || operation == COMM_REDUCE_SCATTER;
}

/* What is wrong with the arguments of a call, in words; NULL when all is well. */
static const char *find_fault(const struct ty_comm *comm, const struct ty_request *request) {
    const struct comm_call *call = &request->call;
    if (request->fault != NULL || call->operation == COMM_BARRIER) return request->fault;
    if (comm_type_size(call->type) == 0) return "the type is not one of ty_data_type";
    if (reduces(call->operation) && call->reduction > TY_MEAN)
        return "the reduction is not one of ty_reduction";
    if (reduces(call->operation) && call->reduction == TY_MEAN &&
        (call->type == TY_INT32 || call->type == TY_INT64 || call->type == TY_INT8 || call->type == TY_UINT8))
        return "a mean of whole numbers is not defined: take the sum";
    bool has_root =
        call->operation == COMM_BROADCAST || call->operation == COMM_GATHER || call->operation == COMM_SCATTER;
    if (has_root && (call->root < 0 || call->root >= comm->config.size))
        return "root is not a rank of this communicator";
    if (comm_is_message(call) &&
        (call->root < 0 || call->root >= comm->config.size || call->root == comm->config.rank))
        return "the peer is not another rank of this communicator";
    size_t bytes;
    if (__builtin_mul_overflow(call->count, comm_type_size(call->type), &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)comm->config.size, &bytes) || bytes > PTRDIFF_MAX)
        return "the buffers would be larger than memory";
    if (call->count > 0 && (request->input == NULL || request->output == NULL)) return "a buffer is NULL";
    return NULL;
}

/* Also where the buffers are: all ranks must have them on devices, or none, which they agree on with the rest
 * of the call. Called when a request is begun, and again for the words when it turned out to be wrong. */
static int check(const struct ty_comm *comm, struct ty_request *request, ty_error *err) {
    const char *fault = find_fault(comm, request);
    if (fault != NULL) return ty_fail(err, TY_EUSAGE, "%s", fault);
    const struct comm_call *call = &request->call;
    request->bytes = call->count * comm_type_size(call->type);
    bool counted = call->operation == COMM_ALL_TO_ALL_V || call->operation == COMM_ALL_GATHER_V;
    if (call->operation == COMM_BARRIER || (call->count == 0 && !counted)) return 0;
    bool input = nccl_is_device_memory(request->input), output = nccl_is_device_memory(request->output);
    if (input != output) return ty_fail(err, TY_EUSAGE, "one buffer is device memory, the other is not");
    request->call.device = input;
    bool has_nccl =
        reduces(call->operation) || call->operation == COMM_BROADCAST || call->operation == COMM_ALL_GATHER;
    if (input && !has_nccl) return ty_fail(err, TY_EUNSUPPORTED, "this call is for host memory: copy it there");
    if (!input || comm->use_nccl) return 0;
    return ty_fail(err, TY_EUNSUPPORTED, "the buffer is device memory, but %s", comm->no_nccl.message);
}

static void close_backends(struct ty_comm *comm) {
    if (comm->device_state != NULL) nccl_backend.destroy(TAKE(comm->device_state));
    struct way *way = TAKE(comm->way);
    if (way != NULL) way->operations->destroy(way);
}

/* "rank 3, call 2 barrier()". */
static void begin_text(const struct ty_comm *comm, const struct comm_call *call, struct buffer *text) {
    buffer_printf(text, "rank %d, ", comm->config.rank);
    if (!comm_is_message(call)) buffer_printf(text, "call %" PRIu64 " ", call->number + 1);
    comm_call_format(call, text);
}

/* The communicator is unusable from now on; the connections are closed, so that no peer waits for this rank in
 * vain. */
static int give_up(struct ty_comm *comm, const struct comm_call *call, const ty_error *why, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    begin_text(comm, call, &text);
    (void)ty_fail(&comm->failure, why->code, "%s: %s", text.failed ? "a call" : text.data, why->message);
    bool late = why->code == TY_ETIMEOUT && !comm_is_message(call);
    if (late && comm->way != NULL && !comm->way->operations->names_missing && !comm->is_part) {
        /* Every rank that gave up asks who else is here: the answer names those that did not come. Nothing is
         * said about the others when the exchange itself fails. */
        const struct comm_exchange *exchange = &comm->config.exchange;
        CLEANUP(buffer_done) struct buffer all = {0};
        ty_error missing = {0};
        char key[64];
        (void)snprintf(key, sizeof key, "missing-%" PRIu64, comm->calls);
        int rc = exchange->gather(exchange->context, key, "", 0, NS_PER_S, &all, &missing);
        if (rc == TY_ETIMEOUT)
            (void)ty_fail(&comm->failure, why->code, "%s: %s", comm->failure.message, missing.message);
    }
    if (comm->way != NULL) comm->way->operations->leave(comm->way, why->code);
    close_backends(comm);
    if (err != NULL) *err = comm->failure;
    return comm->failure.code;
}

/* Every operation has its case, so that a new one is not forgotten; those that go as messages have no function
 * of a backend. A split gathers the choices of all ranks. */
int comm_dispatch(const struct comm_backend *backend, void *state, const struct ty_request *request,
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
    case COMM_ALL_TO_ALL:
        return backend->all_to_all(state, request->input, request->output, call->count, call->type, err);
    case COMM_SPLIT:
        return backend->all_gather(state, request->input, request->output, call->count, call->type, err);
    case COMM_BARRIER:
        return 0;
    case COMM_GATHER:
    case COMM_SCATTER:
    case COMM_ALL_TO_ALL_V:
    case COMM_ALL_GATHER_V:
    case COMM_SEND:
    case COMM_RECEIVE:
        break;
    }
    return ty_fail(err, TY_EFAULT, "operation %d is unknown", call->operation);
}

/* comm_exchange over a communicator that is in a call. */
static int gather_in(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                     struct buffer *all, ty_error *err) {
    (void)key, (void)timeout;
    return comm_gather(context, value, size, all, err);
}

/* What is left to do once all ranks agree. */
static int move(struct ty_comm *comm, const struct ty_request *request, ty_error *err) {
    if (request->call.operation == COMM_BARRIER || request->call.count == 0) return 0;
    if (request->call.device) {
        struct comm_config config = comm->config;
        config.exchange = (struct comm_exchange){.gather = gather_in, .context = comm};
        int rc = comm->device_state != NULL ? 0 : nccl_backend.create(&config, &comm->device_state, err);
        return rc < 0 ? rc : comm_dispatch(&nccl_backend, comm->device_state, request, err);
    }
    if (comm->way != NULL) return 0; /* it has come with the agreement */
    /* A world of one: the sum of one is itself. */
    if (request->output != request->input) memmove(request->output, request->input, request->bytes);
    return 0;
}

/* One thread at a time is in a communicator: others wait here, however long its call takes. */
int comm_enter(ty_comm *comm, ty_error *err) {
    if (comm == NULL) return ty_fail(err, TY_EUSAGE, "the communicator is NULL: take it from ty_comm_get");
    if (comm->owner != 0 && comm->owner != getpid()) /* nothing is told to the others, who expect the worker */
        return ty_fail(
            err, TY_EUSAGE,
            "the communicator belongs to process %d: a child that it forked takes part in no collective",
            (int)comm->owner);
    (void)pthread_mutex_lock(&comm->mutex);
    if (comm->failure.code == 0) return 0;
    (void)ty_fail(err, comm->failure.code, "the communicator is unusable since an error: %s",
                  comm->failure.message);
    (void)pthread_mutex_unlock(&comm->mutex);
    return comm->failure.code;
}

void comm_leave(ty_comm *comm) {
    (void)pthread_mutex_unlock(&comm->mutex);
}

/* A collective call takes its number here, where calls are in the program's order, and also when it is wrong:
 * the others count it too. Messages have none, as they are between two ranks, and a wrong one is for nobody. */
void comm_begin(ty_comm *comm, struct ty_request *request) {
    request->comm = comm;
    request->call.invalid = check(comm, request, NULL) < 0;
    request->call.number = comm_is_message(&request->call) ? UINT64_MAX : comm->calls++;
    bool for_nobody = comm_is_message(&request->call) && request->call.invalid;
    if (comm->way != NULL && !for_nobody) comm->way->operations->begin(comm->way, request);
}

bool comm_is_done(ty_comm *comm, struct ty_request *request) {
    if (comm->way == NULL || request->call.invalid) return true;
    if (!request->done) comm->way->operations->progress(comm->way);
    return request->done || comm->way->failed != NULL;
}

/* What was started in other communicators moves on; true when there is more. Those that a thread is in, this
 * one among them, look after themselves. */
static bool move_others(void) {
    bool more = false;
    (void)pthread_mutex_lock(&comms.mutex);
    for (ty_comm *comm = comms.first; comm != NULL; comm = comm->next) {
        if (pthread_mutex_trylock(&comm->mutex) != 0) continue;
        if (comm->way != NULL && comm->way->failed == NULL) {
            comm->way->operations->progress(comm->way);
            more = more || !comm->way->operations->is_idle(comm->way);
        }
        (void)pthread_mutex_unlock(&comm->mutex);
    }
    (void)pthread_mutex_unlock(&comms.mutex);
    return more;
}

/* Whether all ranks make this very call. With it goes the moving of host buffers. */
static int agree(struct ty_comm *comm, struct ty_request *request, ty_error *err) {
    const struct way *way = comm->way;
    if (way == NULL || request->done || way->operations->wait(comm->way, request, move_others)) return 0;
    const struct comm_call call = way->failed->call;
    const struct comm_vote vote = way->vote;
    ty_error why = way->error;
    CLEANUP(buffer_done) struct buffer text = {0}, limit = {0}, missing = {0};
    if (why.code == 0 && (vote.failure == TY_EMISMATCH || vote.failure == 0)) {
        /* Ranks differ: the lowest or the highest call, whichever is not ours, is told beside ours. */
        bool lowest_is_ours = memcmp(&vote.lowest, &call, sizeof call) == 0;
        const struct comm_call *other = lowest_is_ours ? &vote.highest : &vote.lowest;
        int rank = lowest_is_ours ? vote.highest_rank : vote.lowest_rank;
        comm_call_format(other, &text);
        const char *words = text.failed ? "a call" : text.data;
        if (comm_is_message(other))
            (void)ty_fail(&why, TY_EMISMATCH, "rank %d made %s", rank, words);
        else
            (void)ty_fail(&why, TY_EMISMATCH, "rank %d made call %" PRIu64 " %s%s", rank, other->number + 1,
                          words, other->invalid ? " with a wrong argument" : "");
    } else if (why.code == 0 && vote.failure == TY_ETIMEOUT) {
        duration_format(comm->config.timeout, &limit);
        way->operations->missing(way, &missing);
        (void)ty_fail(&why, TY_ETIMEOUT, "not every rank came to it within %s%s%s",
                      limit.failed ? "the limit" : limit.data, missing.size > 0 ? ": " : "",
                      missing.size > 0 ? missing.data : "");
    } else if (why.code == 0) {
        (void)ty_fail(&why, vote.failure, "the connection to rank %d is lost", vote.suspect);
    }
    return give_up(comm, &call, &why, err);
}

int comm_finish(ty_comm *comm, struct ty_request *request, ty_error *err) {
    ty_error why; /* not cleared: its 1 KiB would cost as much as a small call */
    why.code = 0;
    if (request->call.invalid) {
        /* A wrong argument is told to the others as an invalid call, and to the caller by what is wrong. */
        CLEANUP(buffer_done) struct buffer text = {0};
        const struct comm_call call = request->call;
        ty_error told;
        if (check(comm, request, &why) == 0)
            (void)ty_fail(&why, TY_EUSAGE, "an argument was wrong when the call was started");
        if (!comm_is_message(&call)) (void)agree(comm, request, &told);
        if (comm->failure.code == 0) return give_up(comm, &call, &why, err);
        begin_text(comm, &call, &text);
        return ty_fail(err, why.code, "%s: %s", text.failed ? "a call" : text.data, why.message);
    }
    int rc = agree(comm, request, err);
    if (rc < 0) return rc;
    rc = move(comm, request, &why);
    return rc < 0 ? give_up(comm, &request->call, &why, err) : 0;
}

static int gather_bytes(ty_comm *comm, const void *own, void *all, size_t size, ty_error *err) {
    struct ty_request request = {
        .call = {.operation = COMM_ALL_GATHER, .count = size, .type = TY_UINT8}, .input = own, .output = all};
    comm_begin(comm, &request);
    return comm_finish(comm, &request, err);
}

/* The sizes first, then the pieces, all as long as the longest. */
int comm_gather(ty_comm *comm, const void *value, size_t size, struct buffer *all, ty_error *err) {
    size_t n = (size_t)comm->config.size, longest = 0;
    uint32_t own = (uint32_t)size;
    CLEANUP_FREE uint32_t *sizes = calloc(n, sizeof *sizes);
    if (sizes == NULL) return ty_fail_memory(err);
    int rc = gather_bytes(comm, &own, sizes, sizeof own, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (sizes[i] > longest) longest = sizes[i];
    if (rc < 0) return rc;
    CLEANUP_FREE char *piece = calloc(1, longest + 1), *pieces = malloc(n * longest + 1);
    if (piece == NULL || pieces == NULL) return ty_fail_memory(err);
    if (size > 0) memcpy(piece, value, size);
    rc = gather_bytes(comm, piece, pieces, longest, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const unsigned char length[4] = {(unsigned char)sizes[i], (unsigned char)(sizes[i] >> 8),
                                         (unsigned char)(sizes[i] >> 16), (unsigned char)(sizes[i] >> 24)};
        buffer_append(all, length, sizeof length);
        buffer_append(all, pieces + i * longest, sizes[i]);
    }
    return rc < 0 ? rc : all->failed ? ty_fail_memory(err) : 0;
}

int comm_gather_alike(const struct comm_config *config, const char *key, const void *own, size_t size,
                      void *pieces, ty_error *err) {
    CLEANUP(buffer_done) struct buffer all = {0};
    int rc = config->exchange.gather(config->exchange.context, key, own, size, config->timeout, &all, err);
    if (rc < 0) return rc;
    bool alike = all.size == (size_t)config->size * (COMM_PIECE_HEADER + size);
    for (size_t i = 0; alike && i < (size_t)config->size; i++) {
        const unsigned char *piece = (const unsigned char *)all.data + i * (COMM_PIECE_HEADER + size);
        alike = comm_piece_size(piece) == size;
        memcpy((char *)pieces + i * size, piece + COMM_PIECE_HEADER, size);
    }
    return alike ? 0 : ty_fail(err, TY_EPROTOCOL, "the ranks' answers about %s are not of this build", key);
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

/* Memory first: whether ranks can share it is what all of them find out together, so that all go the same
 * way. */
int comm_create(const struct comm_config *config, ty_comm **comm, ty_error *err) {
    struct ty_comm *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    made->config = *config;
    made->owner = getpid();
    (void)pthread_mutex_init(&made->mutex, NULL);
    int rc = choose_backend(made, err);
    if (rc == 0 && made->config.size > 1) rc = segment_create(&made->config, &made->way, err);
    if (rc == 0 && made->config.size > 1 && made->way == NULL)
        rc = network_create(&made->config, &made->way, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    (void)pthread_mutex_lock(&comms.mutex);
    made->next = comms.first;
    comms.first = made;
    (void)pthread_mutex_unlock(&comms.mutex);
    *comm = made;
    return 0;
}

/* What a forked child holds a copy of is its parent's: left alone. */
void comm_destroy(ty_comm *comm) {
    if (comm == NULL || comm->owner != getpid()) return;
    (void)pthread_mutex_lock(&comms.mutex);
    for (ty_comm **place = &comms.first; *place != NULL; place = &(*place)->next)
        if (*place == comm) {
            *place = comm->next;
            break;
        }
    (void)pthread_mutex_unlock(&comms.mutex);
    close_backends(comm);
    (void)pthread_mutex_destroy(&comm->mutex);
    free(comm);
}

ty_comm *comm_unusable(const ty_error *why) {
    static struct ty_comm comm;
    comm.failure = *why;
    return &comm;
}
