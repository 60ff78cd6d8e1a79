/* The run's store: what each request is answered, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "run/store.h"

static void note_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                        struct shared *value) {
    static const char *const names[] = {"ok", "none", "timeout", "invalid", "failed"};
    buffer_printf(context, " %u/%u:%s", node, channel, names[status]);
    if (value != NULL && value->size > 0) buffer_printf(context, "=%s", value->bytes);
}

static struct buffer answers;
static struct store *store;
static size_t held; /* bytes of values */

static int open_store(void **state) {
    (void)state;
    store = store_create(3, &held, note_answer, &answers);
    return store == NULL;
}

static int close_store(void **state) {
    (void)state;
    store_destroy(store);
    buffer_done(&answers);
    return held != 0;
}

static void ask(enum store_operation operation, uint32_t rank, const char *key, const char *value,
                nanoseconds timeout, nanoseconds now) {
    struct store_request request = {
        operation, rank, 1, 10 + rank, key, value, value == NULL ? 0 : strlen(value), timeout, 0};
    store_ask(store, &request, now);
}

static void expect(const char *text) {
    assert_string_equal(answers.size > 0 ? answers.data : "", text);
    buffer_done(&answers);
}

static void a_value_is_there_once_set(void **state) {
    (void)state;
    ask(STORE_GET, 0, "k", NULL, -1, 0);
    ask(STORE_SET, 1, "k", "v", -1, 0);
    ask(STORE_GET, 0, "k", NULL, -1, 0);
    ask(STORE_SET, 1, "k", "", -1, 0);
    ask(STORE_WAIT, 2, "k", NULL, -1, 0);
    ask(STORE_DELETE, 2, "k", NULL, -1, 0);
    ask(STORE_DELETE, 2, "k", NULL, -1, 0);
    expect(" 1/10:none 1/11:ok 1/10:ok=v 1/11:ok 1/12:ok 1/12:ok 1/12:none");
}

static void waiters_are_answered_by_a_set_or_by_their_limit(void **state) {
    (void)state;
    assert_int_equal(store_deadline(store), -1);
    ask(STORE_WAIT, 0, "k", NULL, 50, 100);
    ask(STORE_WAIT, 1, "k", NULL, -1, 100);
    ask(STORE_WAIT, 2, "other", NULL, 90, 100);
    expect("");
    assert_int_equal(store_deadline(store), 150);
    store_expire(store, 149);
    expect("");
    store_expire(store, 150);
    expect(" 1/10:timeout");
    assert_int_equal(store_deadline(store), 190);
    ask(STORE_SET, 2, "k", "v", -1, 160);
    expect(" 1/11:ok=v 1/12:ok");
    store_expire(store, 200);
    expect(" 1/12:timeout");
    assert_int_equal(store_deadline(store), -1);
}

static void add_counts(void **state) {
    (void)state;
    ask(STORE_WAIT, 2, "n", NULL, -1, 0);
    ask(STORE_ADD, 0, "n", "5", -1, 0);
    ask(STORE_ADD, 1, "n", "-7", -1, 0);
    expect(" 1/12:ok=5 1/10:ok=5 1/11:ok=-2");
    ask(STORE_ADD, 0, "n", "x", -1, 0);
    ask(STORE_SET, 0, "word", "abc", -1, 0);
    ask(STORE_ADD, 0, "word", "1", -1, 0);
    ask(STORE_SET, 0, "big", "9223372036854775807", -1, 0);
    ask(STORE_ADD, 0, "big", "1", -1, 0);
    expect(
        " 1/10:invalid=add takes a whole number 1/10:ok 1/10:invalid=the key holds something else than a whole "
        "number 1/10:ok 1/10:invalid=the sum does not fit in 64 bits");
}

/* Sizes of the pieces, for they hold NUL bytes. */
static size_t gathered;

static void note_size(void *context, uint32_t node, uint32_t channel, enum store_status status,
                      struct shared *value) {
    (void)context;
    (void)node;
    (void)channel;
    static const unsigned char all[] = {1, 0, 0, 0, 'a', 0, 0, 0, 0, 2, 0, 0, 0, 'c', 'c'};
    assert_int_equal(status, STORE_OK);
    assert_int_equal(value->size, sizeof all);
    assert_memory_equal(value->bytes, all, sizeof all);
    gathered++;
}

