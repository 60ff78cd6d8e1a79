/* Collective calls in shared memory.
 *
 * First every rank posts its call, and compares those of all. Small data lie beside the call, and the result is
 * taken from there: one round. Others go chunk by chunk through the slots, of which each rank has two halves
 * that take turns. In round s every rank
 *   takes out     chunk s-1, which all have put in (of all_reduce: chunk s-2, which all have reduced)
 *   reduces       its part of chunk s-1 into the results (all_reduce only)
 *   puts in       chunk s, into the half from which all took chunk s-2 in round s-1
 * and then says that it is done with the round, and waits for all. */
#include <string.h>

#include "collective/comm.h"
#include "collective/reduce.h"
#include "collective/segment.h"

/* Elements [first, first + count) of a call, or of one part of it. */
struct chunk {
    size_t index, first, count;
};

static bool parts(const struct ty_request *request) { /* whether the input has a part for each rank */
    return request->call.operation == COMM_REDUCE_SCATTER || request->call.operation == COMM_ALL_TO_ALL;
}

static size_t width_of(const struct ty_request *request) {
    return comm_type_size(request->call.type);
}

static size_t input_bytes(const struct segment *segment, const struct ty_request *request) {
    return parts(request) ? request->bytes * (size_t)segment->size : request->bytes;
}

static bool is_small(const struct segment *segment, const struct ty_request *request) {
    return input_bytes(segment, request) <= SMALL_BYTES;
}

static struct posting *posting_of(const struct segment *segment, const struct ty_request *request, int rank) {
    return &segment->seats[rank].postings[request->call.number & 1];
}

/* From 1 on: memory that nobody has posted to is 0. */
static uint32_t posted_number(const struct ty_request *request) {
    return (uint32_t)request->call.number + 1;
}

/* Where the small data of a rank lie. */
static char *small_data(const struct segment *segment, const struct ty_request *request, int rank) {
    if (input_bytes(segment, request) <= SEAT_BYTES) return posting_of(segment, request, rank)->data;
    size_t place = (size_t)rank * 2 + (request->call.number & 1);
    return segment->map + segment->small_at + place * SMALL_BYTES;
}

static bool gives(const struct segment *segment, const struct ty_request *request) {
    return request->call.operation != COMM_BROADCAST || request->call.root == segment->rank;
}

bool rounds_await(const struct segment *segment, const struct ty_request *request, int rank) {
    if (request->step < 2)
        return atomic_load_explicit(&posting_of(segment, request, rank)->number, memory_order_acquire) !=
               posted_number(request);
    /* The difference: counts of rounds begin anew after 2^32. */
    return (int32_t)(atomic_load_explicit(&segment->seats[rank].rounds, memory_order_acquire) -
                     segment->rounds) < 0;
}

/* Whether every rank has come to where this one is. The cursor stays at the first that has not: for that one
 * this rank sleeps. */
static bool all_are_here(const struct segment *segment, struct ty_request *request) {
    for (; request->cursor < segment->size; request->cursor++)
        if (request->cursor != segment->rank && rounds_await(segment, request, request->cursor)) return false;
    request->cursor = 0;
    return true;
}

/* Whether all ranks make this very call, and none has given it up. */
static bool is_agreed(struct segment *segment, struct ty_request *request) {
    struct comm_vote vote = {.lowest = request->call,
                             .highest = request->call,
                             .lowest_rank = segment->rank,
                             .highest_rank = segment->rank};
    bool equal = true;
    for (int rank = 0; rank < segment->size; rank++) {
        const struct seat *seat = &segment->seats[rank];
        const struct comm_call *call = &posting_of(segment, request, rank)->call;
        int left = -(int)atomic_load_explicit(&seat->left, memory_order_acquire);
        if ((left == TY_ETIMEOUT || left == TY_ECOMM) && seat->failed == posted_number(request)) {
            way_break(&segment->way, request, left, seat->suspect);
            return false;
        }
        if (memcmp(call, &request->call, sizeof *call) == 0) continue;
        equal = false;
        if (memcmp(call, &vote.lowest, sizeof *call) < 0) {
            vote.lowest = *call;
            vote.lowest_rank = rank;
        }
        if (memcmp(call, &vote.highest, sizeof *call) > 0) {
            vote.highest = *call;
            vote.highest_rank = rank;
        }
    }
    if (equal) return true;
    segment->way.vote = vote;
    segment->way.failed = request;
    return false;
}

