/* Keys map to entries; an entry holds a value, the waiters for it, or a gather in progress. */
#include "run/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/idset.h"
#include "base/str.h"

struct waiter {
    struct waiter *next;
    uint32_t node, channel, rank;
    nanoseconds deadline; /* -1: none */
};

struct piece {
    void *value; /* NULL until the rank came, then malloc'd */
    uint32_t size;
    bool waiting; /* false: its time was over; its piece counts all the same, and it may ask again */
};

/* What a gather came to, kept for the ranks that were not waiting at that moment. */
struct gathered {
    void *value;
    size_t size;
    bool *owed; /* by rank */
    uint32_t n_owed;
};

struct entry {
    bool has_value;
    void *value;
    size_t size;
    struct waiter *waiters;
    struct piece *pieces; /* world_size of them while a gather goes on */
    uint32_t n_came;
    struct gathered last;
};

struct store {
    struct hash *entries;
    uint32_t world_size;
    struct idset ended; /* ranks from which nothing comes any more */
    store_answer *answer;
    void *context;
    nanoseconds deadline; /* no wait runs out before this; -1: none runs out */
    uint64_t turn;        /* requests and answers so far */
};

struct store *store_create(uint32_t world_size, store_answer *answer, void *context) {
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL) return NULL;
    *store = (struct store){.entries = hash_create(),
                            .world_size = world_size,
                            .answer = answer,
                            .context = context,
                            .deadline = -1};
    if (store->entries == NULL) {
        free(store);
        return NULL;
    }
    return store;
}

static void free_pieces(struct entry *entry, uint32_t world_size) {
    for (uint32_t i = 0; entry->pieces != NULL && i < world_size; i++)
        free(entry->pieces[i].value);
    free(entry->pieces);
    entry->pieces = NULL;
    entry->n_came = 0;
}

static void forget_gathered(struct gathered *last) {
    free(last->value);
    free(last->owed);
    *last = (struct gathered){0};
}

static void free_entry(struct entry *entry, uint32_t world_size) {
    while (entry->waiters != NULL) {
        struct waiter *next = entry->waiters->next;
        free(entry->waiters);
        entry->waiters = next;
    }
    free_pieces(entry, world_size);
    forget_gathered(&entry->last);
    free(entry->value);
    free(entry);
}

void store_destroy(struct store *store) {
    if (store == NULL) return;
    size_t at = 0;
    uintptr_t value;
    while (hash_next(store->entries, &at, &value) != NULL)
        free_entry((struct entry *)value, store->world_size);
    idset_done(&store->ended);
    hash_destroy(store->entries);
    free(store);
}

static struct entry *find_entry(const struct store *store, const char *key) {
    uintptr_t *value = hash_get(store->entries, key);
    return value == NULL ? NULL : (struct entry *)*value;
}

static struct entry *make_entry(struct store *store, const char *key) {
    struct entry *entry = find_entry(store, key);
    if (entry != NULL) return entry;
    entry = calloc(1, sizeof *entry);
    if (entry != NULL && hash_set(store->entries, key, (uintptr_t)entry) < 0) {
        free(entry);
        entry = NULL;
    }
    return entry;
}

static void answer(struct store *store, const struct store_request *to, enum store_status status,
                   const void *value, size_t size) {
    store->answer(store->context, to->node, to->channel, status, value, size);
}

static void refuse(struct store *store, const struct store_request *to, const char *why) {
    answer(store, to, STORE_INVALID, why, strlen(why));
}

static const char no_memory[] = "the store is out of memory";

static void fail_memory(struct store *store, const struct store_request *to) {
    answer(store, to, STORE_FAILED, no_memory, sizeof no_memory - 1);
}

/* Everybody who waits for the entry gets the same answer. */
static void answer_waiters(struct store *store, struct entry *entry, enum store_status status,
                           const void *value, size_t size) {
    struct waiter *waiter = entry->waiters;
    entry->waiters = NULL;
    while (waiter != NULL) {
        struct waiter *next = waiter->next;
        store->answer(store->context, waiter->node, waiter->channel, status, value, size);
        free(waiter);
        waiter = next;
    }
}

