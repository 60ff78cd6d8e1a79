/* What workers gave to the run's store since the launch, kept for a controller that may adopt them: the last
 * value of each key, found by its key. Where that is too much, or cannot be known here, all is lost, and with
 * it the adoption. Nothing is answered from it: the store is the controller's (run/store.c). */
#include "agent/worker_channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

/* Of a Wire__AdriftValue: tags and lengths, or a sum in place of a value. */
enum { EACH_TAKES = 20 };

void kept_values_done(struct kept_values *values) {
    for (size_t i = 0; i < values->n; i++) {
        free(values->items[i].key);
        free(values->items[i].value);
    }
    free(values->items);
    hash_destroy(values->keys);
    *values = (struct kept_values){0};
}

void kept_values_lose(struct kept_values *values) {
    kept_values_done(values);
    values->lost = true;
}

/* Of this key, which may be new; NULL: all are lost, since a value of so many bytes is too much. */
static struct kept_value *make_room(struct kept_values *values, const char *key, size_t size) {
    if (values->lost) return NULL;
    const uintptr_t *index = values->keys != NULL ? hash_get(values->keys, key) : NULL;
    struct kept_value *value = index != NULL ? &values->items[*index] : NULL;
    char *copy = index != NULL ? NULL : strdup(key);
    if (copy != NULL && values->keys == NULL) values->keys = hash_create();
    if (copy != NULL && values->keys != NULL && ARRAY_GROW(values->items, values->n) == 0 &&
        hash_set(values->keys, key, values->n) >= 0) {
        value = &values->items[values->n++];
        *value = (struct kept_value){.key = TAKE(copy)};
        values->bytes += strlen(key) + EACH_TAKES;
    }
    free(copy);
    if (value != NULL && values->bytes - value->size + size <= KEPT_VALUES_MAX) return value;
    kept_values_lose(values);
    return NULL;
}

void kept_values_set(struct kept_values *values, const char *key, const void *bytes, size_t size) {
    struct kept_value *value = make_room(values, key, size);
    if (value == NULL) return;
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        kept_values_lose(values);
        return;
    }
    if (size > 0) memcpy(copy, bytes, size);
    values->bytes += size - value->size;
    free(value->value);
    value->value = copy;
    value->size = size;
}

/* What is set and added to is known to the store alone. */
void kept_values_add(struct kept_values *values, const char *key, const void *delta, size_t size) {
    char text[32] = "";
    int64_t number = 0;
    struct kept_value *value = make_room(values, key, 0);
    if (value == NULL) return;
    bool fits = size < sizeof text;
    if (fits && size > 0) memcpy(text, delta, size);
    if (value->value != NULL || !fits || !str_to_int64(text, INT64_MIN, INT64_MAX, &number) ||
        __builtin_add_overflow(value->sum, number, &value->sum))
        kept_values_lose(values);
}
