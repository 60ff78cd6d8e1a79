/* The run's store when memory runs short: every allocation of a life of sets, sums, waits, gathers and ranks
 * that leave fails once, and once from there on. Each request is answered exactly once: with what it is
 * answered at other times, or with why not. Linked with --wrap for the allocating functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "failing_memory.h"
#include "run/store.h"

enum { RANKS = 3, REQUESTS_MAX = 32 };

/* What came of each request, by its channel; nothing here takes memory. */
struct store_answers {
    unsigned n;
    unsigned times[REQUESTS_MAX];
    enum store_status status[REQUESTS_MAX];
    bool empty[REQUESTS_MAX];
    char text[REQUESTS_MAX][80];
};

static void note_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                        struct shared *value) {
    struct store_answers *answers = context;
    (void)node;
    answers->times[channel]++;
    answers->status[channel] = status;
    answers->empty[channel] = value == NULL;
    (void)snprintf(answers->text[channel], sizeof answers->text[0], "%s", value != NULL ? value->bytes : "");
}

static bool ran_short(const struct store_answers *answers, unsigned channel) {
    return answers->status[channel] == STORE_FAILED && answers->empty[channel];
}

/* Number of the request. */
static unsigned ask(struct store *store, struct store_answers *answers, enum store_operation operation,
                    uint32_t rank, const char *key, const char *value) {
    struct store_request request = {operation, rank, 0, answers->n, key, value, strlen(value), 50, 1};
    store_ask(store, &request, 0);
    return answers->n++;
}

static void expect_one(struct store_answers *answers, unsigned channel, enum store_status status,
                       const char *text) {
    if (ran_short(answers, channel)) return;
    assert_int_equal(answers->times[channel], 1);
    assert_int_equal(answers->status[channel], status);
    assert_string_equal(answers->text[channel], text);
}

static void keep_values(struct store *store, struct store_answers *answers) {
    unsigned waits = ask(store, answers, STORE_WAIT, 1, "k", "");
    unsigned sets = ask(store, answers, STORE_SET, 0, "k", "v");
    unsigned gets = ask(store, answers, STORE_GET, 2, "k", "");
    bool there = !ran_short(answers, sets);
    if (there) expect_one(answers, waits, STORE_OK, "v");
    expect_one(answers, sets, STORE_OK, "");
    expect_one(answers, gets, there ? STORE_OK : STORE_NONE, there ? "v" : "");
    unsigned adds = ask(store, answers, STORE_ADD, 1, "sum", "40");
    unsigned more = ask(store, answers, STORE_ADD, 1, "sum", "2");
    expect_one(answers, adds, STORE_OK, "40");
    expect_one(answers, more, STORE_OK, ran_short(answers, adds) ? "2" : "42");
    (void)ask(store, answers, STORE_DELETE, 1, "k", "");
}

/* Whoever ran short asks again. A piece counts once. */
static void gather_all(struct store *store, struct store_answers *answers) {
    unsigned last[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        last[rank] = ask(store, answers, STORE_GATHER, rank, "g", "x");
        if (ran_short(answers, last[rank])) last[rank] = ask(store, answers, STORE_GATHER, rank, "g", "x");
    }
    bool refused = false;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        refused |= ran_short(answers, last[rank]);
    for (uint32_t rank = 0; rank < RANKS && !refused; rank++) {
        assert_int_equal(answers->times[last[rank]], 1);
        assert_int_equal(answers->status[last[rank]], STORE_OK);
    }
}

static void leave(struct store *store, struct store_answers *answers) {
    uint64_t turn;
    uint32_t rank = 0;
    CLEANUP(buffer_done) struct buffer who = {0};
    unsigned waits = ask(store, answers, STORE_GATHER, 0, "h", "x");
    store_leave(store, 1);
    bool stuck = store_is_stuck(store, NULL, &turn, &rank, &who);
    assert_false(stuck); /* rank 2 may still come */
    (void)ask(store, answers, STORE_WAIT, 2, "never", "");
    store_expire(store, 1000);
    assert_int_equal(store_deadline(store), -1);
    enum store_status status = answers->status[waits];
    assert_true(status == STORE_FAILED || status == STORE_TIMEOUT);
}

/* Each wait has an answer in time, whatever fails. */
static void await_reports(struct store *store, struct store_answers *answers) {
    store_report(store, 0);
    (void)ask(store, answers, STORE_REPORTS, 0, "", "");
    (void)ask(store, answers, STORE_REPORTS, 1, "", "");
    store_report(store, 1);
    store_expire(store, 500);
    (void)ask(store, answers, STORE_REPORTS, 0, "", "");
    store_report(store, 2);
}

static void live(struct store *store, struct store_answers *answers) {
    keep_values(store, answers);
    await_reports(store, answers);
    gather_all(store, answers);
    leave(store, answers);
    for (unsigned i = 0; i < answers->n; i++)
        assert_int_equal(answers->times[i], 1);
}

/* False when fewer than k + 1 allocations were made. */
static bool live_with_failure(long k, bool for_good) {
    struct store_answers answers = {0};
    (void)memory_fails_after(k, for_good);
    size_t held = 0;
    struct store *store = store_create(RANKS, &held, note_answer, &answers);
    if (store != NULL) live(store, &answers);
    store_destroy(store);
    assert_int_equal(held, 0);
    return memory_fails_after(-1, false) <= (for_good ? 0 : -1);
}

static void each_allocation_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        long k = 0;
        while (live_with_failure(k, for_good))
            k++;
        assert_in_range(k, 20, 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
