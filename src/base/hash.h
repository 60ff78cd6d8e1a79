/* A map from strings to pointers or numbers; open addressing, keys copied, insertion order kept. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash; /* opaque */

struct hash *hash_create(void);       /* NULL when memory is short */
void hash_destroy(struct hash *hash); /* NULL is fine; values are the caller's */

/* 1 when the key was new, 0 when its value was replaced, -ENOMEM. */
int hash_set(struct hash *hash, const char *key, uintptr_t value);

/* Pointer to the value in place, NULL when absent; valid until the next hash_set. */
uintptr_t *hash_get(const struct hash *hash, const char *key);

/* 1 when it was there. Removal keeps the order of the others. */
int hash_remove(struct hash *hash, const char *key);

size_t hash_size(const struct hash *hash);

/* Walks in insertion order: start with *at = 0; NULL at the end. The key is borrowed until the next change. */
const char *hash_next(const struct hash *hash, size_t *at, uintptr_t *value);

#endif
