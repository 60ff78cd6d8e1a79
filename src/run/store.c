/* Keys map to entries; an entry holds a value, the waiters for it, or a gather in progress. An answer is handed
 * on by a callback, possibly before the call returns; nothing waits in here. All that is held counts against
 * one bound, since workers fill the controller's memory. */
#include "run/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idset.h"
#include "base/str.h"

struct waiter {
    struct waiter *next;
    uint32_t node, channel, rank;
    nanoseconds deadline; /* -1: none */
    bool gathers;         /* gave a piece; else it waits for the key's value, or for the reports of all */
};

struct piece {
    struct shared *value; /* NULL until the rank came */
    bool waiting;         /* false: its time was over; its piece counts all the same, and it may ask again */
};

/* What a gather came to, kept for the ranks that were not waiting at that moment. */
struct gathered {
    enum store_status status;
    struct shared *value; /* NULL: memory was short */
    bool *owed;           /* by rank */
    uint32_t n_owed;
};

/* What stands under a key. A key has a value, or a gather, or ranks whose reports are waited for; workers that
 * use one for two of these are served all the same. An entry without any of it, and without waiters, is freed
 * (tidy). */
struct store_entry {
    struct shared *value; /* NULL: not set */
    struct waiter *waiters;
    struct piece *pieces; /* world_size of them while a gather goes on */
    uint32_t n_came;
    size_t came_bytes; /* what their part of the answer takes */
    struct gathered last;
    uint64_t reports;   /* so many of every rank are waited for; 0: none are */
    uint32_t n_awaited; /* ranks that live and have not made them */
};

/* The ranks that lack so many reports, kept until one reports or ends: a thousand ranks may ask at a time. */
struct lacking {
    uint64_t reports; /* 0: nobody asked */
    uint32_t n;
    struct shared *ranks; /* an idset; NULL: memory was short */
};

struct store {
    struct hash *entries;
    uint32_t world_size;
    struct idset ended; /* ranks from which nothing comes any more */
    uint64_t *reports;  /* that each rank has made */
    size_t n_awaiting;  /* entries that wait for reports */
    struct lacking lacking;
    store_answer *answer;
    void *context;
    size_t *bytes; /* that values take, also where others hold them */
    size_t n_waiters;
    nanoseconds deadline; /* no wait runs out before this; -1: none runs out */
    uint64_t turn;        /* requests and answers so far */
};

struct store *store_create(uint32_t world_size, size_t *bytes, store_answer *answer, void *context) {
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL) return NULL;
    *store = (struct store){.entries = hash_create(),
                            .reports = calloc(world_size, sizeof *store->reports),
                            .world_size = world_size,
                            .answer = answer,
                            .context = context,
                            .bytes = bytes,
                            .deadline = -1};
    if (store->entries != NULL && store->reports != NULL) return store;
    store_destroy(store);
    return NULL;
}

/* An array with an item for each rank; it counts like a value. */
static void *make_by_rank(struct store *store, size_t item_size) {
    void *items = calloc(store->world_size, item_size);
    if (items != NULL) *store->bytes += store->world_size * item_size;
    return items;
}

static void free_by_rank(struct store *store, void *items, size_t item_size) {
    if (items != NULL) *store->bytes -= store->world_size * item_size;
    free(items);
}

static void free_pieces(struct store *store, struct store_entry *entry) {
    for (uint32_t i = 0; entry->pieces != NULL && i < store->world_size; i++)
        shared_release(entry->pieces[i].value);
    free_by_rank(store, entry->pieces, sizeof *entry->pieces);
    entry->pieces = NULL;
    entry->n_came = 0;
    entry->came_bytes = 0;
}

static void forget_gathered(struct store *store, struct gathered *last) {
    shared_release(last->value);
    free_by_rank(store, last->owed, sizeof *last->owed);
    *last = (struct gathered){0};
}

static void forget_lacking(struct store *store) {
    shared_release(store->lacking.ranks);
    store->lacking = (struct lacking){0};
}

/* Frees the waiter that `link` points at. */
static void remove_waiter(struct store *store, struct waiter **link) {
    struct waiter *waiter = *link;
    *link = waiter->next;
    free(waiter);
    store->n_waiters--;
}