static void gather_answers_all_when_the_last_one_came(void **state) {
    (void)state;
    store_destroy(store);
    store = store_create(3, &held, note_size, NULL);
    for (int round = 0; round < 2; round++) {
        gathered = 0;
        ask(STORE_GATHER, 2, "g", "cc", -1, 0);
        ask(STORE_GATHER, 0, "g", "a", -1, 0);
        assert_int_equal(gathered, 0);
        ask(STORE_GATHER, 1, "g", "", -1, 0);
        assert_int_equal(gathered, 3);
    }
}

static void gather_names_who_did_not_come(void **state) {
    (void)state;
    ask(STORE_GATHER, 1, "g", "b", 10, 0);
    ask(STORE_GATHER, 1, "g", "b", 10, 0);
    store_expire(store, 10);
    expect(" 1/11:invalid=this rank has already given its part 1/11:timeout=0,2");
    ask(STORE_GATHER, 7, "g", "b", 10, 0);
    assert_non_null(strstr(answers.data, "invalid"));
}

static const char rank_2_ended[] =
    "=rank 2 has ended without this call: every worker must make it as often as the others";

static void gather_fails_without_a_rank_that_ended(void **state) {
    (void)state;
    char both[256];
    ask(STORE_GATHER, 1, "early", "b", -1, 0);
    ask(STORE_GATHER, 0, "k", "a", -1, 0);
    store_leave(store, 1);
    expect(" 1/10:failed=rank 1 has ended without this call: every worker must make it as often as the others");
    ask(STORE_GATHER, 0, "early", "a", -1, 0); /* the other one's piece is there */
    expect("");
    store_leave(store, 2);
    (void)snprintf(both, sizeof both, " 1/10:failed%s 1/11:failed%s", rank_2_ended, rank_2_ended);
    expect(both);
    ask(STORE_GATHER, 0, "k", "a", -1, 0);
    expect(" 1/10:failed=ranks 1-2 have ended without this call: every worker must make it as often as the "
           "others");
    store_leave(store, 9); /* no such rank */
    ask(STORE_WAIT, 0, "v", NULL, -1, 0);
    expect("");
}

static void ask_reports(uint32_t rank, uint64_t reports, nanoseconds timeout, nanoseconds now) {
    struct store_request request = {STORE_REPORTS, rank, 1, 10 + rank, "", NULL, 0, timeout, reports};
    store_ask(store, &request, now);
}

static void report(uint32_t rank, unsigned n) {
    while (n-- > 0)
        store_report(store, rank);
}

static void reports_of_all_are_waited_for(void **state) {
    (void)state;
    ask_reports(0, 0, 0, 0);
    expect(" 1/10:ok");
    report(0, 2);
    ask_reports(0, 2, 0, 0);
    expect(" 1/10:timeout=1-2");
    ask_reports(0, 2, -1, 0);
    ask_reports(1, 1, 50, 0); /* whoever asks may be behind itself */
    expect("");
    report(2, 3);
    report(1, 1);
    expect(" 1/11:ok");
    ask_reports(2, 3, 0, 0);
    expect(" 1/12:timeout=0-1");
    report(1, 1);
    expect(" 1/10:ok");
    ask_reports(1, UINT64_MAX, 0, 0);
    expect(" 1/11:timeout=0-2");
    store_report(store, 3); /* no such rank */
}

static void reports_that_do_not_come_are_named_in_time(void **state) {
    (void)state;
    report(1, 1);
    ask_reports(1, 1, 50, 100);
    ask_reports(1, 1, 90, 100);
    assert_int_equal(store_deadline(store), 150);
    store_expire(store, 150);
    expect(" 1/11:timeout=0,2");
    report(0, 1);
    store_expire(store, 190);
    expect(" 1/11:timeout=2");
    assert_int_equal(store_deadline(store), -1);
    ask_reports(1, 1, 50, 200);
    ask(STORE_FORGET, 1, "", NULL, -1, 200);
    report(2, 1);
    store_expire(store, 300);
    expect("");
}

static void reports_of_a_rank_that_has_ended_are_not_waited_for(void **state) {
    (void)state;
    report(0, 1);
    ask_reports(0, 1, -1, 0);
    store_leave(store, 1);
    store_leave(store, 1);
    expect("");
    ask_reports(0, 1, 0, 0);
    expect(" 1/10:timeout=2");
    report(1, 1); /* it was on its way */
    expect("");
    store_leave(store, 2);
    expect(" 1/10:ok");
    ask_reports(0, 2, -1, 0);
    store_leave(store, 0);
    expect(" 1/10:ok");
}

