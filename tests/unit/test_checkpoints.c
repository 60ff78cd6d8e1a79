/* Rows and directories of checkpoints in step (src/controller/checkpoints.c), with a real journal and real
 * files. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "controller/checkpoints.h"

static const nanoseconds LONG = 60 * NS_PER_S;

static char run_path[64];
static struct records *records;
static struct checkpoints *checkpoints;
static struct checkpoint_policy policy;
static struct published last; /* that the listener heard of */
static int n_heard;

static atomic_bool closed; /* a rename waits at the gate */
static int gate[2];

int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char byte;
    if (closed) (void)!read(gate[0], &byte, 1);
    return __real_renameat2(from_at, from, to_at, to, flags);
}

static void hear(void *context, struct published *published) {
    (void)context;
    free(last.path);
    last = *published;
    n_heard++;
}

static int n_ready;

static void begin(void *context, const ty_error *why_not) {
    (void)context;
    assert_null(why_not);
    n_ready++;
}

static void open_run(bool past) {
    ty_error err = {0};
    struct journal *journal = NULL;
    int result = journal_open(run_path, past ? JOURNAL_APPEND : JOURNAL_CREATE, &journal, &err);
    if (result >= 0) result = records_open(&journal, run_path, -1, &records, &err);
    struct checkpoints_place place = {run_path, "0123456789abcdef", records, -1, past};
    if (result >= 0) result = checkpoints_open(&place, &policy, &checkpoints, &err);
    if (result < 0) fail_msg("%s", err.message);
    n_ready = 0;
    assert_int_equal(checkpoints_begin(checkpoints, begin, NULL), past);
    assert_true(storage_wait(checkpoints_storage(checkpoints), LONG));
    assert_int_equal(n_ready, past);
    checkpoints_listen(checkpoints, hear, NULL);
}

static void close_run(void) {
    checkpoints_close(TAKE(checkpoints), LONG);
    records_close(TAKE(records), LONG);
}

static void shell(const char *command) {
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_printf(&line, "cd %s && %s", run_path, command);
    assert_int_equal(system(line.data), 0);
}

static int set_up(void **state) {
    (void)state;
    policy = (struct checkpoint_policy){.num_to_keep = 2};
    n_heard = 0;
    strcpy(run_path, "/tmp/test_checkpoints.XXXXXX");
    if (mkdtemp(run_path) == NULL || chmod(run_path, 0755) < 0) return -1;
    open_run(false);
    return 0;
}

static int tear_down(void **state) {
    char command[128];
    (void)state;
    if (checkpoints != NULL) close_run();
    free(last.path);
    last = (struct published){0};
    (void)snprintf(command, sizeof command, "rm -rf %s", run_path);
    return system(command);
}

/* What the ranks wrote for this number is there. */
static void write_files(uint64_t number) {
    CLEANUP(buffer_done) struct buffer command = {0};
    buffer_printf(&command,
                  "mkdir .checkpoint_%06llu.attempt-1 && echo %llu > .checkpoint_%06llu.attempt-1/part",
                  (unsigned long long)number, (unsigned long long)number, (unsigned long long)number);
    shell(command.data);
}

static void publish(uint64_t number, const char *name, const char *files, const char *metrics) {
    ty_error err = {0};
    struct run_commit commit = {.number = number, .attempt = 1, .name = name, .files = &files, .n = 1};
    int before = n_heard;
    assert_int_equal(checkpoints_publish(checkpoints, &commit, metrics, &err), 0);
    assert_int_equal(n_heard, before); /* the loop hears of it later */
    checkpoints_settle(checkpoints, LONG);
    assert_int_equal(n_heard, before + 1);
    assert_int_equal(last.number, number);
    if (last.result < 0) checkpoints_discard(checkpoints, number, 1); /* as the run does */
    records_wait(records, LONG);                                      /* the rows of those that go */
}

static void make(uint64_t number, const char *name) {
    write_files(number);
    publish(number, name, "[]", NULL);
    if (last.result < 0) fail_msg("%s", last.error.message);
    checkpoints_clean(checkpoints);
}

/* The names on record and those on disk, each with a blank behind it. */
static int add_name(void *context, const struct journal_checkpoint *row) {
    buffer_printf(context, "%s ", row->name);
    return 0;
}

static void expect_rows(const char *names) {
    CLEANUP(buffer_done) struct buffer found = {0};
    assert_int_equal(journal_each_checkpoint(records_journal(records), add_name, &found, NULL), 0);
    assert_string_equal(found.size > 0 ? found.data : "", names);
}

static void expect_files(const char *names) {
    CLEANUP(buffer_done) struct buffer command = {0};
    assert_true(storage_wait(checkpoints_storage(checkpoints), LONG));
    buffer_printf(&command, "test \"$(ls -A | grep -v '^run[.]db' | LC_ALL=C sort | tr '\\n' ' ')\" = '%s'",
                  names);
    shell(command.data);
}

