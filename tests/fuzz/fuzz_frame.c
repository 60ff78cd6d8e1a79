/* Frames and messages: no input is read beyond its end; a message that is understood is written and read again
 * to the same bytes. The input is taken both as a stream of frames and as one message. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "fuzz.h"
#include "wire/frame.h"

/* NULL for what protobuf-c writes but does not read: it keeps fields that it does not know, among them number
 * 0. */
static Wire__Message *write_and_read(const Wire__Message *message, struct buffer *out) {
    struct frame frame;
    fuzz_require(frame_message(message, out) == 0);
    fuzz_require(frame_next((const uint8_t *)out->data, out->size, FRAME_MAX, &frame, NULL) ==
                 (int64_t)out->size);
    Wire__Message *again = frame_unpack(&frame, NULL);
    fuzz_require(again == NULL || again->body_case == message->body_case);
    return again;
}

static void try_again(const Wire__Message *message) {
    CLEANUP(buffer_done) struct buffer first = {0};
    CLEANUP(buffer_done) struct buffer second = {0};
    Wire__Message *again = write_and_read(message, &first);
    if (again == NULL) return;
    wire__message__free_unpacked(write_and_read(again, &second), NULL);
    fuzz_require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    wire__message__free_unpacked(again, NULL);
}

static void try_message(const struct frame *frame) {
    ty_error err = {0};
    Wire__Message *message = frame_unpack(frame, &err);
    if (message == NULL) {
        fuzz_require(err.code == TY_EPROTOCOL);
        return;
    }
    fuzz_require(message->body_case != WIRE__MESSAGE__BODY__NOT_SET);
    try_again(message);
    wire__message__free_unpacked(message, NULL);
}

static void try_output(const struct frame *frame) {
    uint32_t rank;
    int stream = 0;
    const uint8_t *bytes;
    size_t size;
    if (frame_output(frame, &rank, &stream, &bytes, &size) < 0) return;
    fuzz_require(stream == 1 || stream == 2);
    fuzz_require(bytes >= frame->payload && bytes + size == frame->payload + frame->size);
    CLEANUP(buffer_done) struct buffer out = {0};
    size_t offset = frame_output_begin(&out, rank, stream);
    buffer_append(&out, bytes, size);
    frame_output_end(&out, offset);
    if (size > 0) fuzz_require(memcmp(out.data + FRAME_HEADER, frame->payload, frame->size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct frame whole = {.kind = FRAME_MESSAGE, .payload = data, .size = size};
    try_message(&whole);
    for (size_t at = 0; at < size;) {
        struct frame frame;
        ty_error err = {0};
        int64_t taken = frame_next(data + at, size - at, FRAME_MAX_HELLO, &frame, &err);
        if (taken < 0) fuzz_require(taken == TY_EPROTOCOL && err.message[0] != '\0');
        if (taken <= 0) return 0;
        fuzz_require((size_t)taken <= size - at && frame.payload + frame.size == data + at + taken);
        if (frame.kind == FRAME_MESSAGE) try_message(&frame);
        if (frame.kind == FRAME_OUTPUT) try_output(&frame);
        at += (size_t)taken;
    }
    return 0;
}
