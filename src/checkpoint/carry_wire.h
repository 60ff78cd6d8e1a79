/* A piece of a file as a message between machines (Wire__File), and back. Both ends of a run send and receive
 * pieces: the agent what its ranks wrote, the controller the checkpoint that an attempt begins with. The header
 * alone knows both: carry.c says nothing of messages, and the library of workers, which has it, none. */
#ifndef CHECKPOINT_CARRY_WIRE_H
#define CHECKPOINT_CARRY_WIRE_H

#include "checkpoint/carry.h"
#include "wire/trainyard.pb-c.h"

/* Borrows from `piece`; `carry` and `path` of the message are the sender's to say. */
static inline Wire__File carry_message(const struct carry_piece *piece) {
    Wire__File body = WIRE__FILE__INIT;
    if (piece->link != NULL) body.link = (char *)piece->link;
    body.bytes = (ProtobufCBinaryData){piece->size, (uint8_t *)piece->bytes};
    body.offset = piece->offset;
    body.mode = piece->mode;
    body.last = piece->last;
    return body;
}

/* Borrows from `file` and `path`, which is from the top of the checkpoint. */
static inline struct carry_piece carry_piece_of(const Wire__File *file, const char *path) {
    return (struct carry_piece){.path = path,
                                .link = file->link[0] != '\0' ? file->link : NULL,
                                .bytes = file->bytes.data,
                                .size = file->bytes.len,
                                .offset = file->offset,
                                .mode = file->mode,
                                .last = file->last};
}

#endif
