/* The room of an array is the power of two above its count. The allocator knows how large a block is, so that
 * an array that came from elsewhere, with room for its items alone, may grow like any other. */
#include "base/array.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int array_grow(void *items, size_t n, size_t size) {
    void *old;
    memcpy(&old, items, sizeof old); /* of whatever type */
    size_t room = 1, bytes;
    if (n > SIZE_MAX / 4) return -ENOMEM;
    while (room <= n)
        room *= 2;
    if (__builtin_mul_overflow(room, size, &bytes) || bytes > PTRDIFF_MAX) return -ENOMEM;
    if (old != NULL && malloc_usable_size(old) >= (n + 1) * size) return 0;
    void *grown = realloc(old, bytes);
    if (grown == NULL) return -ENOMEM;
    memcpy(items, &grown, sizeof grown);
    return 0;
}