/* What a thousand ranks ask for is counted once and answered with one text. */
static void many_ranks_wait_for_one(void **state) {
    (void)state;
    struct store *many = store_create(1000, &held, note_answer, &answers);
    assert_non_null(many);
    for (uint32_t rank = 1; rank < 1000; rank++) {
        store_report(many, rank);
        store_ask(many, &(struct store_request){STORE_REPORTS, rank, 1, rank, "", NULL, 0, 5, 1}, 0);
    }
    assert_int_equal(answers.size, 0);
    store_expire(many, 5);
    size_t told = 0;
    for (const char *at = answers.data; (at = strstr(at, ":timeout=0")) != NULL; at++)
        told++;
    assert_int_equal(told, 999);
    buffer_done(&answers);
    store_report(many, 0);
    assert_int_equal(answers.size, 0);
    store_destroy(many);
}

static void who_waits_for_reports_is_told_as_such(void **state) {
    (void)state;
    uint64_t turn;
    uint32_t rank = 9;
    struct buffer out = {0};
    ask_reports(0, 3, -1, 0);
    assert_false(store_is_stuck(store, NULL, &turn, &rank, &out));
    buffer_done(&out);
    ask_reports(1, 3, -1, 0);
    ask(STORE_WAIT, 2, "k", NULL, -1, 0);
    assert_true(store_is_stuck(store, NULL, &turn, &rank, &out));
    assert_string_equal(out.data, "ranks 0-1 wait for report 3 of all ranks, rank 2 waits for \"k\"");
    buffer_done(&out);
}

static void gather_goes_on_for_who_asks_again(void **state) {
    (void)state;
    store_destroy(store);
    store = store_create(2, &held, note_answer, &answers);
    ask(STORE_GATHER, 0, "g", "a", 10, 0);
    store_expire(store, 10);
    expect(" 1/10:timeout=1");
    ask(STORE_GATHER, 0, "g", "other", 10, 10);
    store_expire(store, 20);
    expect(" 1/10:timeout=1");
    ask(STORE_GATHER, 1, "g", "b", -1, 20);
    assert_non_null(strstr(answers.data, "1/11:ok"));
    buffer_done(&answers);
    ask(STORE_GATHER, 0, "g", "a", 10, 20);
    assert_non_null(strstr(answers.data, "1/10:ok"));
    buffer_done(&answers);
    ask(STORE_GATHER, 0, "g", "a", 10, 20);
    store_expire(store, 30);
    expect(" 1/10:timeout=1");
}

static void all_who_wait_are_stuck(void **state) {
    (void)state;
    uint64_t turn = 0, later = 0;
    uint32_t rank = 9;
    struct buffer waits = {0};
    assert_false(store_is_stuck(store, NULL, &turn, &rank, &waits));
    ask(STORE_GATHER, 0, "g", "a", -1, 0);
    ask(STORE_GATHER, 2, "g", "c", -1, 0);
    assert_false(store_is_stuck(store, NULL, &turn, &rank, &waits)); /* rank 1 computes */
    buffer_done(&waits);
    struct idset elsewhere = {0};
    assert_int_equal(idset_add(&elsewhere, 1), 0);
    assert_true(store_is_stuck(store, &elsewhere, &turn, &rank, &waits)); /* rank 1 waits for something else */
    assert_int_equal(rank, 0);
    assert_string_equal(waits.data, "ranks 0,2 wait for \"g\"");
    idset_done(&elsewhere);
    buffer_done(&waits);
    ask(STORE_WAIT, 1, "w", NULL, 50, 0);
    assert_true(store_is_stuck(store, NULL, &turn, &rank, &waits));
    assert_int_equal(rank, 1);
    assert_string_equal(waits.data, "ranks 0,2 wait for \"g\", rank 1 waits for \"w\"");
    buffer_done(&waits);
    assert_true(store_is_stuck(store, NULL, &later, &rank, &waits));
    assert_true(turn == later);
    buffer_done(&waits);
    store_expire(store, 50); /* rank 1 goes on */
    assert_false(store_is_stuck(store, NULL, &later, &rank, &waits));
    assert_true(turn != later);
    buffer_done(&waits);
    expect(" 1/11:timeout");
    ask(STORE_WAIT, 2, "w", NULL, 50, 50);
    store_leave(store, 1);
    expect(" 1/12:failed=rank 1 has ended without this call: every worker must make it as often as the others"
           " 1/10:failed=rank 1 has ended without this call: every worker must make it as often as the others");
    assert_false(store_is_stuck(store, NULL, &later, &rank, &waits)); /* rank 0 goes on */
    buffer_done(&waits);
    ask(STORE_WAIT, 0, "w", NULL, 50, 50);
    assert_true(store_is_stuck(store, NULL, &later, &rank, &waits));
    assert_string_equal(waits.data, "ranks 0,2 wait for \"w\", rank 1 has ended");
    buffer_done(&waits);
}

