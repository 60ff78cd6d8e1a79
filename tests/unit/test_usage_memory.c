/* Samples of the hardware when memory runs short: a sample that finds no room is lost, and nothing is written
 * of a batch that has none. Linked with --wrap for the allocating functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "checkpoint/tree.h"
#include "controller/ty_run.h"
#include "failing_memory.h"
#include "usage/usage.h"

enum { ALLOCATIONS_MAX = 100 };

static void await_written(struct ty_run *run) {
    struct storage *storage = usage_storage(run);
    usage_commit(run);
    while (storage_busy(storage)) {
        struct pollfd fd = {.fd = storage_fd(storage), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 60000), 1);
        storage_take(storage);
    }
}

static void a_batch_without_samples_is_not_written(void **state) {
    (void)state;
    char path[] = "/tmp/trainyard-usage-memory-XXXXXX", name[] = "n1", file[sizeof path + 16];
    assert_non_null(mkdtemp(path));
    (void)snprintf(file, sizeof file, "%s/" USAGE_DB_NAME, path);
    CLEANUP_FREE struct ty_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->path = path;
    assert_int_equal(run_lock_take(path, &run->lock, NULL), 0);
    struct peer peer = {.run = run, .name = name};
    Wire__UsageValue value = WIRE__USAGE_VALUE__INIT, *values[] = {&value};
    Wire__Usage usage = WIRE__USAGE__INIT;
    usage.n_values = ARRAY_SIZE(values);
    usage.values = values;
    bool was_short = true;
    for (long k = 0; was_short; k++) {
        assert_in_range(k, 0, ALLOCATIONS_MAX);
        assert_int_equal(usage_open(run, NULL), 0);
        (void)memory_fails_after(k, false);
        usage_take(&peer, &usage, NS_PER_S);
        was_short = memory_fails_after(-1, false) < 0;
        if (!was_short) await_written(run);
        usage_close(run);
        assert_true(was_short == (access(file, F_OK) < 0));
    }
    run_lock_release(run->lock, false);
    assert_int_equal(tree_remove(AT_FDCWD, path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_without_samples_is_not_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