static void expect_latest(const char *name) {
    CLEANUP(buffer_done) struct buffer path = {0};
    checkpoint_path(run_path, name, &path);
    assert_string_equal(checkpoints_latest(checkpoints), path.data);
}

static void test_the_newest_are_kept(void **state) {
    (void)state;
    assert_null(checkpoints_latest(checkpoints));
    make(1, NULL);
    make(2, "second");
    make(3, NULL);
    expect_rows("second checkpoint_000003 ");
    expect_files("checkpoint_000003 second ");
    expect_latest("checkpoint_000003");
    make(4, "checkpoint_000001"); /* a name that is free again */
    expect_rows("checkpoint_000003 checkpoint_000001 ");
    expect_files("checkpoint_000001 checkpoint_000003 ");
}

static void test_the_best_are_kept(void **state) {
    (void)state;
    policy = (struct checkpoint_policy){.num_to_keep = 1, .score_attribute = "loss", .score_order = SCORE_MIN};
    static const char *const metrics[] = {"{\"loss\": 3}", "{\"loss\": 1}", "{\"loss\": 2}", "{\"loss\": 9}"};
    for (uint64_t i = 0; i < ARRAY_SIZE(metrics); i++) {
        write_files(i + 1);
        publish(i + 1, NULL, "[]", metrics[i]);
        checkpoints_clean(checkpoints);
    }
    expect_rows("checkpoint_000002 checkpoint_000004 "); /* the best, and the latest in any case */
    expect_files("checkpoint_000002 checkpoint_000004 ");
}

static void test_rows_go_first(void **state) {
    (void)state;
    make(1, NULL);
    make(2, NULL);
    write_files(3);
    publish(3, NULL, "[]", NULL);
    expect_rows("checkpoint_000002 checkpoint_000003 ");
    expect_files("checkpoint_000001 checkpoint_000002 checkpoint_000003 "); /* behind its row */
    checkpoints_clean(checkpoints);
    expect_files("checkpoint_000002 checkpoint_000003 ");
}

static void test_failures_leave_nothing(void **state) {
    (void)state;
    make(1, NULL);
    write_files(2);
    publish(2, NULL, "[{\"path\": \"other\", \"size\": 1}]", NULL);
    assert_true(last.result < 0);
    assert_non_null(strstr(last.error.message, "other"));
    assert_null(last.path);
    write_files(3);
    shell("mkdir theirs");
    publish(3, "theirs", "[]", NULL);
    assert_int_equal(last.result, -EEXIST);
    shell("rmdir theirs");
    publish(4, NULL, "[]", NULL); /* nobody wrote anything */
    assert_true(last.result < 0);
    expect_rows("checkpoint_000001 ");
    expect_files("checkpoint_000001 ");
    expect_latest("checkpoint_000001");
}

static void test_places_outside_are_let_be(void **state) {
    (void)state;
    policy.num_to_keep = 1;
    write_files(1);
    publish(1, NULL, "\"store://bucket/a\"", NULL);
    assert_string_equal(last.path, "store://bucket/a");
    make(2, NULL);
    expect_rows("checkpoint_000002 ");
    expect_files("checkpoint_000002 ");
}

/* In the run's directory, too: the journal tells them from what was published. */
static void test_places_inside_are_let_be(void **state) {
    (void)state;
    policy.num_to_keep = 1;
    CLEANUP(buffer_done) struct buffer place = {0};
    buffer_printf(&place, "\"%s/mine\"", run_path);
    shell("mkdir mine && echo > mine/model");
    for (uint64_t number = 1; number <= 3; number++) {
        write_files(number);
        publish(number, NULL, place.data, NULL);
        assert_int_equal(last.result, 0);
        expect_latest("mine");
        checkpoints_clean(checkpoints);
    }
    expect_rows("./mine ");
    expect_files("mine ");
    close_run();
    open_run(true);
    expect_latest("mine");
    make(4, NULL);
    make(5, NULL);
    expect_rows("checkpoint_000005 ");
    expect_files("checkpoint_000005 mine ");
}

static void test_places_of_the_run_are_refused(void **state) {
    (void)state;
    static const char *const refused[] = {
        "",         "/logs",  "/checkpoint_000001",        "/checkpoint_000001/inner", "/..", "/run.db",
        "/nothing", "/empty", "/checkpoint_000001/../logs"};
    make(1, NULL);
    shell("mkdir logs empty checkpoint_000001/inner && echo > logs/x && echo > checkpoint_000001/inner/x");
    for (uint64_t i = 0; i < ARRAY_SIZE(refused); i++) {
        CLEANUP(buffer_done) struct buffer place = {0};
        buffer_printf(&place, "\"%s%s\"", run_path, refused[i]);
        write_files(i + 2);
        publish(i + 2, NULL, place.data, NULL);
        assert_int_equal(last.result, TY_EUSAGE);
        assert_null(strchr(last.error.message, '\n'));
    }
    expect_rows("checkpoint_000001 ");
    expect_files("checkpoint_000001 empty logs ");
    expect_latest("checkpoint_000001");
}

