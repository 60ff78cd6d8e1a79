/* Arrays that grow at their end, one item after the other, and places in arrays that are sorted. An array is a
 * plain pointer and a count of its owner's; no capacity is kept beside them. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Room for one item more behind the first `n` of an array from malloc, or NULL; a new place is not cleared. 0,
 * or -ENOMEM with the array as it was. */
#define ARRAY_GROW(items, n) array_grow(&(items), (n), sizeof *(items))

/* The same for items of `size` bytes; `items` is the address of the pointer. */
int array_grow(void *items, size_t n, size_t size);

/* Room for n items, one at least, and no more. 0, or -ENOMEM with the array as it was. */
#define ARRAY_RESIZE(items, n) array_resize(&(items), (n), sizeof *(items))
int array_resize(void *items, size_t n, size_t size);

/* An array with a place for each number below `n`, which becomes `wanted` or more, at least twice what it was;
 * new places are zero. 0 also where there are so many; -ENOMEM with the array as it was. */
#define ARRAY_REACH(items, n, wanted) array_reach(&(items), &(n), (wanted), sizeof *(items))
int array_reach(void *items, size_t *n, size_t wanted, size_t size);

/* Of n sorted items of `size` bytes the first that does not stand before the key; n: all of them do. In the
 * header, so that `before` is inlined. */
static inline size_t array_place(const void *items, size_t n, size_t size,
                                 bool (*before)(const void *item, const void *key), const void *key) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (before((const char *)items + middle * size, key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