/* Half of a rank's slots for a chunk: chunks take turns between the two. */
static char *slot(const struct segment *segment, int rank, size_t chunk) {
    return segment->map + segment->slots_at + ((size_t)rank * 2 + (chunk & 1)) * segment->slot_bytes;
}

static char *results(const struct segment *segment, size_t chunk) {
    return segment->map + segment->results_at + (chunk & 1) * segment->slot_bytes;
}

static bool is_aligned(const void *place, size_t width) {
    return (uintptr_t)place % width == 0;
}

/* What all ranks gave, reduced into `to`, by way of `aligned` where it is not. */
static void reduce_given(const struct segment *segment, const struct ty_request *request, const void **given,
                         char *to, char *aligned, size_t count) {
    char *result = is_aligned(to, width_of(request)) ? to : aligned;
    reduce_all(result, given, segment->size, count, request->call.type, request->call.reduction);
    if (result != to) memcpy(to, result, count * width_of(request));
}

/* The call's result, of small data. Nobody reads this rank's slots meanwhile. */
static void take_small(struct segment *segment, struct ty_request *request) {
    const void *given[segment->size];
    char *output = request->output;
    size_t part = parts(request) ? request->bytes * (size_t)segment->rank : 0;
    for (int rank = 0; rank < segment->size; rank++)
        given[rank] = small_data(segment, request, rank) + part;
    switch ((enum comm_operation)request->call.operation) {
    case COMM_ALL_REDUCE:
    case COMM_REDUCE_SCATTER:
        reduce_given(segment, request, given, output, slot(segment, segment->rank, 0), request->call.count);
        break;
    case COMM_BROADCAST:
        if (!gives(segment, request)) memcpy(output, given[request->call.root], request->bytes);
        break;
    default:
        for (int rank = 0; rank < segment->size; rank++)
            memcpy(output + (size_t)rank * request->bytes, given[rank], request->bytes);
    }
}

/* Elements of a chunk; where the input has a part for each rank, of each part. */
static size_t chunk_count(const struct segment *segment, const struct ty_request *request) {
    size_t width = width_of(request) * (parts(request) ? (size_t)segment->size : 1);
    return segment->slot_bytes / width;
}

static struct chunk chunk_of(const struct segment *segment, const struct ty_request *request, size_t index) {
    size_t most = chunk_count(segment, request), first = index * most;
    size_t left = request->call.count - first;
    return (struct chunk){.index = index, .first = first, .count = left < most ? left : most};
}

/* A rank's part of a chunk that is reduced: elements [part_begin(rank), part_begin(rank + 1)) of it. */
static size_t part_begin(const struct segment *segment, struct chunk chunk, int rank) {
    return chunk.count / (size_t)segment->size * (size_t)rank +
           chunk.count % (size_t)segment->size * (size_t)rank / (size_t)segment->size;
}

/* The own part of what is to be reduced is read where it is, unless it is not aligned. */
static bool reads_own_input(const struct ty_request *request) {
    return is_aligned(request->input, width_of(request));
}

/* Of all_reduce the own part is left out: this rank reduces it from where it is. */
static void put_in(struct segment *segment, struct ty_request *request, struct chunk chunk) {
    size_t width = width_of(request);
    const char *input = request->input;
    char *to = slot(segment, segment->rank, chunk.index);
    if (parts(request)) {
        for (size_t rank = 0; rank < (size_t)segment->size; rank++)
            memcpy(to + rank * chunk.count * width, input + (rank * request->call.count + chunk.first) * width,
                   chunk.count * width);
    } else if (request->call.operation == COMM_ALL_REDUCE && reads_own_input(request)) {
        size_t begin = part_begin(segment, chunk, segment->rank) * width;
        size_t end = part_begin(segment, chunk, segment->rank + 1) * width;
        memcpy(to, input + chunk.first * width, begin);
        memcpy(to + end, input + chunk.first * width + end, chunk.count * width - end);
    } else if (gives(segment, request)) {
        memcpy(to, input + chunk.first * width, chunk.count * width);
    }
}