static bool add_waiter(struct store *store, struct entry *entry, const struct store_request *request,
                       nanoseconds now) {
    struct waiter *waiter = malloc(sizeof *waiter);
    if (waiter == NULL) return false;
    *waiter = (struct waiter){entry->waiters, request->node, request->channel, request->rank,
                              request->timeout < 0 ? -1 : now + request->timeout};
    entry->waiters = waiter;
    if (waiter->deadline >= 0 && (store->deadline < 0 || waiter->deadline < store->deadline))
        store->deadline = waiter->deadline;
    return true;
}

static bool put_value(struct entry *entry, const void *value, size_t size) {
    void *copy = malloc(size + 1);
    if (copy == NULL) return false;
    if (size > 0) memcpy(copy, value, size);
    free(entry->value);
    entry->value = copy;
    entry->size = size;
    entry->has_value = true;
    return true;
}

static void set(struct store *store, const struct store_request *request) {
    struct entry *entry = make_entry(store, request->key);
    if (entry == NULL || !put_value(entry, request->value, request->size)) {
        fail_memory(store, request);
        return;
    }
    answer_waiters(store, entry, STORE_OK, entry->value, entry->size);
    answer(store, request, STORE_OK, NULL, 0);
}

static void get(struct store *store, const struct store_request *request, nanoseconds now) {
    struct entry *entry = find_entry(store, request->key);
    if (entry != NULL && entry->has_value) {
        answer(store, request, STORE_OK, entry->value, entry->size);
        return;
    }
    if (request->operation == STORE_GET) {
        answer(store, request, STORE_NONE, NULL, 0);
        return;
    }
    entry = make_entry(store, request->key);
    if (entry == NULL || !add_waiter(store, entry, request, now)) fail_memory(store, request);
}

static void add(struct store *store, const struct store_request *request) {
    char text[32] = "";
    int64_t delta, sum = 0;
    bool fits = request->size < sizeof text;
    if (fits && request->size > 0) memcpy(text, request->value, request->size);
    if (!fits || !str_to_int64(text, INT64_MIN, INT64_MAX, &delta)) {
        refuse(store, request, "add takes a whole number");
        return;
    }
    struct entry *entry = make_entry(store, request->key);
    if (entry != NULL && entry->has_value) {
        ((char *)entry->value)[entry->size] = '\0';
        if (!str_to_int64(entry->value, INT64_MIN, INT64_MAX, &sum)) {
            refuse(store, request, "the key holds something else than a whole number");
            return;
        }
    }
    if (__builtin_add_overflow(sum, delta, &sum)) {
        refuse(store, request, "the sum does not fit in 64 bits");
        return;
    }
    int size = snprintf(text, sizeof text, "%" PRId64, sum);
    if (entry == NULL || !put_value(entry, text, (size_t)size)) {
        fail_memory(store, request);
        return;
    }
    answer_waiters(store, entry, STORE_OK, entry->value, entry->size);
    answer(store, request, STORE_OK, text, (size_t)size);
}

/* Keeps the answer for the ranks that are not waiting for it just now. Without memory it is lost to them, and they wait
 * until the attempt ends. */
static void keep_gathered(struct store *store, struct entry *entry, const struct buffer *all) {
    struct gathered last = {.owed = calloc(store->world_size, sizeof *last.owed),
                            .value = malloc(all->size + 1)};
    for (uint32_t i = 0; last.owed != NULL && i < store->world_size; i++) {
        last.owed[i] = !entry->pieces[i].waiting;
        last.n_owed += last.owed[i];
    }
    forget_gathered(&entry->last);
    if (last.owed == NULL || last.value == NULL || last.n_owed == 0) {
        forget_gathered(&last);
        return;
    }
    memcpy(last.value, all->data, all->size);
    last.size = all->size;
    entry->last = last;
}

static void answer_gather(struct store *store, struct entry *entry) {
    struct buffer all = {0};
    for (uint32_t i = 0; i < store->world_size; i++) {
        uint32_t size = entry->pieces[i].size;
        uint8_t header[4] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16), (uint8_t)(size >> 24)};
        buffer_append(&all, header, sizeof header);
        buffer_append(&all, entry->pieces[i].value, size);
    }
    if (all.failed) {
        answer_waiters(store, entry, STORE_FAILED, no_memory, sizeof no_memory - 1);
    } else {
        keep_gathered(store, entry, &all);
        answer_waiters(store, entry, STORE_OK, all.data, all.size);
    }
    buffer_done(&all);
    free_pieces(entry, store->world_size);
}