static void free_entry(struct store *store, struct store_entry *entry) {
    store->n_awaiting -= entry->reports > 0;
    while (entry->waiters != NULL)
        remove_waiter(store, &entry->waiters);
    free_pieces(store, entry);
    forget_gathered(store, &entry->last);
    shared_release(entry->value);
    free(entry);
}

void store_destroy(struct store *store) {
    if (store == NULL) return;
    size_t at = 0;
    uintptr_t value;
    while (store->entries != NULL && hash_next(store->entries, &at, &value) != NULL)
        free_entry(store, (struct store_entry *)value);
    forget_lacking(store);
    free(store->reports);
    idset_done(&store->ended);
    hash_destroy(store->entries);
    free(store);
}

static struct store_entry *find_entry(const struct store *store, const char *key) {
    uintptr_t *value = hash_get(store->entries, key);
    return value == NULL ? NULL : (struct store_entry *)*value;
}

static struct store_entry *make_entry(struct store *store, const char *key) {
    struct store_entry *entry = find_entry(store, key);
    if (entry != NULL) return entry;
    entry = calloc(1, sizeof *entry);
    if (entry != NULL && hash_set(store->entries, key, (uintptr_t)entry) < 0) {
        free(entry);
        entry = NULL;
    }
    return entry;
}

/* A key that nothing stands behind any more takes no room. */
static void tidy(struct store *store, const char *key) {
    struct store_entry *entry = find_entry(store, key);
    if (entry == NULL || entry->value != NULL || entry->waiters != NULL || entry->pieces != NULL ||
        entry->last.n_owed > 0)
        return;
    (void)hash_remove(store->entries, key);
    free_entry(store, entry);
}

static void answer(struct store *store, const struct store_request *to, enum store_status status,
                   struct shared *value) {
    store->answer(store->context, to->node, to->channel, status, value);
}

static void fail_memory(struct store *store, const struct store_request *to) {
    answer(store, to, STORE_FAILED, NULL);
}

static void refuse(struct store *store, const struct store_request *to, const char *why) {
    struct shared *text = shared_copy(why, strlen(why), NULL);
    answer(store, to, text != NULL ? STORE_INVALID : STORE_FAILED, text);
    shared_release(text);
}

/* The text of the buffer, which is emptied. */
static struct shared *take_text(struct buffer *buffer) {
    struct shared *text = buffer->failed ? NULL : shared_copy(buffer->data, buffer->size, NULL);
    buffer_done(buffer);
    return text;
}

static const char what_to_do[] = "use fewer or smaller values, and files for large data";

/* Why `size` more bytes, or what this key needs, have no room; an empty buffer when they have. */
static void check_room(const struct store *store, const char *key, size_t size, struct buffer *why) {
    if (find_entry(store, key) == NULL && hash_size(store->entries) >= STORE_KEYS_MAX)
        buffer_printf(why, "the store holds %d keys, and no more: use fewer keys", STORE_KEYS_MAX);
    else if (*store->bytes + size > STORE_BYTES_MAX)
        buffer_printf(why,
                      "the store holds %zu bytes in %zu keys, and %zu more would take it over its limit of %d "
                      "bytes: %s",
                      *store->bytes, hash_size(store->entries), size, STORE_BYTES_MAX, what_to_do);
}

/* False when there is no room, which was answered. */
static bool has_room(struct store *store, const struct store_request *request, size_t size) {
    struct buffer why = {0};
    check_room(store, request->key, size, &why);
    if (why.size == 0 && !why.failed) return true;
    if (why.failed)
        fail_memory(store, request);
    else
        refuse(store, request, why.data);
    buffer_done(&why);
    return false;
}

