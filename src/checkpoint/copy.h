/* What the parts of checkpoint_copy share: the tree and each file of it (copy.c), and how
 * what was copied gets to the other ranks' files (gather.c). */
#ifndef CHECKPOINT_COPY_H
#define CHECKPOINT_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "checkpoint/tree.h"

/* The bytes of one file: copied with their checksum in the same pass, or only summed. */

enum { DIGEST_SIZE = 33, BYTES_ROOM = 4 << 20 };

/* Size and XXH3-128 of a file's bytes; the hash as 32 hex digits in its canonical order. */
struct digest {
    int64_t size;
    char xxh3[DIGEST_SIZE];
};

bool digest_equal(const struct digest *a, const struct digest *b);

struct bytes {
    char *room;                /* owned, BYTES_ROOM, aligned */
    bool cannot_clone;         /* this pair of file systems has refused to share blocks */
    const atomic_bool *enough; /* once true nobody wants to know: -ECANCELED; NULL: never */
};

int bytes_init(struct bytes *bytes); /* 0 or -ENOMEM */
void bytes_done(struct bytes *bytes);

/* All of `from`, which has this status, into the empty file `to`: blocks shared where the file system can
 * (reflink), otherwise read once and written, holes kept. What is written starts on its way to the disk at
 * once. 0 or -errno. */
int bytes_copy(struct bytes *bytes, int from, const struct stat *status, int to, struct digest *digest);

void bytes_digest_memory(const void *data, size_t size, struct digest *digest);
/* 0 or -errno. */
int bytes_digest(struct bytes *bytes, int fd, struct digest *digest);

/* A file from COPY_SYNC_AT_ONCE bytes on is synced when it is written; smaller ones at the end. */
enum { COPY_SYNC_AT_ONCE = 1 << 20 };

/* MINE: only this rank's so far. SHARED: another rank's, which is equal, stands there. GAVE_WAY: another's,
 * which differs. */
enum copied_state { COPIED_MINE, COPIED_SHARED, COPIED_GAVE_WAY };

/* One thing that was copied. */
struct copied {
    char *path;           /* below the staging directory; owned */
    char *target;         /* of a link; NULL: it is none; owned */
    bool directory;       /* or a file with this digest */
    struct digest digest; /* of the copy */
    enum copied_state state;
};

struct copy {
    const char *source, *staging; /* for messages */
    int own;                      /* this rank's directory, as long as it is one of its own; else -1 */
    struct stat own_status;       /* when it was made */
    int to;                       /* the staging directory; -1 before copy_gather */
    bool give;                    /* link files instead of copying them */
    bool may_differ;              /* another rank's file is kept */
    ty_error kept;                /* names the first of these; code 0: there is none */
    struct bytes bytes;
    struct copied *copied; /* a directory before what is in it */
    size_t n;
};

/* Makes this rank's directory, which lies at `own`, the staging directory where no other rank was first;
 * otherwise moves each entry that is new there, and the others must be equal or give way. Where it fails some
 * may have been moved. */
int copy_gather(struct copy *copy, const char *own, ty_error *err);
/* Takes back what is in the staging directory by now; directories that hold files of other ranks stay. */
void copy_withdraw(const struct copy *copy);

#endif
