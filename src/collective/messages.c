/* Messages in shared memory: a header and the data go as a stream of bytes through the stream from one rank to
 * the other, in as many pieces as its room asks for. */
#include <string.h>

#include "collective/segment.h"

/* What goes before the data. */
struct header {
    uint64_t count;
    uint64_t type;
};

static char *room_of(struct byte_stream *stream) {
    return (char *)stream + sizeof *stream;
}

/* Bytes of a stream's stream from `at` on, which may go on at the beginning of its room. */
static void copy_in(const struct segment *segment, struct byte_stream *stream, uint64_t at, const void *from,
                    size_t size) {
    char *room = room_of(stream);
    size_t begin = at % segment->stream_bytes, first = segment->stream_bytes - begin;
    if (first > size) first = size;
    memcpy(room + begin, from, first);
    memcpy(room, (const char *)from + first, size - first);
}

static void copy_out(const struct segment *segment, struct byte_stream *stream, uint64_t at, void *to,
                     size_t size) {
    const char *room = room_of(stream);
    size_t begin = at % segment->stream_bytes, first = segment->stream_bytes - begin;
    if (first > size) first = size;
    memcpy(to, room + begin, first);
    memcpy((char *)to + first, room, size - first);
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static bool send_some(struct segment *segment, struct ty_request *request) {
    struct byte_stream *stream = segment_stream(segment, segment->rank, request->call.root);
    struct header header = {.count = request->call.count, .type = request->call.type};
    uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed), before = head;
    size_t room = segment->stream_bytes - (size_t)(head - atomic_load(&stream->tail));
    if (request->step == 0) {
        if (room < sizeof header) return false;
        copy_in(segment, stream, head, &header, sizeof header);
        head += sizeof header;
        room -= sizeof header;
        request->step = sizeof header;
    }
    size_t sent = request->step - sizeof header, size = least(room, request->bytes - sent);
    if (size > 0) copy_in(segment, stream, head, (const char *)request->input + sent, size);
    head += size;
    request->step += size;
    if (head != before) {
        atomic_store(&stream->head, head);
        segment_ring(segment, request->call.root);
    }
    return sent + size == request->bytes;
}

static bool receive_some(struct segment *segment, struct ty_request *request) {
    struct byte_stream *stream = segment_stream(segment, request->call.root, segment->rank);
    struct header header;
    uint64_t tail = atomic_load_explicit(&stream->tail, memory_order_relaxed), before = tail;
    size_t ready = (size_t)(atomic_load(&stream->head) - tail);
    if (request->step == 0) {
        if (ready < sizeof header) return false;
        copy_out(segment, stream, tail, &header, sizeof header);
        if (header.count != request->call.count || header.type != request->call.type) {
            /* The call that the sender made, as the vote's lowest. */
            segment->vote = (struct comm_vote){
                .failure = TY_EMISMATCH,
                .lowest = {.operation = COMM_SEND,
                           .count = header.count,
                           .type = (uint8_t)header.type,
                           .root = segment->rank},
                .lowest_rank = request->call.root,
            };
            segment->failed = request;
            return false;
        }
        tail += sizeof header;
        ready -= sizeof header;
        request->step = sizeof header;
    }
    size_t received = request->step - sizeof header, size = least(ready, request->bytes - received);
    if (size > 0) copy_out(segment, stream, tail, (char *)request->output + received, size);
    tail += size;
    request->step += size;
    if (tail != before) {
        atomic_store(&stream->tail, tail);
        segment_ring(segment, request->call.root);
    }
    return received + size == request->bytes;
}

bool message_advance(struct segment *segment, struct ty_request *request) {
    return request->call.operation == COMM_SEND ? send_some(segment, request) : receive_some(segment, request);
}
