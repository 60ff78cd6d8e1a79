/* Arrays that grow at their end, one item after the other. The array is a plain pointer and a count of its
 * owner's; no capacity is kept beside them. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>

/* Room for one item more behind the first `n` of an array from malloc, or NULL; a new place is not cleared. 0,
 * or -ENOMEM with the array as it was. */
#define ARRAY_GROW(items, n) array_grow(&(items), (n), sizeof *(items))

/* The same for items of `size` bytes; `items` is the address of the pointer. */
int array_grow(void *items, size_t n, size_t size);

#endif
