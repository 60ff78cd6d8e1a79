/* The room of an array is the power of two above its count: the allocator answers most calls with the block as
 * it is, and an array that came from elsewhere, with room for its items alone, may grow like any other. */
#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int array_grow(void *items, size_t n, size_t size) {
    void *old;
    memcpy(&old, items, sizeof old); /* of whatever type */
    size_t room = 1;
    while (room <= n)
        room *= 2;
    void *grown = reallocarray(old, room, size);
    if (grown == NULL) return -ENOMEM;
    memcpy(items, &grown, sizeof grown);
    return 0;
}
