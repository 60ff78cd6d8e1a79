/* The map of hash.h: entries lie in one array in the order of insertion, and a table of slots beside it holds
 * their numbers. A removed entry keeps its slot, without a key, until the table is next rebuilt, so that
 * probing still passes over it and a walk may remove what it visits. */
#include "base/hash.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

struct hash_entry {
    char *key; /* owned; NULL when removed */
    uint64_t code;
    uintptr_t value;
};

struct hash {
    struct hash_entry *entries;
    size_t n_entries; /* removed ones too */
    size_t n_live;
    uint32_t *slots; /* 0, or the number of an entry plus 1 */
    size_t n_slots;  /* a power of two, or 0; entries has room for three quarters of it */
};

struct hash *hash_create(void) {
    return calloc(1, sizeof(struct hash));
}

void hash_destroy(struct hash *hash) {
    if (hash == NULL) return;
    for (size_t i = 0; i < hash->n_entries; i++)
        free(hash->entries[i].key);
    free(hash->entries);
    free(hash->slots);
    free(hash);
}

/* The slot of `key`, or the free one in which it belongs. */
static size_t find_slot(const struct hash *hash, const char *key, uint64_t code) {
    size_t slot = code & (hash->n_slots - 1);
    for (; hash->slots[slot] != 0; slot = (slot + 1) & (hash->n_slots - 1)) {
        const struct hash_entry *entry = &hash->entries[hash->slots[slot] - 1];
        if (entry->key != NULL && entry->code == code && strcmp(entry->key, key) == 0) break;
    }
    return slot;
}

static struct hash_entry *find(const struct hash *hash, const char *key) {
    if (hash->n_slots == 0) return NULL;
    size_t slot = find_slot(hash, key, str_hash(key, strlen(key)));
    return hash->slots[slot] == 0 ? NULL : &hash->entries[hash->slots[slot] - 1];
}

/* Makes room for one more entry, dropping the removed ones. */
static bool grow(struct hash *hash) {
    size_t n_slots = 8;
    while (n_slots / 2 < hash->n_live + 1)
        n_slots *= 2;
    struct hash_entry *entries = malloc(n_slots / 4 * 3 * sizeof *entries);
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (entries == NULL || slots == NULL || n_slots > UINT32_MAX) {
        free(entries);
        free(slots);
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < hash->n_entries; i++) {
        if (hash->entries[i].key == NULL) continue;
        size_t slot = hash->entries[i].code & (n_slots - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (n_slots - 1);
        entries[n++] = hash->entries[i];
        slots[slot] = (uint32_t)n;
    }
    free(hash->entries);
    free(hash->slots);
    *hash = (struct hash){entries, n, n, slots, n_slots};
    return true;
}

int hash_set(struct hash *hash, const char *key, uintptr_t value) {
    struct hash_entry *entry = find(hash, key);
    if (entry != NULL) {
        entry->value = value;
        return 0;
    }
    char *copy = strdup(key);
    if (copy == NULL) return -ENOMEM;
    if (hash->n_entries == hash->n_slots / 4 * 3 && !grow(hash)) {
        free(copy);
        return -ENOMEM;
    }
    uint64_t code = str_hash(key, strlen(key));
    size_t slot = find_slot(hash, key, code);
    hash->entries[hash->n_entries++] = (struct hash_entry){copy, code, value};
    hash->slots[slot] = (uint32_t)hash->n_entries;
    hash->n_live++;
    return 1;
}

uintptr_t *hash_get(const struct hash *hash, const char *key) {
    struct hash_entry *entry = find(hash, key);
    return entry == NULL ? NULL : &entry->value;
}

int hash_remove(struct hash *hash, const char *key) {
    struct hash_entry *entry = find(hash, key);
    if (entry == NULL) return 0;
    free(entry->key);
    entry->key = NULL;
    hash->n_live--;
    return 1;
}

size_t hash_size(const struct hash *hash) {
    return hash->n_live;
}

const char *hash_next(const struct hash *hash, size_t *at, uintptr_t *value) {
    while (*at < hash->n_entries) {
        const struct hash_entry *entry = &hash->entries[(*at)++];
        if (entry->key == NULL) continue;
        if (value != NULL) *value = entry->value;
        return entry->key;
    }
    return NULL;
}