/* A size at which few requests fill the store. */
enum { PIECE = 1 << 20 };
static char large[PIECE + 1];

static void ask_large(enum store_operation operation, uint32_t rank, const char *key, nanoseconds timeout) {
    memset(large, 'x', PIECE);
    ask(operation, rank, key, large, timeout, 0);
}

static unsigned n_ok; /* answers to large requests, which are not kept as text */

static void count_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                         struct shared *value) {
    if (status == STORE_OK)
        n_ok++;
    else
        note_answer(context, node, channel, status, value);
}

static int open_counting(void **state) {
    (void)state;
    n_ok = 0;
    store = store_create(3, &held, count_answer, &answers);
    return store == NULL;
}

static void what_is_over_the_limit_is_refused(void **state) {
    (void)state;
    char key[16];
    for (unsigned i = 0; i < STORE_BYTES_MAX / PIECE; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        ask_large(STORE_SET, 0, key, -1);
    }
    assert_int_equal(n_ok, STORE_BYTES_MAX / PIECE);
    ask(STORE_SET, 0, "k", "v", -1, 0);
    expect(
        " 1/10:invalid=the store holds 536870912 bytes in 512 keys, and 1 more would take it over its limit of "
        "536870912 bytes: use fewer or smaller values, and files for large data");
    ask(STORE_ADD, 0, "n", "1", -1, 0);
    ask(STORE_GATHER, 0, "g", "", -1, 0);
    assert_non_null(
        strstr(answers.data, "1/10:invalid=the store holds 536870912 bytes in 512 keys, and 48 more"));
    buffer_done(&answers);
    ask(STORE_SET, 0, "k0", "", -1, 0);
    ask(STORE_SET, 0, "k", "v", -1, 0);
    ask(STORE_GET, 0, "k1", NULL, -1, 0);
    assert_int_equal(n_ok, STORE_BYTES_MAX / PIECE + 3);
    expect("");
}

static void a_gather_over_the_limit_ends_for_all_ranks(void **state) {
    (void)state;
    char text[160];
    store_destroy(store);
    store = store_create(300, &held, count_answer, &answers);
    for (uint32_t rank = 0; rank < STORE_ANSWER_MAX / PIECE - 1; rank++)
        ask_large(STORE_GATHER, rank, "g", rank == 7 ? 10 : -1);
    store_expire(store, 10); /* rank 7 asks again later */
    buffer_done(&answers);
    ask_large(STORE_GATHER, 255, "g", -1);
    (void)snprintf(
        text, sizeof text,
        "1/265:invalid=the pieces of 256 of 300 ranks come to 268436480 bytes, and the limit of a gather "
        "is 268435456 bytes");
    assert_non_null(strstr(answers.data, text));
    assert_non_null(strstr(answers.data, " 1/10:invalid=the pieces of 256"));
    assert_null(strstr(answers.data, " 1/17:"));
    buffer_done(&answers);
    ask_large(STORE_GATHER, 7, "g", -1);
    for (uint32_t rank = 256; rank < 300; rank++)
        ask_large(STORE_GATHER, rank, "g", -1);
    assert_non_null(strstr(answers.data, " 1/17:invalid=the pieces of 256"));
    assert_non_null(strstr(answers.data, " 1/309:invalid=the pieces of 256"));
    buffer_done(&answers);
    assert_int_equal(held, 0); /* all have been told */
    for (uint32_t rank = 0; rank < 300; rank++)
        ask(STORE_GATHER, rank, "g", "x", -1, 0);
    assert_int_equal(n_ok, 300);
}

static void keys_and_waiters_are_limited(void **state) {
    (void)state;
    char key[16];
    for (unsigned i = 0; i < STORE_KEYS_MAX; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        ask(STORE_WAIT, 0, key, NULL, i == 0 ? 10 : -1, 0);
    }
    expect("");
    ask(STORE_WAIT, 1, "k0", NULL, -1, 0);
    ask(STORE_SET, 1, "other", "v", -1, 0);
    expect(" 1/11:invalid=65536 requests wait in the store, and no more can: use fewer channels"
           " 1/11:invalid=the store holds 65536 keys, and no more: use fewer keys");
    store_expire(store, 10); /* a key that nobody waits for any more is none */
    ask(STORE_SET, 1, "other", "v", -1, 10);
    ask(STORE_WAIT, 1, "k1", NULL, -1, 0);
    assert_int_equal(n_ok, 1);
    expect(" 1/10:timeout");
}

