/* Files of checkpoints on their way between machines whose storage is not one place: read here in pieces,
 * written there, and no faster than they are taken. How a piece travels is the caller's (Wire__File of wire/).
 *
 * Both ends do what touches files in the thread of a storage (base/storage.h), piece by piece, in order: a job
 * that is posted to the receiving storage behind the last piece finds all files whole. */
#ifndef CHECKPOINT_CARRY_H
#define CHECKPOINT_CARRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/storage.h"

/* CARRY_WINDOW: bytes on their way that were not taken yet. CARRY_COST: what a piece counts beside its
 * bytes. */
enum { CARRY_PIECE = 1 << 20, CARRY_WINDOW = 4 << 20, CARRY_COST = 64 };

struct carry_piece {
    const char *path; /* from the top of the checkpoint */
    const char *link; /* where a symbolic link leads to; NULL: a file */
    const void *bytes;
    size_t size;
    uint64_t offset;
    unsigned mode; /* permissions of the file */
    bool last;     /* of its file */
};

/* No part of it leads out: relative, without empty parts, "." and "..". */
bool carry_path_is_inside(const char *path);

/* -- sending */

struct carry_events {
    void (*piece)(void *context, const struct carry_piece *piece); /* borrowed during the call */
    void (*ended)(void *context, const ty_error *err); /* once: all was taken (code 0), or why not; frees it */
};

struct carry; /* opaque */

/* Begins to read below `top`: the files of a rank's list (JSON, as in a commit), or, where that names none, all
 * that is there. Negative: it did not begin; nothing is called from within. */
int carry_start(struct storage *storage, const char *top, const char *list, const struct carry_events *events,
                void *context, struct carry **out, ty_error *err);
/* The other end has taken so much (sizes and CARRY_COST of each piece), or cannot: the carry fails. */
void carry_taken(struct carry *carry, uint64_t size, const char *error);
void carry_stop(struct carry *carry); /* without a call to `ended`; NULL is fine */

/* -- receiving */

struct carry_place {
    const char *top; /* made when it is missing */
    void (*taken)(void *context, uint64_t number, uint64_t size, const ty_error *err); /* of each, in order */
    void *context;
    uint64_t number; /* the caller's, for `taken` */
};

/* Writes a piece. `*bytes`, the memory that its bytes are (of malloc, or of base/block.h), is taken over and
 * cleared, unless this fails. A file is synced behind its last. */
int carry_put(struct storage *storage, const struct carry_place *place, const struct carry_piece *piece,
              uint8_t **bytes, ty_error *err);

#endif