/* all_reduce: the own part of the chunk. */
static void reduce(struct segment *segment, struct ty_request *request, struct chunk chunk) {
    const void *given[segment->size];
    size_t width = width_of(request), begin = part_begin(segment, chunk, segment->rank);
    size_t end = part_begin(segment, chunk, segment->rank + 1);
    for (int rank = 0; rank < segment->size; rank++)
        given[rank] = slot(segment, rank, chunk.index) + begin * width;
    if (reads_own_input(request))
        given[segment->rank] = (const char *)request->input + (chunk.first + begin) * width;
    reduce_all(results(segment, chunk.index) + begin * width, given, segment->size, end - begin,
               request->call.type, request->call.reduction);
}

/* A result whose place is not aligned is made in this rank's part of `results`, for which reduce_scatter has no
 * other use. */
static void take_out(struct segment *segment, struct ty_request *request, struct chunk chunk) {
    const void *given[segment->size];
    size_t width = width_of(request), bytes = chunk.count * width;
    char *output = request->output;
    size_t part = parts(request) ? (size_t)segment->rank * bytes : 0;
    for (int rank = 0; rank < segment->size; rank++)
        given[rank] = slot(segment, rank, chunk.index) + part;
    switch ((enum comm_operation)request->call.operation) {
    case COMM_ALL_REDUCE:
        memcpy(output + chunk.first * width, results(segment, chunk.index), bytes);
        break;
    case COMM_REDUCE_SCATTER:
        reduce_given(segment, request, given, output + chunk.first * width,
                     results(segment, chunk.index) + part, chunk.count);
        break;
    case COMM_BROADCAST:
        if (!gives(segment, request)) memcpy(output + chunk.first * width, given[request->call.root], bytes);
        break;
    default:
        for (size_t rank = 0; rank < (size_t)segment->size; rank++)
            memcpy(output + (rank * request->call.count + chunk.first) * width, given[rank], bytes);
    }
}

/* One round's work; true when nothing is left to be told to the others. */
static bool work(struct segment *segment, struct ty_request *request, size_t round) {
    size_t depth = request->call.operation == COMM_ALL_REDUCE ? 2 : 1, most = chunk_count(segment, request);
    size_t chunks = request->call.count / most + (request->call.count % most != 0);
    if (round >= depth) take_out(segment, request, chunk_of(segment, request, round - depth));
    if (depth == 2 && round >= 1 && round - 1 < chunks)
        reduce(segment, request, chunk_of(segment, request, round - 1));
    if (round < chunks) put_in(segment, request, chunk_of(segment, request, round));
    return round + 1 == chunks + depth;
}

/* `step`: 0, nothing is posted; 1, the call is, and those of the others are awaited; from 2 on the rounds.
 * `posted`: what this rank does in the round at hand is done. The call is advanced again and again while the
 * others are behind. */
bool rounds_advance(struct segment *segment, struct ty_request *request) {
    if (request->step == 0) {
        struct posting *own = posting_of(segment, request, segment->rank);
        own->call = request->call;
        if (comm_moves_data(request) && is_small(segment, request) && gives(segment, request))
            memcpy(small_data(segment, request, segment->rank), request->input, input_bytes(segment, request));
        atomic_store(&own->number, posted_number(request));
        segment_ring_all(segment);
        request->step = 1;
    }
    if (request->step == 1) {
        if (!all_are_here(segment, request) || !is_agreed(segment, request)) return false;
        if (!comm_moves_data(request)) return true;
        if (is_small(segment, request)) {
            take_small(segment, request);
            return true;
        }
        request->step = 2;
    }
    for (;;) {
        if (!request->posted && work(segment, request, request->step - 2)) return true;
        if (!request->posted) {
            atomic_store(&segment->seats[segment->rank].rounds, ++segment->rounds);
            segment_ring_all(segment);
        }
        request->posted = true;
        if (!all_are_here(segment, request)) return false;
        request->posted = false;
        request->step++;
    }
}
