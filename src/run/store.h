/* The run's store: values that all workers of an attempt share. Requests are answered at once, when a key
 * comes, when all ranks gathered, or when their time is over. What it holds is limited: a request over a
 * limit is refused with that limit. Pure: the (monotonic) time is given with each call. */
#ifndef RUN_STORE_H
#define RUN_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/idset.h"
#include "base/shared.h"

enum {
    STORE_BYTES_MAX = 512 << 20,  /* of all values and pieces, and of answers on their way */
    STORE_ANSWER_MAX = 256 << 20, /* of what one gather comes to */
    STORE_KEYS_MAX = 1 << 16,
    STORE_WAITERS_MAX = 1 << 16
};

/* FORGET: nobody waits any more for the answer on that channel; it has no answer itself. REPORTS: until every
 * rank that has not ended has made so many reports. */
enum store_operation {
    STORE_SET,
    STORE_GET,
    STORE_WAIT,
    STORE_ADD,
    STORE_GATHER,
    STORE_DELETE,
    STORE_FORGET,
    STORE_REPORTS
};
enum store_status { STORE_OK, STORE_NONE, STORE_TIMEOUT, STORE_INVALID, STORE_FAILED };

struct store_request {
    enum store_operation operation;
    uint32_t rank, node, channel; /* who asks; node and channel come back with the answer */
    const char *key;
    const void *value;
    size_t size;
    nanoseconds timeout; /* negative: none */
    uint64_t reports;    /* of each rank */
};

/* NONE: no such key. TIMEOUT: the value is the idset of the ranks that a gather lacked, or whose reports are
 * missing. INVALID: the request
 * is wrong; FAILED: it is right, but can come to nothing any more; both say why, in words, or nothing where
 * memory is short. The value (NULL: none) is borrowed: the callback may hold it, and those who get the same
 * answer get the same value. The callback may not ask the store. */
typedef void store_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                          struct shared *value);

struct store; /* opaque */

/* `bytes` is where the sizes of values are counted: it outlives the store and whatever of its answers is
 * held. NULL: memory is short. */
struct store *store_create(uint32_t world_size, size_t *bytes, store_answer *answer, void *context);
void store_destroy(struct store *store); /* who still waits is not answered; NULL is fine */

void store_ask(struct store *store, const struct store_request *request, nanoseconds now);

/* True when nobody can get on: every rank that has not ended waits, here or `elsewhere` (NULL: none does),
 * and at least one does here. `*turn` then changes with every request and answer, so that a caller who looks
 * again can tell a stand-still from a moment; `*rank` is the lowest of those who wait for the key that the
 * fewest wait for, and `out` says who waits for what: "ranks 0-2 wait for "a", rank 3 waits for "b", rank 4
 * has ended". */
bool store_is_stuck(const struct store *store, const struct idset *elsewhere, uint64_t *turn, uint32_t *rank,
                    struct buffer *out);

/* A rank has ended: gathers that still lack its piece, now or later, are FAILED at once, and nobody waits for
 * its reports. Short of memory, they wait for their time. */
void store_leave(struct store *store, uint32_t rank);

/* Of an attempt that goes on behind another controller: what its store had, before anybody asks. 0 or
 * -ENOMEM. */
int store_put(struct store *store, const char *key, const void *value, size_t size);
void store_put_reports(struct store *store, uint32_t rank, uint64_t reports);

/* A rank has made another report. */
void store_report(struct store *store, uint32_t rank);

/* No wait runs out before this (monotonic; -1: none does). store_expire answers those whose time is over. */
nanoseconds store_deadline(const struct store *store);
void store_expire(struct store *store, nanoseconds now);

#endif
