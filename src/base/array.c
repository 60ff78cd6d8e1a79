/* Arrays that grow. That of array_grow has a room of the power of two above its count; the allocator knows how
 * large a block is, so that an array that came from elsewhere, with room for its items alone, may grow like any
 * other. The others are as large as they are asked to be. What an array holds is its owner's to free. */
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

int array_resize(void *items, size_t n, size_t size) {
    void *old;
    memcpy(&old, items, sizeof old);
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX) return -ENOMEM;
    void *resized = realloc(old, bytes > 0 ? bytes : 1); /* of none it would free the array */
    if (resized == NULL) return -ENOMEM;
    memcpy(items, &resized, sizeof resized);
    return 0;
}

int array_reach(void *items, size_t *n, size_t wanted, size_t size) {
    char *places;
    if (wanted <= *n) return 0;
    if (wanted < 2 * *n) wanted = 2 * *n;
    if (array_resize(items, wanted, size) < 0) return -ENOMEM;
    memcpy(&places, items, sizeof places);
    memset(places + *n * size, 0, (wanted - *n) * size);
    *n = wanted;
    return 0;
}
