/* The bytes of one file: copied with their checksum in the same pass, or only summed. */
#ifndef CHECKPOINT_BYTES_H
#define CHECKPOINT_BYTES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

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

#endif
