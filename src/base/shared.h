/* A run of bytes with several holders: filled once, not changed from then on, and freed when the last holder
 * lets go. Holders are of one thread. */
#ifndef BASE_SHARED_H
#define BASE_SHARED_H

#include <stddef.h>

struct shared {
    size_t references;
    size_t *account; /* the sum of the sizes of all that are counted together, or NULL; outlives the bytes */
    size_t size;
    char bytes[]; /* a NUL behind them */
};

/* Room for `size` bytes, which the caller holds and fills before anybody else sees it. NULL: memory is
 * short. */
struct shared *shared_create(size_t size, size_t *account);
struct shared *shared_copy(const void *bytes, size_t size, size_t *account);

/* Another holder of the same bytes. NULL is fine in both. */
struct shared *shared_hold(struct shared *shared);
void shared_release(struct shared *shared);

#endif
