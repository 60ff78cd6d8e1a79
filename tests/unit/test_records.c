/* What the controller puts on record (src/controller/records.c), by a thread that writes into a stand-in for
 * the journal, which can be made to hang or to fail. It is also built with ThreadSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "controller/records.h"
#include "controller/run_lock.h"

static const nanoseconds LONG = 60 * NS_PER_S, SHORT = NS_PER_S / 100;

/* -- the journal: what it was told, a word a row. Only the thread looks at it while there is one. */

static char told[512];
static int gate[2];          /* a commit that hangs reads from here */
static atomic_bool hangs;    /* the next commit does */
static atomic_int n_commits; /* that have begun */
static atomic_bool fails;    /* commits do */
static atomic_bool closed;
static _Atomic pid_t writer; /* of the last commit */
static char stand_in;

static void note(const char *word) {
    size_t size = strlen(told);
    (void)snprintf(told + size, sizeof told - size, "%s ", word);
}

/* The reason alone, of a node that is lost. */
int journal_event(struct journal *journal, const struct journal_event *event, ty_error *err) {
    char reason[32] = "null";
    (void)journal, (void)err;
    if (event->data != NULL) assert_int_equal(sscanf(event->data, "{\"reason\": \"%31[^\"]\"}", reason), 1);
    note(reason);
    return 0;
}

int journal_report(struct journal *journal, const struct journal_report *report, ty_error *err) {
    (void)journal, (void)err;
    assert_int_equal(strlen(report->metrics), report->metrics_size);
    note(report->metrics);
    return 0;
}

int journal_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err) {
    (void)journal, (void)err;
    note(checkpoint->name);
    note(checkpoint->metrics != NULL ? checkpoint->metrics : "null");
    return 0;
}

int journal_checkpoint_metrics(struct journal *journal, uint64_t number, const char *metrics, ty_error *err) {
    char word[32];
    (void)journal, (void)err;
    (void)snprintf(word, sizeof word, "%d=%.20s", (int)number, metrics);
    note(word);
    return 0;
}

int journal_forget_checkpoint(struct journal *journal, uint64_t number, ty_error *err) {
    char word[16];
    (void)journal, (void)err;
    (void)snprintf(word, sizeof word, "-%d", (int)number);
    note(word);
    return 0;
}

/* Reports of number 1 are on record. */
int journal_find_report(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                        ty_error *err) {
    (void)journal, (void)attempt, (void)rank, (void)err;
    if (number != 1) return 0;
    *metrics = strdup("found");
    return 1;
}

static int commit(const char *word, ty_error *err) {
    char byte;
    n_commits++;
    writer = getpid();
    if (atomic_exchange(&hangs, false)) (void)!read(gate[0], &byte, 1);
    if (fails) return ty_fail(err, -ENOSPC, "the disk is full");
    note(word);
    return 0;
}

int journal_commit(struct journal *journal, ty_error *err) {
    (void)journal;
    return commit("|", err);
}

int journal_commit_durable(struct journal *journal, ty_error *err) {
    (void)journal;
    return commit("||", err);
}

int journal_finish(struct journal *journal, ty_error *err) {
    (void)journal, (void)err;
    note("end");
    return 0;
}

void journal_close(struct journal *journal) {
    if (journal != NULL) closed = true;
}

int journal_leave(struct journal *journal, const ty_error *why) {
    (void)journal;
    assert_int_equal(why->code, TY_EEXISTS);
    note("left");
    return 0;
}

/* -- the lock: whose the run is */

static atomic_bool taken_over;

int run_lock_check(int fd, const char *run_path, ty_error *err) {
    assert_int_equal(fd, gate[0]); /* any file that is open */
    assert_string_equal(run_path, "/runs/r");
    return taken_over ? ty_fail(err, TY_EEXISTS, "another's") : 0;
}

/* -- */

static struct records *records;
static int n_written, n_then;
static char then_metrics[32];
static char logged[1024];

static void written(void *context) {
    (void)context;
    n_written++;
}

static void then(void *context, const char *metrics) {
    (void)context;
    n_then++;
    (void)snprintf(then_metrics, sizeof then_metrics, "%s", metrics != NULL ? metrics : "");
}

static void keep_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)context, (void)level, (void)subsystem;
    size_t size = strlen(logged);
    (void)snprintf(logged + size, sizeof logged - size, "%s\n", text);
}

static int set_up(void **state) {
    (void)state;
    struct journal *journal = (struct journal *)&stand_in;
    ty_error err = {0};
    told[0] = logged[0] = '\0';
    hangs = fails = closed = false;
    n_commits = n_written = n_then = 0;
    log_set_sink(keep_log, NULL);
    if (pipe(gate) < 0 || records_open(&journal, "/runs/r", -1, &records, &err) < 0) return -1;
    records_listen(records, written, NULL);
    return journal == NULL ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    records_close(TAKE(records), LONG);
    log_set_sink(NULL, NULL);
    return close(gate[0]) | close(gate[1]);
}