/* "rank 1 has", "ranks 0,2 have". */
static void name_ranks(const struct idset *ranks, const char *one, const char *several, struct buffer *out) {
    bool alone = idset_count(ranks) == 1;
    buffer_text(out, alone ? "rank " : "ranks ");
    idset_format(ranks, out);
    buffer_printf(out, " %s", alone ? one : several);
}

/* Those who wait for a piece of a rank that has ended are told; the pieces stay, for whoever asks again. */
static void refuse_without_ended(struct store *store, struct entry *entry) {
    struct idset missing = {0};
    for (int64_t rank = -1; (rank = idset_next(&store->ended, rank)) != IDSET_END;)
        if (entry->pieces[rank].value == NULL) (void)idset_add(&missing, rank);
    if (idset_count(&missing) > 0) {
        struct buffer why = {0};
        name_ranks(&missing, "has", "have", &why);
        buffer_text(&why, " ended without this call: every worker must make it as often as the others");
        for (uint32_t i = 0; i < store->world_size; i++)
            entry->pieces[i].waiting = false;
        answer_waiters(store, entry, STORE_FAILED, why.data, why.size);
        buffer_done(&why);
    }
    idset_done(&missing);
}

void store_leave(struct store *store, uint32_t rank) {
    if (rank >= store->world_size || idset_add(&store->ended, rank) < 0) return;
    size_t at = 0;
    uintptr_t value;
    while (hash_next(store->entries, &at, &value) != NULL) {
        struct entry *entry = (struct entry *)value;
        if (entry->pieces != NULL && entry->waiters != NULL) refuse_without_ended(store, entry);
    }
}

/* A rank whose time was over asks again, and meanwhile all came. */
static bool answer_late(struct store *store, struct entry *entry, const struct store_request *request) {
    struct gathered *last = &entry->last;
    if (last->n_owed == 0 || !last->owed[request->rank]) return false;
    last->owed[request->rank] = false;
    answer(store, request, STORE_OK, last->value, last->size);
    if (--last->n_owed == 0) forget_gathered(last);
    return true;
}

/* The first piece of a rank counts, however often it asks. */
static bool put_piece(struct entry *entry, struct piece *piece, const struct store_request *request) {
    piece->waiting = true;
    if (piece->value != NULL) return true;
    piece->value = malloc(request->size + 1);
    if (piece->value == NULL) return false;
    if (request->size > 0) memcpy(piece->value, request->value, request->size);
    piece->size = (uint32_t)request->size;
    entry->n_came++;
    return true;
}

static void gather(struct store *store, const struct store_request *request, nanoseconds now) {
    if (request->rank >= store->world_size) {
        refuse(store, request, "no such rank");
        return;
    }
    struct entry *entry = make_entry(store, request->key);
    if (entry != NULL && entry->pieces == NULL)
        entry->pieces = calloc(store->world_size, sizeof *entry->pieces);
    if (entry == NULL || entry->pieces == NULL) {
        fail_memory(store, request);
        return;
    }
    if (answer_late(store, entry, request)) return;
    struct piece *piece = &entry->pieces[request->rank];
    if (piece->waiting) {
        refuse(store, request, "this rank has already given its part");
        return;
    }
    if (!add_waiter(store, entry, request, now)) {
        fail_memory(store, request);
        return;
    }
    if (!put_piece(entry, piece, request)) {
        struct waiter *added = entry->waiters;
        entry->waiters = added->next;
        free(added);
        piece->waiting = false;
        fail_memory(store, request);
        return;
    }
    if (entry->n_came == store->world_size)
        answer_gather(store, entry);
    else
        refuse_without_ended(store, entry);
}

static void drop(struct store *store, const struct store_request *request) {
    struct entry *entry = find_entry(store, request->key);
    bool had = entry != NULL && entry->has_value;
    if (had) {
        entry->has_value = false;
        free(entry->value);
        entry->value = NULL;
        if (entry->waiters == NULL && entry->pieces == NULL) {
            (void)hash_remove(store->entries, request->key);
            free_entry(entry, store->world_size);
        }
    }
    answer(store, request, had ? STORE_OK : STORE_NONE, NULL, 0);
}

