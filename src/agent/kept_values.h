/* What the workers of a node gave to the store, for another controller (adrift.h): values that were set, and
 * sums of what was added. Too much of it, or what would not do there, is lost, and then nothing is kept any
 * more. */
#ifndef AGENT_KEPT_VALUES_H
#define AGENT_KEPT_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Bytes that all of it takes in a message at most. */
enum { KEPT_VALUES_MAX = 32 << 10 };

struct kept_value {
    char *key, *value; /* owned; no value: only added to */
    size_t size;
    int64_t sum;
};

struct kept_values {   /* zero-initialised */
    struct hash *keys; /* key -> index of */
    struct kept_value *items;
    size_t n;
    size_t bytes; /* in a message, at most */
    bool lost;
};

void kept_values_set(struct kept_values *values, const char *key, const void *bytes, size_t size);
/* `delta`: a number's text. */
void kept_values_add(struct kept_values *values, const char *key, const void *delta, size_t size);
void kept_values_lose(struct kept_values *values);
void kept_values_done(struct kept_values *values); /* they are as at first again */

#endif