/* Everybody who waits for the entry's value, or gathers, gets the same answer. */
static void answer_waiters(struct store *store, struct store_entry *entry, bool gathers,
                           enum store_status status, struct shared *value) {
    for (struct waiter **link = &entry->waiters; *link != NULL;) {
        const struct waiter *waiter = *link;
        if (waiter->gathers == gathers) {
            store->answer(store->context, waiter->node, waiter->channel, status, value);
            remove_waiter(store, link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* False when the request does not wait, which was answered. */
static bool add_waiter(struct store *store, struct store_entry *entry, const struct store_request *request,
                       nanoseconds now) {
    char why[80];
    (void)snprintf(why, sizeof why, "%d requests wait in the store, and no more can: use fewer channels",
                   STORE_WAITERS_MAX);
    bool many = store->n_waiters >= STORE_WAITERS_MAX;
    struct waiter *waiter = many ? NULL : malloc(sizeof *waiter);
    if (many)
        refuse(store, request, why);
    else if (waiter == NULL)
        fail_memory(store, request);
    if (waiter == NULL) return false;
    /* A wait of more than a hundred years is one without end. */
    bool endless = request->timeout < 0 || request->timeout > INT64_MAX / 2;
    *waiter = (struct waiter){entry->waiters,
                              request->node,
                              request->channel,
                              request->rank,
                              endless ? -1 : now + request->timeout,
                              request->operation == STORE_GATHER};
    entry->waiters = waiter;
    store->n_waiters++;
    if (waiter->deadline >= 0 && (store->deadline < 0 || waiter->deadline < store->deadline))
        store->deadline = waiter->deadline;
    return true;
}

/* Whoever waits for the key gets the value; NULL when memory is short. */
static struct shared *put(struct store *store, const struct store_request *request, const void *bytes,
                          size_t size) {
    struct store_entry *entry = make_entry(store, request->key);
    struct shared *value = entry == NULL ? NULL : shared_copy(bytes, size, store->bytes);
    if (value == NULL) return NULL;
    shared_release(entry->value);
    entry->value = value;
    answer_waiters(store, entry, false, STORE_OK, value);
    return value;
}

static void get(struct store *store, const struct store_request *request, nanoseconds now) {
    struct store_entry *entry = find_entry(store, request->key);
    if (entry != NULL && entry->value != NULL) {
        answer(store, request, STORE_OK, entry->value);
        return;
    }
    if (request->operation == STORE_GET) {
        answer(store, request, STORE_NONE, NULL);
        return;
    }
    if (!has_room(store, request, 0)) return;
    entry = make_entry(store, request->key);
    if (entry == NULL)
        fail_memory(store, request);
    else
        (void)add_waiter(store, entry, request, now);
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
    const struct store_entry *entry = find_entry(store, request->key);
    if (entry != NULL && entry->value != NULL &&
        !str_to_int64(entry->value->bytes, INT64_MIN, INT64_MAX, &sum)) {
        refuse(store, request, "the key holds something else than a whole number");
        return;
    }
    if (__builtin_add_overflow(sum, delta, &sum)) {
        refuse(store, request, "the sum does not fit in 64 bits");
        return;
    }
    int size = snprintf(text, sizeof text, "%" PRId64, sum);
    if (!has_room(store, request, (size_t)size)) return;
    struct shared *value = put(store, request, text, (size_t)size);
    answer(store, request, value != NULL ? STORE_OK : STORE_FAILED, value);
}

/* The gather has come to this, for all ranks. */
static void end_gather(struct store *store, struct store_entry *entry, enum store_status status,
                       struct shared *value) {
    /* Keeps the answer for the ranks that are not waiting for it just now. Without memory it is lost to
     * them, and they wait until the attempt ends. */
    struct gathered last = {.status = status, .owed = make_by_rank(store, sizeof *last.owed)};
    for (uint32_t i = 0; last.owed != NULL && i < store->world_size; i++) {
        last.owed[i] = !entry->pieces[i].waiting;
        last.n_owed += last.owed[i];
    }
    forget_gathered(store, &entry->last);
    if (last.n_owed > 0)
        last.value = shared_hold(value);
    else
        forget_gathered(store, &last);
    entry->last = last;
    answer_waiters(store, entry, true, status, value);
    free_pieces(store, entry);
}

/* All pieces in the order of ranks, each behind its size, four bytes with the lowest first (worker/store.c
 * takes them apart). Each piece goes when its bytes are in the answer, so that all are in memory once. */
static void answer_gather(struct store *store, struct store_entry *entry) {
    struct shared *all = shared_create(entry->came_bytes, store->bytes);
    size_t at = 0;
    for (uint32_t i = 0; all != NULL && i < store->world_size; i++) {
        struct shared *piece = TAKE(entry->pieces[i].value);
        uint32_t size = (uint32_t)piece->size;
        uint8_t header[4] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16), (uint8_t)(size >> 24)};
        memcpy(all->bytes + at, header, sizeof header);
        memcpy(all->bytes + at + sizeof header, piece->bytes, size);
        at += sizeof header + size;
        shared_release(piece);
    }
    end_gather(store, entry, all != NULL ? STORE_OK : STORE_FAILED, all);
    shared_release(all);
}

/* "rank 1 has", "ranks 0,2 have". */
static void name_ranks(const struct idset *ranks, const char *one, const char *several, struct buffer *out) {
    bool alone = idset_count(ranks) == 1;
    buffer_text(out, alone ? "rank " : "ranks ");
    idset_format(ranks, out);
    buffer_printf(out, " %s", alone ? one : several);
}

/* Those who wait for a piece of a rank that has ended are told; the pieces stay, for whoever asks again. */
static void refuse_without_ended(struct store *store, struct store_entry *entry) {
    struct idset missing = {0};
    for (int64_t rank = -1; (rank = idset_next(&store->ended, rank)) != IDSET_END;)
        if (entry->pieces[rank].value == NULL) (void)idset_add(&missing, rank);
    if (idset_count(&missing) > 0) {
        struct buffer words = {0};
        name_ranks(&missing, "has", "have", &words);
        buffer_text(&words, " ended without this call: every worker must make it as often as the others");
        for (uint32_t i = 0; i < store->world_size; i++)
            entry->pieces[i].waiting = false;
        struct shared *why = take_text(&words);
        answer_waiters(store, entry, true, STORE_FAILED, why);
        shared_release(why);
    }
    idset_done(&missing);
}

/* The key of those who wait for so many reports of every rank: no worker's has a blank. */
static void reports_key(uint64_t reports, char key[48]) {
    (void)snprintf(key, 48, "report %" PRIu64 " of all ranks", reports);
}

/* One rank less is awaited. */
static void count_down(struct store *store, struct store_entry *entry) {
    if (--entry->n_awaited == 0) answer_waiters(store, entry, false, STORE_OK, NULL);
}

void store_leave(struct store *store, uint32_t rank) {
    if (rank >= store->world_size || idset_has(&store->ended, rank)) return;
    if (idset_add(&store->ended, rank) < 0) return;
    forget_lacking(store);
    size_t at = 0;
    uintptr_t value;
    const char *key;
    while ((key = hash_next(store->entries, &at, &value)) != NULL) {
        struct store_entry *entry = (struct store_entry *)value;
        if (entry->pieces != NULL) refuse_without_ended(store, entry);
        if (entry->reports <= store->reports[rank]) continue;
        count_down(store, entry);
        tidy(store, key);
    }
}

int store_put(struct store *store, const char *key, const void *value, size_t size) {
    const struct store_request request = {.operation = STORE_SET, .key = key};
    return put(store, &request, value, size) != NULL ? 0 : -ENOMEM;
}

void store_put_reports(struct store *store, uint32_t rank, uint64_t reports) {
    if (rank < store->world_size) store->reports[rank] = reports;
}

/* Whoever waits for this number of reports waits under a key of its own: a report touches that one alone. */
void store_report(struct store *store, uint32_t rank) {
    if (rank >= store->world_size) return;
    uint64_t made = ++store->reports[rank];
    forget_lacking(store);
    if (store->n_awaiting == 0 || idset_has(&store->ended, rank)) return;
    char key[48];
    reports_key(made, key);
    struct store_entry *entry = find_entry(store, key);
    if (entry == NULL) return;
    count_down(store, entry);
    tidy(store, key);
}

/* The ranks that live and have not made so many reports. */
static const struct lacking *find_lacking(struct store *store, uint64_t reports) {
    if (store->lacking.reports == reports) return &store->lacking;
    struct idset ranks = {0};
    struct buffer text = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->world_size; i++) {
        if (store->reports[i] >= reports || idset_has(&store->ended, i)) continue;
        n++;
        (void)idset_add(&ranks, i);
    }
    idset_format(&ranks, &text);
    idset_done(&ranks);
    forget_lacking(store);
    store->lacking = (struct lacking){reports, n, take_text(&text)};
    return &store->lacking;
}

/* Waits under a key of its own for each count, which no worker can name, so that all that wait for one count
 * are found, and told, together. */
static void await_reports(struct store *store, const struct store_request *request, nanoseconds now) {
    const struct lacking *lacking = find_lacking(store, request->reports);
    struct store_request with_key = *request;
    char key[48];
    if (lacking->n == 0) {
        answer(store, request, STORE_OK, NULL);
        return;
    }
    if (request->timeout == 0) {
        answer(store, request, STORE_TIMEOUT, lacking->ranks);
        return;
    }
    reports_key(request->reports, key);
    with_key.key = key;
    if (!has_room(store, &with_key, 0)) return;
    struct store_entry *entry = make_entry(store, key);
    if (entry == NULL) {
        fail_memory(store, request);
        return;
    }
    if (entry->reports == 0) {
        store->n_awaiting++;
        entry->reports = request->reports;
        entry->n_awaited = lacking->n;
    }
    (void)add_waiter(store, entry, request, now);
    tidy(store, key);
}

/* A piece for which there is no room ends the gather for all ranks, the ones that have not come included. */
static bool refuse_piece(struct store *store, struct store_entry *entry, const struct store_request *request) {
    struct buffer words = {0};
    /* Why the gather cannot take this piece; an empty buffer when it can. */
    size_t size = entry->came_bytes + sizeof(uint32_t) + request->size;
    if (size > STORE_ANSWER_MAX)
        buffer_printf(&words,
                      "the pieces of %" PRIu32 " of %" PRIu32 " ranks come to %zu bytes, and the limit of a "
                      "gather is %d bytes: %s",
                      entry->n_came + 1, store->world_size, size, STORE_ANSWER_MAX, what_to_do);
    else
        check_room(store, request->key, request->size, &words);
    if (words.size == 0 && !words.failed) return false;
    struct shared *why = take_text(&words);
    end_gather(store, entry, why != NULL ? STORE_INVALID : STORE_FAILED, why);
    shared_release(why);
    return true;
}

/* A rank gives its piece, and waits for those of all. Gathers of one key follow each other: who asks before the
 * answer of the one before has come to it gets that one. */
static void gather(struct store *store, const struct store_request *request, nanoseconds now) {
    if (request->rank >= store->world_size) {
        refuse(store, request, "no such rank");
        return;
    }
    struct store_entry *entry = find_entry(store, request->key);
    struct gathered *last = entry == NULL ? NULL : &entry->last;
    if (last != NULL && last->n_owed > 0 && last->owed[request->rank]) {
        /* A rank whose time was over asks again, and meanwhile all came. */
        last->owed[request->rank] = false;
        answer(store, request, last->status, last->value);
        if (--last->n_owed == 0) forget_gathered(store, last);
        return;
    }
    if ((entry == NULL || entry->pieces == NULL) &&
        !has_room(store, request, store->world_size * sizeof *entry->pieces))
        return;
    entry = make_entry(store, request->key);
    if (entry != NULL && entry->pieces == NULL) entry->pieces = make_by_rank(store, sizeof *entry->pieces);
    if (entry == NULL || entry->pieces == NULL) {
        fail_memory(store, request);
        return;
    }
    struct piece *piece = &entry->pieces[request->rank];
    if (piece->waiting) {
        refuse(store, request, "this rank has already given its part");
        return;
    }
    if (!add_waiter(store, entry, request, now)) return;
    piece->waiting = true;
    /* The first piece of a rank counts, however often it asks. */
    if (piece->value == NULL) {
        if (refuse_piece(store, entry, request)) return;
        piece->value = shared_copy(request->value, request->size, store->bytes);
        if (piece->value == NULL) {
            remove_waiter(store, &entry->waiters);
            piece->waiting = false;
            fail_memory(store, request);
            return;
        }
        entry->came_bytes += sizeof(uint32_t) + request->size;
        entry->n_came++;
    }
    if (entry->n_came == store->world_size)
        answer_gather(store, entry);
    else
        refuse_without_ended(store, entry);
}

/* The waiters of a channel go; a piece that one of them gave counts all the same, and its rank may ask
 * again. */
static void forget(struct store *store, const struct store_request *request) {
    size_t at = 0;
    uintptr_t value;
    const char *key;
    while ((key = hash_next(store->entries, &at, &value)) != NULL) {
        struct store_entry *entry = (struct store_entry *)value;
        struct waiter **link = &entry->waiters;
        while (*link != NULL && ((*link)->node != request->node || (*link)->channel != request->channel))
            link = &(*link)->next;
        if (*link == NULL) continue;
        if ((*link)->gathers) entry->pieces[(*link)->rank].waiting = false;
        remove_waiter(store, link);
        tidy(store, key);
        return;
    }
}

void store_ask(struct store *store, const struct store_request *request, nanoseconds now) {
    store->turn++;
    switch (request->operation) {
    case STORE_SET: {
        if (!has_room(store, request, request->size)) break;
        bool done = put(store, request, request->value, request->size) != NULL;
        answer(store, request, done ? STORE_OK : STORE_FAILED, NULL);
    } break;
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
    case STORE_DELETE: {
        struct store_entry *entry = find_entry(store, request->key);
        bool had = entry != NULL && entry->value != NULL;
        if (had) shared_release(TAKE(entry->value));
        answer(store, request, had ? STORE_OK : STORE_NONE, NULL);
    } break;
    case STORE_FORGET:
        forget(store, request);
        return;
    case STORE_REPORTS:
        await_reports(store, request, now);
        return;
    default:
        refuse(store, request, "no such operation");
    }
    tidy(store, request->key);
}

/* Names the ranks that wait for one key, and adds them to `all`. The number of them. */
static size_t name_waiters(const struct store_entry *entry, const char *key, struct idset *all,
                           uint32_t *lowest, struct buffer *out) {
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
        buffer_printf(out, entry->reports > 0 ? " for %s" : " for \"%s\"", key);
    }
    idset_done(&ranks);
    return n;
}

