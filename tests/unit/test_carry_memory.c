/* Files that begin to go home when memory runs short: what did not begin is told by whoever was asked, once,
 * and by nobody else. Linked with --wrap for the allocating functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/node_storage.h"
#include "checkpoint/carry.h"
#include "failing_memory.h"

enum { ALLOCATIONS_MAX = 100 };

static struct storage *storage;
static int n_ended;

static void no_piece(void *context, const struct carry_piece *piece) {
    (void)context, (void)piece;
}

static void count_end(void *context, const ty_error *err) {
    (void)context, (void)err;
    n_ended++;
}

static int set_up(void **state) {
    (void)state;
    return storage_open(-1, &storage, NULL);
}

static int tear_down(void **state) {
    (void)state;
    storage_close(storage, 60 * NS_PER_S);
    return 0;
}

static void a_carry_that_does_not_begin_has_no_end(void **state) {
    (void)state;
    static const struct carry_events events = {.piece = no_piece, .ended = count_end};
    for (long k = 0; k < ALLOCATIONS_MAX; k++) {
        struct carry *carry = NULL;
        (void)memory_fails_after(k, false);
        int result = carry_start(storage, "/nonexistent", "[]", &events, NULL, &carry, NULL);
        bool was_short = memory_fails_after(-1, false) < 0; /* or the thread was, at its first job */
        assert_int_equal(n_ended, 0);
        assert_true(result == 0 || (result == -ENOMEM && was_short));
        if (result < 0) continue;
        carry_stop(carry);
        return;
    }
    fail();
}

static void a_commit_that_does_not_begin_is_refused(void **state) {
    (void)state;
    struct logs logs = {.storage = storage};
    struct outbox outbox = {0};
    struct worker_channels channels = {.attempt = 1};
    const struct node_storage_commit commit = {.rank = 3, .channel = 1, .number = 7, .files = "[]"};
    for (long k = 0; k < ALLOCATIONS_MAX; k++) {
        char path[] = "/nonexistent";
        struct node_storage node = {.outbox = &outbox, .logs = &logs, .channels = &channels, .path = path};
        node.state = STORAGE_APART;
        (void)memory_fails_after(k, false);
        int result = node_storage_commit(&node, &commit);
        bool was_short = memory_fails_after(-1, false) < 0;
        assert_int_equal(outbox.n_reports, 0);
        assert_false(outbox.failed);
        assert_true(result == 0 || (result == -ENOMEM && was_short));
        assert_true((result < 0) == (node.carrying == NULL));
        if (result < 0) continue;
        node_storage_forget(&node);
        assert_null(node.carrying);
        return;
    }
    fail();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_carry_that_does_not_begin_has_no_end),
                                       cmocka_unit_test(a_commit_that_does_not_begin_is_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