static void event(const char *data) {
    char copy[32];
    (void)snprintf(copy, sizeof copy, "%s", data); /* which does not outlive the call */
    records_event(records, &(struct run_event){.kind = EVENT_NODE_LOST, .of.node_lost.reason = copy});
}

static void report(const char *metrics) {
    struct journal_report row = {.number = 1, .metrics = metrics, .metrics_size = 2};
    records_report(records, &row);
}

static void checkpoint(uint64_t number, const char *name, const char *metrics) {
    records_checkpoint(records,
                       &(struct journal_checkpoint){.number = number, .name = name, .metrics = metrics});
}

/* Until the commit of this number has begun, and hangs. */
static void await_commit(int n) {
    while (n_commits < n)
        (void)poll(NULL, 0, 1);
}

static void open_gate(void) {
    assert_int_equal(write(gate[1], "x", 1), 1);
}

static void test_rows_are_written_in_order(void **state) {
    (void)state;
    records_commit(records);
    assert_false(records_busy(records));
    event("a");
    report("r1 and more");
    records_event(records, &(struct run_event){.kind = EVENT_READY});
    assert_int_equal(records_count(records), 3);
    assert_true(records_busy(records));
    assert_false(records_have(records, 1));
    records_commit(records);
    assert_false(records_have(records, 1)); /* the loop hears of it later */
    records_wait(records, LONG);
    assert_true(records_have(records, 3));
    assert_false(records_have(records, 4));
    assert_int_equal(n_written, 1);
    assert_string_equal(told, "a r1 null | ");
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* No transaction has a process for itself where they follow each other; beginnings have none, but are the work
 * of one that is there. How soon one follows another is the machine's affair: it may take some tries. */
static void test_transactions_are_a_series(void **state) {
    (void)state;
    records_event(records, &(struct run_event){.kind = EVENT_READY});
    records_wait(records, LONG);
    assert_int_equal(writer, getpid());
    bool again = false, begun = false;
    for (int i = 0; i < 1000 && !(again && begun); i++) {
        pid_t before = writer;
        told[0] = '\0';
        report("r1");
        records_wait(records, LONG);
        pid_t process = writer;
        assert_int_not_equal(process, getpid());
        again |= process == before;
        records_event(records, &(struct run_event){.kind = EVENT_READY});
        records_wait(records, LONG);
        begun |= writer == process;
    }
    assert_true(again);
    assert_true(begun);
}
#endif

/* What comes while the storage is slow is one transaction, and nobody is told of it before. */
static void test_rows_gather_while_one_hangs(void **state) {
    (void)state;
    hangs = true;
    event("a");
    records_commit(records);
    await_commit(1);
    event("b");
    records_commit(records);
    event("c");
    records_commit(records);
    storage_take(records_storage(records));
    assert_false(records_have(records, 1));
    storage_tell_slow(records_storage(records), 0);
    assert_non_null(strstr(logged, "the storage hangs: writing /runs/r/run.db has not returned for "));
    open_gate();
    records_wait(records, LONG);
    assert_true(records_have(records, 3));
    assert_string_equal(told, "a | b c | ");
    assert_int_equal(n_written, 2);
}

static void test_whoever_waits_is_called(void **state) {
    (void)state;
    event("a");
    checkpoint(1, "checkpoint_1", "given");
    records_then(records, then, NULL);
    records_commit(records);
    event("b");
    assert_int_equal(n_then, 0);
    records_wait(records, LONG);
    assert_int_equal(n_then, 1);
    assert_string_equal(then_metrics, "found");
    checkpoint(2, "checkpoint_2", "given");
    records_then(records, then, NULL);
    records_wait(records, LONG);
    assert_int_equal(n_then, 2);
    assert_string_equal(then_metrics, "given");
    records_checkpoint_metrics(records, 2, "{}");
    records_forget_checkpoint(records, 1);
    records_then(records, then, NULL);
    records_then(records, NULL, NULL); /* it is forgotten */
    records_wait(records, LONG);
    assert_int_equal(n_then, 2);
    assert_string_equal(told, "a checkpoint_1 found || b | checkpoint_2 given || 2={} -1 || ");
}

static void test_a_failure_is_kept(void **state) {
    (void)state;
    fails = true;
    event("a");
    records_then(records, then, NULL);
    records_commit(records);
    event("b");
    records_wait(records, LONG);
    assert_int_equal(records_error(records)->code, -ENOSPC);
    assert_string_equal(records_error(records)->message, "the disk is full");
    assert_int_equal(n_then, 1);
    fails = false;
    event("c");
    assert_false(records_busy(records));
    assert_true(records_have(records, records_count(records))); /* nobody waits for what never comes */
    records_then(records, then, NULL);
    assert_int_equal(n_then, 2);
    records_finish(records);
    records_wait(records, LONG);
    assert_string_equal(told, "a ");
}

static void test_the_end(void **state) {
    (void)state;
    event("a");
    records_finish(records);
    records_finish(records);
    records_wait(records, LONG);
    records_finish(records); /* nothing came since */
    event("b");
    records_finish(records);
    records_wait(records, LONG);
    assert_string_equal(told, "a | end b | end ");
    event("c");
    records_close(TAKE(records), LONG);
    assert_true(closed);
    assert_string_equal(told, "a | end b | end c | ");
}

static void test_too_much(void **state) {
    (void)state;
    CLEANUP_FREE char *large = calloc(5, 1 << 20);
    assert_non_null(large);
    memset(large, 'x', (5 << 20) - 1);
    event("a");
    assert_false(records_full(records));
    records_event(records, &(struct run_event){.kind = EVENT_NODE_LOST, .of.node_lost.reason = large});
    assert_true(records_full(records));
    records_commit(records);
    assert_false(records_full(records));
}

/* Nobody waits any longer: it has failed, with all behind it; what comes of it later is heard by nobody. */
static void test_storage_that_hangs_is_given_up(void **state) {
    (void)state;
    hangs = true;
    event("a");
    records_then(records, then, NULL);
    records_commit(records);
    await_commit(1);
    event("b");
    storage_tell_slow(records_storage(records), 0);
    records_wait(records, SHORT);
    assert_int_equal(records_error(records)->code, -ETIMEDOUT);
    assert_string_equal(records_error(records)->message, "cannot write /runs/r/run.db: the storage hangs");
    assert_non_null(strstr(logged, "it is not waited for any longer"));
    assert_int_equal(n_then, 1);
    assert_int_equal(n_written, 1);
    event("c");
    records_wait(records, LONG); /* for nothing */
    assert_true(storage_hangs(records_storage(records)));
    open_gate();
    while (storage_busy(records_storage(records))) {
        (void)poll(&(struct pollfd){.fd = storage_fd(records_storage(records)), .events = POLLIN}, 1, -1);
        storage_take(records_storage(records));
    }
    assert_int_equal(n_written, 1);
    assert_string_equal(told, "a | ");
}

/* Whoever waits for rows that were gathered hears of it, though they are never handed to the thread. */
static void test_no_memory_for_a_row(void **state) {
    (void)state;
    hangs = true;
    event("a");
    records_commit(records);
    await_commit(1);
    checkpoint(2, "checkpoint_2", "given");
    records_then(records, then, NULL);
    records_commit(records);
    records_report(records, &(struct journal_report){.number = 1, .metrics = "", .metrics_size = SIZE_MAX});
    assert_int_equal(records_error(records)->code, -ENOMEM);
    assert_int_equal(n_then, 0); /* not from within that call */
    open_gate();
    assert_true(storage_wait(records_storage(records), LONG));
    assert_int_equal(n_then, 1);
    assert_string_equal(told, "a | ");
}

static void test_haste_waits_for_what_is_on_its_way(void **state) {
    (void)state;
    hangs = true;
    event("a");
    records_commit(records);
    await_commit(1);
    open_gate();
    event("b");
    records_wait(records, 0);
    assert_int_equal(records_error(records)->code, 0);
    assert_string_equal(told, "a | b | ");
}

/* The journal is the thread's then: it closes it when the storage answers. */
static void test_a_journal_that_hangs_is_left(void **state) {
    (void)state;
    hangs = true;
    event("a");
    records_commit(records);
    await_commit(1);
    storage_tell_slow(records_storage(records), 0);
    records_close(TAKE(records), 0);
    assert_false(closed);
    open_gate();
    while (!closed)
        (void)poll(NULL, 0, 1);
}

/* Neither rows nor, at the end, the log. */
static void test_a_journal_of_another_is_left(void **state) {
    (void)state;
    ty_error err = {0};
    struct journal *journal = (struct journal *)&stand_in;
    records_close(TAKE(records), LONG);
    assert_int_equal(records_open(&journal, "/runs/r", gate[0], &records, &err), 0);
    event("a");
    records_commit(records);
    records_wait(records, LONG);
    taken_over = true;
    event("b");
    records_commit(records);
    records_wait(records, LONG);
    assert_int_equal(records_error(records)->code, TY_EEXISTS);
    assert_string_equal(records_error(records)->message, "cannot write /runs/r/run.db: another's");
    event("c");
    records_finish(records);
    closed = false;
    records_close(TAKE(records), LONG);
    assert_true(closed);
    assert_string_equal(told, "a | left left ");
    taken_over = false;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_rows_are_written_in_order),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        TEST(test_transactions_are_a_series),
#endif
        TEST(test_rows_gather_while_one_hangs),
        TEST(test_whoever_waits_is_called),
        TEST(test_a_failure_is_kept),
        TEST(test_the_end),
        TEST(test_too_much),
        TEST(test_storage_that_hangs_is_given_up),
        TEST(test_no_memory_for_a_row),
        TEST(test_haste_waits_for_what_is_on_its_way),
        TEST(test_a_journal_that_hangs_is_left),
        TEST(test_a_journal_of_another_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