/* The rank that is told as hung is one of those who wait for what the fewest wait for: where one rank has gone
 * another way than all the others, that one. */
bool store_is_stuck(const struct store *store, const struct idset *elsewhere, uint64_t *turn, uint32_t *rank,
                    struct buffer *out) {
    struct idset waiting = {0};
    size_t at = 0, fewest = SIZE_MAX;
    uintptr_t value;
    const char *key;
    while ((key = hash_next(store->entries, &at, &value)) != NULL) {
        uint32_t lowest = 0;
        size_t n = name_waiters((const struct store_entry *)value, key, &waiting, &lowest, out);
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

/* Answers the waiters whose time is over; the earliest deadline of the others, -1 without. */
static nanoseconds expire_entry(struct store *store, struct store_entry *entry, nanoseconds now) {
    struct shared *absent = NULL;
    nanoseconds first = -1;
    for (struct waiter **link = &entry->waiters; *link != NULL;) {
        struct waiter *waiter = *link;
        if (waiter->deadline < 0 || waiter->deadline > now) {
            if (waiter->deadline >= 0 && (first < 0 || waiter->deadline < first)) first = waiter->deadline;
            link = &waiter->next;
            continue;
        }
        store->turn++;
        if (waiter->gathers) entry->pieces[waiter->rank].waiting = false;
        if (waiter->gathers && absent == NULL) {
            /* The ranks that did not come to a gather; NULL again when memory is short. */
            struct idset ranks = {0};
            struct buffer text = {0};
            for (uint32_t i = 0; i < store->world_size; i++)
                if (entry->pieces[i].value == NULL) (void)idset_add(&ranks, i);
            idset_format(&ranks, &text);
            idset_done(&ranks);
            absent = take_text(&text);
        }
        if (entry->reports > 0 && absent == NULL)
            absent = shared_hold(find_lacking(store, entry->reports)->ranks);
        store->answer(store->context, waiter->node, waiter->channel, STORE_TIMEOUT,
                      waiter->gathers || entry->reports > 0 ? absent : NULL);
        remove_waiter(store, link);
    }
    shared_release(absent);
    return first;
}

/* The earliest deadline is an estimate from below: a waiter that was answered may have had it. Here, where
 * every entry is walked over anyway, it is found anew. */
void store_expire(struct store *store, nanoseconds now) {
    nanoseconds first = -1;
    size_t at = 0;
    uintptr_t value;
    const char *key;
    while ((key = hash_next(store->entries, &at, &value)) != NULL) {
        nanoseconds deadline = expire_entry(store, (struct store_entry *)value, now);
        if (deadline >= 0 && (first < 0 || deadline < first)) first = deadline;
        tidy(store, key);
    }
    store->deadline = first;
}
