/* What the two halves of checkpoint_copy share: the tree (copy.c) and one regular file of it (copy_file.c). */
#ifndef CHECKPOINT_COPY_H
#define CHECKPOINT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "checkpoint/bytes.h"
#include "checkpoint/tree.h"

/* A file from COPY_SYNC_AT_ONCE bytes on is synced when it is written; smaller ones at the end. */
enum { COPY_SYNC_AT_ONCE = 1 << 20 };

struct copy {
    const char *source, *staging; /* for messages */
    int to;                       /* the staging directory */
    bool give;                    /* link files instead of copying them */
    bool may_differ;              /* another rank's file is kept */
    ty_error kept;                /* names the first of these; code 0: there is none */
    struct stat to_status;
    uint64_t part; /* in the name of the file that is being written; 0: none was yet */
    struct bytes bytes;
    struct buffer made; /* paths in the staging directory, a NUL after each, in the order of their making */
    size_t n_made;
    struct buffer *files; /* the JSON list */
};

/* Copies a regular file to its place; what already stands there must be equal. `digest` tells what was
 * copied. 1 when another rank's, which differs, is kept. */
int copy_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest, ty_error *err);

/* Puts a text beside the files, under a name that stands for its content. */
int copy_text(struct copy *copy, const char *path, const struct buffer *text, ty_error *err);

/* Remembers what was made, to be synced or undone. */
int copy_note_made(struct copy *copy, const char *path, ty_error *err);

int copy_fail(const struct copy *copy, const struct tree_entry *entry, int code, ty_error *err);
int copy_fail_conflict(const struct copy *copy, const char *path, ty_error *err);
/* What stands there differs: 1 when it is kept, else the error. */
int copy_give_way(struct copy *copy, const char *path, ty_error *err);

#endif