/* A name that somebody else has costs no checkpoint. */
static void test_a_name_that_is_taken(void **state) {
    (void)state;
    policy.num_to_keep = 0;
    make(1, NULL);
    shell("cp -r checkpoint_000001 checkpoint_000002; mkdir checkpoint_000003 checkpoint_000003-2; ln -s x "
          "checkpoint_000004");
    make(2, NULL);
    make(3, NULL);
    make(4, NULL);
    expect_rows("checkpoint_000001 checkpoint_000002-2 checkpoint_000003-3 checkpoint_000004-2 ");
}

/* What ranks have written for this number beside what write_files made. */
static void write_more(uint64_t number, const char *command) {
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_printf(&line, "cd .checkpoint_%06llu.attempt-1 && %s", (unsigned long long)number, command);
    shell(line.data);
}

static void verify(const char *name) {
    CLEANUP(buffer_done) struct buffer path = {0};
    ty_error err = {0};
    checkpoint_path(run_path, name, &path);
    if (checkpoint_verify(path.data, &err) < 0) fail_msg("%s", err.message);
}

static void test_a_second_report_adds_to_the_first(void **state) {
    (void)state;
    policy.num_to_keep = 0;
    write_files(1);
    write_more(1,
               "mkdir -p deep/er both turns && echo a > deep/er/a && echo old > both/same && ln -s part link &&"
               " echo 1 > turns/file && echo '{\"mine\": 1}' > .metadata.json");
    publish(1, "last", "[]", NULL);
    write_files(2);
    write_more(2, "mkdir both && echo newer > both/same && echo b > b && ln -s b turns");
    publish(2, "last", "[]", NULL);
    if (last.result < 0) fail_msg("%s", last.error.message);
    expect_rows("last last ");
    expect_files("last ");
    shell("cd last && test \"$(cat part both/same b deep/er/a | tr '\\n' ' ')\" = '2 newer b a ' && "
          "test \"$(readlink link turns | tr '\\n' ' ')\" = 'part b ' && grep -q '\"mine\": 1' .metadata.json");
    verify("last");
    shell("mkdir made && rm -r last && mv made last"); /* somebody else has the name now */
    write_files(3);
    publish(3, "last", "[]", NULL);
    assert_int_equal(last.result, -EEXIST);
}

/* A name stays until the last that has it goes, whichever of them that is, and is known to the next
 * controller. */
static void test_a_name_goes_with_the_last_that_has_it(void **state) {
    (void)state;
    policy = (struct checkpoint_policy){.num_to_keep = 1, .score_attribute = "loss", .score_order = SCORE_MIN};
    static const char *const metrics[] = {"{\"loss\": 3}", "{\"loss\": 9}", "{\"loss\": 4}", "{\"loss\": 1}"};
    static const char *const names[] = {"a", "a", "b", "c"};
    for (uint64_t i = 0; i < ARRAY_SIZE(metrics); i++) {
        write_files(i + 1);
        publish(i + 1, names[i], "[]", metrics[i]);
        checkpoints_clean(checkpoints);
        if (i == 1) expect_rows("a a "); /* the best, and the latest */
        if (i != 2) continue;
        expect_rows("a b ");
        expect_files("a b ");
        verify("a");
    }
    expect_rows("c ");
    expect_files("c ");
}

static void test_a_next_controller_keeps_what_was_added_to(void **state) {
    (void)state;
    policy = (struct checkpoint_policy){.num_to_keep = 1, .score_attribute = "loss", .score_order = SCORE_MIN};
    write_files(1);
    publish(1, "a", "[]", "{\"loss\": 1}");
    write_files(2);
    publish(2, "a", "[]", "{\"loss\": 2}");
    make(3, "b");
    expect_rows("a b ");
    close_run();
    open_run(true);
    expect_files("a b ");
    write_files(4);
    publish(4, "a", "[]", "{\"loss\": 3}");
    if (last.result < 0) fail_msg("%s", last.error.message);
    verify("a");
}

static void test_a_next_controller_clears_up(void **state) {
    (void)state;
    make(1, NULL);
    make(2, "given");
    write_files(3);
    publish(3, NULL, "[]", NULL); /* the first has lost its row, and keeps its files as after a kill */
    shell("cp -r checkpoint_000001 spared && cp -r checkpoint_000003 theirs && rm theirs/.metadata.json");
    close_run();
    shell("mv spared checkpoint_000001; mkdir .checkpoint_000004.attempt-1 .checkpoint_000009.removed "
          ".gone.removed"
          " checkpoint_000009");
    open_run(true);
    expect_rows("given checkpoint_000003 ");
    expect_files(
        ".gone.removed checkpoint_000003 checkpoint_000009 given theirs "); /* the last ones nobody made here */
    expect_latest("checkpoint_000003");
}

