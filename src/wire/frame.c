/* The frames of frame.h. Everything here reads bytes that another process wrote: sizes are checked against the
 * limit before they are used, reserved bytes must be zero, and unpacking a message may not take more memory
 * than UNPACK_MAX however the bytes are arranged. */
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/cleanup.h"

/* Two bytes can stand for a whole empty event of a hundred: without a bound a frame of 64 MiB would unpack to
 * gigabytes. */
enum { UNPACK_MAX = 512 << 20 };

static void store_u32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t load_u32(const uint8_t *from) {
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void store_header(uint8_t *to, size_t size, enum frame_kind kind) {
    memset(to, 0, FRAME_HEADER);
    store_u32(to, (uint32_t)size);
    to[4] = (uint8_t)kind;
}

/* All of the header is judged before the payload is waited for: a peer that speaks something else is told at
 * its first bytes, and not when as many have come as it seems to announce. */
int64_t frame_next(const uint8_t *bytes, size_t size, size_t limit, struct frame *frame, ty_error *err) {
    if (size < FRAME_HEADER) return 0;
    size_t payload = load_u32(bytes);
    unsigned kind = bytes[4];
    if (kind < FRAME_MESSAGE || kind > FRAME_BEAT)
        return ty_fail(err, TY_EPROTOCOL, "a frame of unknown kind %u came from the peer", kind);
    if ((bytes[5] | bytes[6] | bytes[7]) != 0)
        return ty_fail(err, TY_EPROTOCOL, "a frame from the peer has reserved bytes that are not zero");
    size_t least = kind == FRAME_OUTPUT ? FRAME_OUTPUT_HEADER : kind == FRAME_BEAT ? FRAME_BEAT_SIZE : 1;
    if (kind == FRAME_BEAT) limit = FRAME_BEAT_SIZE;
    if (payload < least || payload > limit)
        return ty_fail(err, TY_EPROTOCOL, "a frame of %zu bytes came from the peer: %zu to %zu are allowed",
                       payload, least, limit);
    if (size - FRAME_HEADER < payload) return 0;
    *frame = (struct frame){.kind = (enum frame_kind)kind, .payload = bytes + FRAME_HEADER, .size = payload};
    return (int64_t)(FRAME_HEADER + payload);
}

/* Packed straight into the queue. A message of no bytes is one without a body, which no peer understands. */
int frame_message(const Wire__Message *message, struct buffer *out) {
    size_t size = wire__message__get_packed_size(message);
    if (size == 0) return -EINVAL;
    if (size > FRAME_MAX) return -EMSGSIZE;
    uint8_t *to = (uint8_t *)buffer_reserve(out, FRAME_HEADER + size);
    if (to == NULL) return -ENOMEM;
    store_header(to, size, FRAME_MESSAGE);
    (void)wire__message__pack(message, to + FRAME_HEADER);
    out->size += FRAME_HEADER + size;
    return 0;
}

/* protobuf-c cannot copy: the message is packed and unpacked, by its own descriptor. */
void *frame_copy(const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    CLEANUP_FREE uint8_t *bytes = malloc(size + 1);
    if (bytes == NULL) return NULL;
    (void)protobuf_c_message_pack(message, bytes);
    return protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
}

/* protobuf-c asks for each string and list apart: what is left is counted down over one message. A message is
 * freed without this allocator, so both must free alike. */
static void *allocate_within(void *data, size_t size) {
    size_t *left = data;
    if (size > *left) return NULL;
    *left -= size;
    return block_take(size);
}

static void free_within(void *data, void *pointer) {
    (void)data;
    free(pointer);
}

Wire__Message *frame_unpack(const struct frame *frame, ty_error *err) {
    if (frame->kind != FRAME_MESSAGE) {
        (void)ty_fail(err, TY_EPROTOCOL, "another frame came from the peer where a message was due");
        return NULL;
    }
    size_t left = UNPACK_MAX;
    ProtobufCAllocator allocator = {.alloc = allocate_within, .free = free_within, .allocator_data = &left};
    Wire__Message *message = wire__message__unpack(&allocator, frame->size, frame->payload);
    if (message != NULL && message->body_case != WIRE__MESSAGE__BODY__NOT_SET) return message;
    wire__message__free_unpacked(message, NULL);
    (void)ty_fail(err, TY_EPROTOCOL, "a message of %zu bytes from the peer cannot be understood", frame->size);
    return NULL;
}

/* The header holds no size yet, as nobody knows how much will be appended. Where memory is short the buffer has
 * failed, and the channel ends when it is flushed next. */
size_t frame_output_begin(struct buffer *out, uint32_t rank, int stream) {
    size_t offset = out->size;
    uint8_t header[FRAME_HEADER + FRAME_OUTPUT_HEADER] = {0};
    store_u32(header + FRAME_HEADER, rank);
    header[FRAME_HEADER + 4] = (uint8_t)stream;
    buffer_append(out, header, sizeof header);
    return offset;
}

/* A frame to which nothing was appended is taken back. */
void frame_output_end(struct buffer *out, size_t offset) {
    if (out->failed) return;
    size_t size = out->size - offset - FRAME_HEADER;
    if (size == FRAME_OUTPUT_HEADER)
        out->size = offset;
    else
        store_header((uint8_t *)out->data + offset, size, FRAME_OUTPUT);
}

int frame_output(const struct frame *frame, uint32_t *rank, int *stream, const uint8_t **bytes, size_t *size) {
    const uint8_t *header = frame->payload;
    if (frame->kind != FRAME_OUTPUT || frame->size < FRAME_OUTPUT_HEADER) return TY_EPROTOCOL;
    if ((header[4] != 1 && header[4] != 2) || (header[5] | header[6] | header[7]) != 0) return TY_EPROTOCOL;
    *rank = load_u32(header);
    *stream = header[4];
    *bytes = header + FRAME_OUTPUT_HEADER;
    *size = frame->size - FRAME_OUTPUT_HEADER;
    return 0;
}

static void store_i64(uint8_t *to, int64_t value) {
    store_u32(to, (uint32_t)((uint64_t)value & UINT32_MAX));
    store_u32(to + 4, (uint32_t)((uint64_t)value >> 32));
}

static int64_t load_i64(const uint8_t *from) {
    return (int64_t)(load_u32(from) | (uint64_t)load_u32(from + 4) << 32);
}

void frame_beat(const struct frame_beat *beat, struct buffer *out) {
    uint8_t bytes[FRAME_HEADER + FRAME_BEAT_SIZE];
    store_header(bytes, FRAME_BEAT_SIZE, FRAME_BEAT);
    store_i64(bytes + FRAME_HEADER, beat->sent);
    store_i64(bytes + FRAME_HEADER + 8, beat->heard);
    store_i64(bytes + FRAME_HEADER + 16, beat->credit);
    buffer_append(out, bytes, sizeof bytes);
}

int frame_beat_read(const struct frame *frame, struct frame_beat *beat) {
    if (frame->kind != FRAME_BEAT || frame->size != FRAME_BEAT_SIZE) return TY_EPROTOCOL;
    const uint8_t *from = frame->payload;
    *beat = (struct frame_beat){load_i64(from), load_i64(from + 8), load_i64(from + 16)};
    return 0;
}
