/* Frames between the controller and an agent: a header of 8 bytes, then the payload.
 *
 *     u32 size of the payload, little-endian; u8 kind; u8 zero; u16 zero
 *
 * kind MESSAGE: a wire.Message (trainyard.proto). kind OUTPUT: u32 rank, u8 stream (1 or 2), 3 zero bytes, then
 * whole lines of output, ready to be written; it is not protobuf so that output is not copied twice. kind BEAT
 * (between machines): three numbers (struct frame_beat). A size
 * over FRAME_MAX, or over FRAME_MAX_HELLO before the Hello, is refused before anything is allocated. Pure: no
 * system call. */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "wire/trainyard.pb-c.h"

enum {
    FRAME_PROTOCOL = 1,
    FRAME_HEADER = 8,
    FRAME_OUTPUT_HEADER = 8,
    FRAME_BEAT_SIZE = 24,
    FRAME_MAX = 64 << 20,
    FRAME_MAX_HELLO = 64 << 10
};
enum frame_kind { FRAME_MESSAGE = 1, FRAME_OUTPUT = 2, FRAME_BEAT = 3 };

struct frame {
    enum frame_kind kind;
    const uint8_t *payload; /* borrowed from the input */
    size_t size;
};

/* Looks for one frame at the front of `bytes`: the number of bytes it takes, 0 when it is not whole yet,
 * TY_EPROTOCOL. */
int64_t frame_next(const uint8_t *bytes, size_t size, size_t limit, struct frame *frame, ty_error *err);

/* The message that carries `body`, which it borrows: WIRE_MESSAGE(HELLO, hello, &hello). */
#define WIRE_MESSAGE(KIND, field, body)                                  \
    ((Wire__Message){.base = {.descriptor = &wire__message__descriptor}, \
                     .body_case = WIRE__MESSAGE__BODY_##KIND,            \
                     .field = (body)})

/* Appends a message as a frame. */
int frame_message(const Wire__Message *message, struct buffer *out);

/* The message of a frame, to be freed with wire__message__free_unpacked(m, NULL); NULL with TY_EPROTOCOL. */
Wire__Message *frame_unpack(const struct frame *frame, ty_error *err);

/* A copy of a message, or of what it carries, to be freed as the original is; NULL when memory is short. */
void *frame_copy(const ProtobufCMessage *message);

/* An output frame: room for the header is made by frame_output_begin, which returns an offset for
 * frame_output_end, called after the lines were appended to `out`. */
size_t frame_output_begin(struct buffer *out, uint32_t rank, int stream);
void frame_output_end(struct buffer *out, size_t offset);
/* A sign of life. `sent` is the sender's clock, `heard` the newest clock of the peer that it has heard (0: none
 * yet): so each end knows when what the other one has heard was sent. `credit`: for so long after that the
 * sender has not been listening, and holds the silence against nobody. */
struct frame_beat {
    int64_t sent, heard, credit;
};
void frame_beat(const struct frame_beat *beat, struct buffer *out); /* appends */
int frame_beat_read(const struct frame *frame, struct frame_beat *beat);

int frame_output(const struct frame *frame, uint32_t *rank, int *stream, const uint8_t **bytes, size_t *size);

#endif
