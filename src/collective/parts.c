/* Calls in which ranks give and get parts of their own: gather, scatter, and those with a count for each rank.
 * All ranks agree on the call; then the parts go as messages, with a tag that no program can give, so that what
 * the program itself sends meanwhile is not touched. */
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "collective/comm.h"

enum { PART_TAG = -1 };

/* What a rank gives to another one, and gets from it. A part may be empty. */
struct portion {
    bool gives, gets;
    const char *input;
    char *output;
    size_t give, get; /* elements */
};

/* One buffer stands for both: a message is checked for both, and uses the one of its direction. */
static struct ty_request message(const struct comm_call *call, enum comm_operation operation, size_t peer,
                                 const void *data, size_t count) {
    struct ty_request made = {.input = data, .output = (void *)data};
    made.call = (struct comm_call){.operation = (uint8_t)operation,
                                   .type = call->type,
                                   .count = count,
                                   .root = (int32_t)peer,
                                   .tag = PART_TAG};
    return made;
}

/* Within a call. Every message is under way before the first one is waited for. */
static int exchange(ty_comm *comm, const struct comm_call *call, const struct portion *parts, ty_error *err) {
    size_t n = (size_t)comm->config.size, own = (size_t)comm->config.rank, begun = 0;
    CLEANUP_FREE struct ty_request *messages = calloc(2 * n, sizeof *messages);
    if (messages == NULL) return ty_fail_memory(err);
    const struct portion *kept = &parts[own];
    if (kept->gives && kept->gets && kept->give > 0)
        memmove(kept->output, kept->input, kept->give * comm_type_size((ty_data_type)call->type));
    for (size_t step = 1; step < n; step++) { /* not all to the same rank first */
        size_t to = (own + step) % n, from = (own + n - step) % n;
        if (parts[from].gets)
            messages[begun++] = message(call, COMM_RECEIVE, from, parts[from].output, parts[from].get);
        if (parts[to].gives) messages[begun++] = message(call, COMM_SEND, to, parts[to].input, parts[to].give);
    }
    for (size_t i = 0; i < begun; i++)
        comm_begin(comm, &messages[i]);
    int rc = 0;
    for (size_t i = 0; i < begun && rc == 0; i++)
        rc = comm_finish(comm, &messages[i], err);
    return rc;
}

static int perform(ty_comm *comm, struct ty_request *request, const struct portion *parts, ty_error *err) {
    int rc = comm_enter(comm, err);
    if (rc < 0) return rc;
    const struct comm_call call = request->call;
    comm_begin(comm, request);
    rc = comm_finish(comm, request, err);
    if (rc == 0) rc = exchange(comm, &call, parts, err);
    comm_leave(comm);
    return rc;
}

/* What one rank, the root, has in parts, others have alone. */
static int with_root(ty_comm *comm, enum comm_operation operation, const void *input, void *output,
                     size_t count, ty_data_type type, int root, ty_error *err) {
    size_t n = comm != NULL ? (size_t)comm->config.size : 0, bytes = count * comm_type_size(type);
    bool is_root = comm != NULL && comm->config.rank == root, gathers = operation == COMM_GATHER;
    CLEANUP_FREE struct portion *parts = calloc(n + 1, sizeof *parts);
    if (parts == NULL) return ty_fail_memory(err);
    for (size_t rank = 0; rank < n; rank++) {
        size_t at = is_root ? rank * bytes : 0;
        parts[rank] = (struct portion){.gives = gathers ? rank == (size_t)root : is_root,
                                       .gets = gathers ? is_root : rank == (size_t)root,
                                       .give = count,
                                       .get = count,
                                       .input = (const char *)input + (gathers ? 0 : at),
                                       .output = (char *)output + (gathers ? at : 0)};
    }
    if (gathers && !is_root) output = (void *)input;
    if (!gathers && !is_root) input = output;
    struct ty_request request = {.input = input, .output = output};
    request.call = (struct comm_call){
        .operation = (uint8_t)operation, .type = comm_byte(type), .count = count, .root = root};
    return perform(comm, &request, parts, err);
}

int ty_gather(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type, int root,
              ty_error *err) {
    return with_root(comm, COMM_GATHER, input, output, count, type, root, err);
}

int ty_scatter(ty_comm *comm, const void *input, void *output, size_t count, ty_data_type type, int root,
               ty_error *err) {
    return with_root(comm, COMM_SCATTER, input, output, count, type, root, err);
}

/* Moves `at` behind `count` elements; false where that is beyond what memory can hold. */
static bool pass(size_t *at, size_t count, size_t width) {
    size_t bytes;
    return !__builtin_mul_overflow(count, width, &bytes) && !__builtin_add_overflow(*at, bytes, at) &&
           *at <= PTRDIFF_MAX;
}

/* Parts lie one behind the other. Without counts for the input all of it goes to every rank. */
static int with_counts(ty_comm *comm, enum comm_operation operation, const void *input,
                       const size_t *input_counts, void *output, const size_t *output_counts, ty_data_type type,
                       ty_error *err) {
    bool to_all = operation == COMM_ALL_GATHER_V, fits = true;
    size_t n = comm != NULL ? (size_t)comm->config.size : 0, width = comm_type_size(type);
    size_t input_at = 0, output_at = 0;
    CLEANUP_FREE struct portion *parts = calloc(n + 1, sizeof *parts);
    if (parts == NULL) return ty_fail_memory(err);
    bool counted = output_counts != NULL && (to_all || input_counts != NULL);
    for (size_t rank = 0; rank < n && counted && fits; rank++) {
        parts[rank] = (struct portion){.gives = true, .gets = true, .get = output_counts[rank]};
        parts[rank].give = to_all ? output_counts[comm->config.rank] : input_counts[rank];
        parts[rank].input = (const char *)input + input_at;
        parts[rank].output = (char *)output + output_at;
        fits = pass(&output_at, parts[rank].get, width) && (to_all || pass(&input_at, parts[rank].give, width));
    }
    bool reads = to_all ? n > 0 && parts[comm->config.rank].give > 0 : input_at > 0;
    struct ty_request request = {.input = input, .output = output};
    request.call = (struct comm_call){.operation = (uint8_t)operation, .type = comm_byte(type)};
    if (!fits) request.fault = "the buffers would be larger than memory";
    if (fits && ((reads && input == NULL) || (output_at > 0 && output == NULL)))
        request.fault = "a buffer is NULL";
    if (!counted) request.fault = "the counts are NULL";
    return perform(comm, &request, parts, err);
}

int ty_all_to_all_v(ty_comm *comm, const void *input, const size_t *input_counts, void *output,
                    const size_t *output_counts, ty_data_type type, ty_error *err) {
    return with_counts(comm, COMM_ALL_TO_ALL_V, input, input_counts, output, output_counts, type, err);
}

int ty_all_gather_v(ty_comm *comm, const void *input, void *output, const size_t *counts, ty_data_type type,
                    ty_error *err) {
    return with_counts(comm, COMM_ALL_GATHER_V, input, NULL, output, counts, type, err);
}