void store_ask(struct store *store, const struct store_request *request, nanoseconds now) {
    store->turn++;
    switch (request->operation) {
    case STORE_SET:
        set(store, request);
        break;
    case STORE_GET:
    case STORE_WAIT:
        get(store, request, now);
        break;
    case STORE_ADD:
        add(store, request);
        break;
    case STORE_GATHER:
        gather(store, request, now);
        break;
    case STORE_DELETE:
        drop(store, request);
        break;
    default:
        refuse(store, request, "no such operation");
    }
}

/* Who waits for one key; adds them to `all`. The number of them. */
static size_t name_waiters(const struct entry *entry, const char *key, struct idset *all, uint32_t *lowest,
                           struct buffer *out) {
    struct idset ranks = {0};
    for (const struct waiter *waiter = entry->waiters; waiter != NULL; waiter = waiter->next) {
        (void)idset_add(&ranks, waiter->rank);
        (void)idset_add(all, waiter->rank);
    }
    size_t n = idset_count(&ranks);
    if (n > 0) {
        *lowest = (uint32_t)idset_next(&ranks, -1);
        buffer_text(out, out->size > 0 ? ", " : "");
        name_ranks(&ranks, "waits", "wait", out);
        buffer_printf(out, " for \"%s\"", key);
    }
    idset_done(&ranks);
    return n;
}

bool store_is_stuck(const struct store *store, const struct idset *elsewhere, uint64_t *turn, uint32_t *rank,
                    struct buffer *out) {
    struct idset waiting = {0};
    size_t at = 0, fewest = SIZE_MAX;
    uintptr_t value;
    const char *key;
    while ((key = hash_next(store->entries, &at, &value)) != NULL) {
        uint32_t lowest = 0;
        size_t n = name_waiters((const struct entry *)value, key, &waiting, &lowest, out);
        if (n == 0 || n > fewest || (n == fewest && lowest > *rank)) continue;
        fewest = n;
        *rank = lowest;
    }
    bool stuck = fewest != SIZE_MAX;
    for (uint32_t i = 0; i < store->world_size && stuck; i++)
        stuck = idset_has(&waiting, i) || idset_has(&store->ended, i) ||
                (elsewhere != NULL && idset_has(elsewhere, i));
    if (idset_count(&store->ended) > 0) {
        buffer_text(out, ", ");
        name_ranks(&store->ended, "has ended", "have ended", out);
    }
    idset_done(&waiting);
    *turn = store->turn;
    return stuck;
}

nanoseconds store_deadline(const struct store *store) {
    return store->deadline;
}

/* The ranks that did not come to a gather, as an idset. */
static void list_absent(const struct store *store, const struct entry *entry, struct buffer *out) {
    struct idset absent = {0};
    for (uint32_t i = 0; i < store->world_size; i++)
        if (entry->pieces[i].value == NULL) (void)idset_add(&absent, i);
    idset_format(&absent, out);
    idset_done(&absent);
}

/* Answers the waiters whose time is over; the earliest deadline of the others, -1 without. */
static nanoseconds expire_entry(struct store *store, struct entry *entry, nanoseconds now) {
    struct buffer absent = {0};
    nanoseconds first = -1;
    for (struct waiter **link = &entry->waiters; *link != NULL;) {
        struct waiter *waiter = *link;
        if (waiter->deadline < 0 || waiter->deadline > now) {
            if (waiter->deadline >= 0 && (first < 0 || waiter->deadline < first)) first = waiter->deadline;
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        store->turn++;
        if (entry->pieces != NULL) {
            if (absent.size == 0) list_absent(store, entry, &absent);
            entry->pieces[waiter->rank].waiting = false;
        }
        store->answer(store->context, waiter->node, waiter->channel, STORE_TIMEOUT, absent.data, absent.size);
        free(waiter);
    }
    buffer_done(&absent);
    return first;
}

void store_expire(struct store *store, nanoseconds now) {
    nanoseconds first = -1;
    size_t at = 0;
    uintptr_t value;
    while (hash_next(store->entries, &at, &value) != NULL) {
        nanoseconds deadline = expire_entry(store, (struct entry *)value, now);
        if (deadline >= 0 && (first < 0 || deadline < first)) first = deadline;
    }
    store->deadline = first;
}