/* A removal is on record of a name that was used again since. */
static void test_a_name_used_again_stays(void **state) {
    (void)state;
    policy.num_to_keep = 1;
    make(1, "best");
    make(2, "other");
    make(3, "best");
    expect_files("best ");
    close_run();
    open_run(true);
    expect_rows("best ");
    expect_files("best ");
    expect_latest("best");
}

static void count(void *context) {
    ++*(int *)context;
}

/* What the next attempt of a run does; true when there was something to look at. */
static bool look_at_latest(void) {
    int n = 0;
    bool looks = checkpoints_check_latest(checkpoints, count, &n);
    assert_int_equal(n, 0); /* the loop hears of it later */
    assert_true(storage_wait(checkpoints_storage(checkpoints), LONG));
    assert_int_equal(n, looks);
    return looks;
}

static void test_damage_is_passed_over(void **state) {
    (void)state;
    policy.num_to_keep = 0;
    for (uint64_t number = 1; number <= 3; number++)
        make(number, NULL);
    shell("rm checkpoint_000003/part; echo more >> checkpoint_000002/part");
    assert_true(look_at_latest());
    expect_latest("checkpoint_000001");
    expect_rows("checkpoint_000001 checkpoint_000002 checkpoint_000003 "); /* for whoever wants to look */
    shell("rm checkpoint_000001/part");
    assert_true(look_at_latest());
    assert_null(checkpoints_latest(checkpoints));
    assert_false(look_at_latest());
}

/* Nobody waits any longer: it has failed; when it comes to its end all the same, its files go. */
static void test_a_commit_that_comes_late(void **state) {
    (void)state;
    const char *files = "[]";
    ty_error err = {0};
    struct run_commit commit = {.number = 2, .attempt = 1, .files = &files, .n = 1};
    struct storage *storage = checkpoints_storage(checkpoints);
    struct pollfd fd = {.fd = storage_fd(storage), .events = POLLIN};
    make(1, NULL);
    write_files(2);
    assert_int_equal(pipe(gate), 0);
    closed = true;
    assert_int_equal(checkpoints_publish(checkpoints, &commit, NULL, &err), 0);
    checkpoints_settle(checkpoints, NS_PER_S / 100);
    assert_int_equal(last.result, -ETIMEDOUT);
    assert_non_null(strstr(last.error.message, "/.checkpoint_000002.attempt-1"));
    closed = false;
    assert_int_equal(write(gate[1], "x", 1), 1);
    while (storage_busy(storage)) {
        assert_int_equal(poll(&fd, 1, 60000), 1);
        storage_take(storage);
    }
    assert_int_equal(n_heard, 2);
    expect_rows("checkpoint_000001 ");
    expect_files("checkpoint_000001 ");
    expect_latest("checkpoint_000001");
    assert_int_equal(close(gate[0]) | close(gate[1]), 0);
}

/* Not even the row that names the run may be on record: a later controller could not tell whose it is. */
static void test_nothing_gets_its_place_off_the_record(void **state) {
    (void)state;
    const char *files = "[]";
    ty_error why = {0}, err = {0};
    struct run_commit commit = {.number = 2, .attempt = 1, .files = &files, .n = 1};
    make(1, NULL);
    write_files(2);
    (void)ty_fail(&why, -ENOSPC, "cannot write run.db: full");
    records_abandon(records, &why);
    assert_int_equal(checkpoints_publish(checkpoints, &commit, NULL, &err), -ENOSPC);
    assert_string_equal(err.message, "checkpoint 2 cannot be put on record: cannot write run.db: full");
    checkpoints_discard(checkpoints, 2, 1);
    expect_files("checkpoint_000001 ");
    expect_latest("checkpoint_000001");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_newest_are_kept),
        TEST(test_the_best_are_kept),
        TEST(test_rows_go_first),
        TEST(test_failures_leave_nothing),
        TEST(test_places_outside_are_let_be),
        TEST(test_places_inside_are_let_be),
        TEST(test_places_of_the_run_are_refused),
        TEST(test_a_name_that_is_taken),
        TEST(test_a_second_report_adds_to_the_first),
        TEST(test_a_name_goes_with_the_last_that_has_it),
        TEST(test_a_next_controller_keeps_what_was_added_to),
        TEST(test_a_next_controller_clears_up),
        TEST(test_a_name_used_again_stays),
        TEST(test_damage_is_passed_over),
        TEST(test_a_commit_that_comes_late),
        TEST(test_nothing_gets_its_place_off_the_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