static void who_has_gone_is_forgotten(void **state) {
    (void)state;
    ask(STORE_WAIT, 0, "k", NULL, -1, 0);
    ask(STORE_GATHER, 1, "g", "b", -1, 0);
    ask(STORE_FORGET, 0, "", NULL, -1, 0);
    ask(STORE_FORGET, 1, "", NULL, -1, 0);
    ask(STORE_FORGET, 2, "", NULL, -1, 0); /* waits for nothing */
    ask(STORE_SET, 2, "k", "v", -1, 0);
    expect(" 1/12:ok");
    ask(STORE_GATHER, 1, "g", "again", -1, 0); /* the piece is there */
    ask(STORE_GATHER, 0, "g", "a", -1, 0);
    expect("");
}

static void a_key_may_hold_a_value_and_be_gathered(void **state) {
    (void)state;
    ask(STORE_GATHER, 0, "k", "a", 5, 0);
    ask(STORE_WAIT, 1, "k", NULL, 5, 0);
    ask(STORE_SET, 2, "k", "v", -1, 0);
    expect(" 1/11:ok=v 1/12:ok");
    store_expire(store, 5);
    expect(" 1/10:timeout=1-2");
}

static void a_time_out_of_any_length(void **state) {
    (void)state;
    static const nanoseconds lengths[] = {INT64_MAX, INT64_MAX - 100, INT64_MAX / 2, 1, 0, INT64_MIN};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        ask(STORE_WAIT, (uint32_t)i, "k", NULL, lengths[i], INT64_MAX / 4);
    store_expire(store, INT64_MAX / 4 + 1);
    expect(" 1/14:timeout 1/13:timeout");
    ask(STORE_SET, 0, "k", "v", -1, 0);
    expect(" 1/15:ok=v 1/12:ok=v 1/11:ok=v 1/10:ok=v 1/10:ok");
    assert_int_equal(duration_of_ms(INT64_MAX), INT64_MAX);
    assert_int_equal(duration_of_ms(INT64_MIN), INT64_MIN);
    assert_int_equal(duration_of_ms(9223372036855), INT64_MAX);
    assert_int_equal(duration_of_ms(9223372036854), 9223372036854000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_value_is_there_once_set, open_store, close_store),
        cmocka_unit_test_setup_teardown(waiters_are_answered_by_a_set_or_by_their_limit, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(add_counts, open_store, close_store),
        cmocka_unit_test_setup_teardown(gather_answers_all_when_the_last_one_came, open_store, close_store),
        cmocka_unit_test_setup_teardown(gather_names_who_did_not_come, open_store, close_store),
        cmocka_unit_test_setup_teardown(gather_fails_without_a_rank_that_ended, open_store, close_store),
        cmocka_unit_test_setup_teardown(reports_of_all_are_waited_for, open_store, close_store),
        cmocka_unit_test_setup_teardown(reports_that_do_not_come_are_named_in_time, open_store, close_store),
        cmocka_unit_test_setup_teardown(reports_of_a_rank_that_has_ended_are_not_waited_for, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(many_ranks_wait_for_one, open_store, close_store),
        cmocka_unit_test_setup_teardown(who_waits_for_reports_is_told_as_such, open_store, close_store),
        cmocka_unit_test_setup_teardown(all_who_wait_are_stuck, open_store, close_store),
        cmocka_unit_test_setup_teardown(what_is_over_the_limit_is_refused, open_counting, close_store),
        cmocka_unit_test_setup_teardown(a_gather_over_the_limit_ends_for_all_ranks, open_counting, close_store),
        cmocka_unit_test_setup_teardown(keys_and_waiters_are_limited, open_counting, close_store),
        cmocka_unit_test_setup_teardown(who_has_gone_is_forgotten, open_store, close_store),
        cmocka_unit_test_setup_teardown(a_key_may_hold_a_value_and_be_gathered, open_store, close_store),
        cmocka_unit_test_setup_teardown(a_time_out_of_any_length, open_store, close_store),
        cmocka_unit_test_setup_teardown(gather_goes_on_for_who_asks_again, open_store, close_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
