/* A list of "K=V" with an index by name. A removed variable leaves no gap: the last one takes its place. Each
 * text is a copy of its own, so that lists that it was made of may go. The process's own environment is not
 * touched: setenv is not for a process with threads. */
#include "base/environment.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"

void environment_done(struct environment *environment) {
    for (size_t i = 0; i < environment->n; i++)
        free(environment->items[i]);
    free(environment->items);
    hash_destroy(environment->index);
    *environment = (struct environment){0};
}

static int remove_name(struct environment *environment, const char *name) {
    uintptr_t *at = environment->index == NULL ? NULL : hash_get(environment->index, name);
    if (at == NULL) return 0;
    size_t position = (size_t)*at;
    char *last = environment->items[environment->n - 1];
    CLEANUP_FREE char *last_name = strndup(last, (size_t)(strchr(last, '=') - last));
    if (last_name == NULL) return -ENOMEM;
    free(environment->items[position]);
    environment->items[position] = last;
    environment->items[--environment->n] = NULL;
    if (position < environment->n) (void)hash_set(environment->index, last_name, position);
    (void)hash_remove(environment->index, name);
    return 0;
}

int environment_set(struct environment *environment, const char *name, const char *value) {
    if (value == NULL) return remove_name(environment, name);
    if (environment->index == NULL && (environment->index = hash_create()) == NULL) return -ENOMEM;
    if (ARRAY_GROW(environment->items, environment->n + 1) < 0) return -ENOMEM; /* and the NULL behind it */
    char *item = str_format("%s=%s", name, value);
    if (item == NULL) return -ENOMEM;
    uintptr_t *at = hash_get(environment->index, name);
    if (at != NULL) {
        free(environment->items[*at]);
        environment->items[*at] = item;
        return 0;
    }
    if (hash_set(environment->index, name, environment->n) < 0) {
        free(item);
        return -ENOMEM;
    }
    environment->items[environment->n++] = item;
    environment->items[environment->n] = NULL;
    return 0;
}

int environment_add(struct environment *environment, char *const *list) {
    for (; *list != NULL; list++) {
        const char *equals = strchr(*list, '=');
        if (equals == NULL || equals == *list) continue;
        CLEANUP_FREE char *name = strndup(*list, (size_t)(equals - *list));
        if (name == NULL || environment_set(environment, name, equals + 1) < 0) return -ENOMEM;
    }
    return 0;
}
