/* The journal: what is written is read, by the writer, beside it and after it; a killed writer loses nothing
 * that it committed; a failed write leaves nothing half done; other files are refused by name. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "journal/journal.h"

static char run_path[64];

static char *path_of(const char *name) {
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", run_path, name);
    return path;
}

static bool exists(const char *name) {
    return access(path_of(name), F_OK) == 0;
}

static int set_up(void **state) {
    (void)state;
    strcpy(run_path, "/tmp/test_journal.XXXXXX");
    return mkdtemp(run_path) == NULL ? -1 : chmod(run_path, 0755);
}

static int tear_down(void **state) {
    (void)state;
    static const char *const names[] = {"run.db", "run.db-wal", "run.db-shm", "run.db.new"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlink(path_of(names[i]));
    return rmdir(run_path);
}

static struct journal *opened(enum journal_mode mode) {
    struct journal *journal = NULL;
    ty_error err = {0};
    int result = journal_open(run_path, mode, &journal, &err);
    if (result < 0) fail_msg("%s", err.message);
    return journal;
}

static int refused(enum journal_mode mode, const char *word) {
    struct journal *journal = NULL;
    ty_error err = {0};
    int result = journal_open(run_path, mode, &journal, &err);
    assert_true(result < 0);
    assert_null(journal);
    assert_int_equal(err.code, result);
    if (strstr(err.message, word) == NULL || strstr(err.message, "run.db") == NULL) fail_msg("%s", err.message);
    return result;
}

static void put_event(struct journal *journal, enum run_event_kind kind, int rank, const char *data) {
    struct journal_event event = {
        .time = 1000 + rank, .kind = kind, .attempt = 1, .rank = rank, .node = -1, .data = data};
    assert_int_equal(journal_event(journal, &event, NULL), 0);
}

static int put_report(struct journal *journal, int rank, uint64_t number, ty_error *err) {
    char metrics[64];
    (void)snprintf(metrics, sizeof metrics, "{\"step\": %u}", (unsigned)number);
    struct journal_report report = {.attempt = 1,
                                    .rank = rank,
                                    .number = number,
                                    .time = (nanoseconds)number * 10,
                                    .metrics = metrics,
                                    .metrics_size = strlen(metrics)};
    return journal_report(journal, &report, err);
}

static int append_event(void *context, int64_t sequence, const struct journal_event *event) {
    buffer_printf(context, "%d %s %d %d %d %s;", (int)sequence, run_event_name(event->kind), event->attempt,
                  event->rank, event->node, event->data != NULL ? event->data : "-");
    return 0;
}

static int append_report(void *context, const struct journal_report *report) {
    assert_int_equal(strlen(report->metrics), report->metrics_size);
    buffer_printf(context, "%d:%u@%d %s;", report->rank, (unsigned)report->number, (int)report->time,
                  report->metrics);
    return 0;
}

static int append_checkpoint(void *context, const struct journal_checkpoint *checkpoint) {
    buffer_printf(context, "%u %d %s %s;", (unsigned)checkpoint->number, checkpoint->attempt, checkpoint->name,
                  checkpoint->metrics != NULL ? checkpoint->metrics : "-");
    return 0;
}

static void expect_events(struct journal *journal, int64_t after, const char *text) {
    CLEANUP(buffer_done) struct buffer seen = {0};
    buffer_text(&seen, "");
    assert_int_equal(journal_each_event(journal, after, append_event, &seen, NULL), 0);
    assert_string_equal(seen.data, text);
}

static void expect_reports(struct journal *journal, int rank, size_t limit, const char *text) {
    CLEANUP(buffer_done) struct buffer seen = {0};
    buffer_text(&seen, "");
    assert_int_equal(journal_each_report(journal, rank, limit, append_report, &seen, NULL), 0);
    assert_string_equal(seen.data, text);
}

static uint64_t count_reports(struct journal *journal) {
    uint64_t count = 99;
    assert_int_equal(journal_count_reports(journal, &count, NULL), 0);
    return count;
}

static void opening_what_is_not_there(void **state) {
    (void)state;
    assert_int_equal(refused(JOURNAL_READ, "No such file"), -ENOENT);
    assert_int_equal(refused(JOURNAL_APPEND, "No such file"), -ENOENT);
    assert_false(exists("run.db"));
    char saved[sizeof run_path];
    strcpy(saved, run_path);
    strcpy(run_path, "/nonexistent/run");
    assert_int_equal(refused(JOURNAL_CREATE, "No such file"), -ENOENT);
    strcpy(run_path, saved);
}

static void creating_twice_is_refused(void **state) {
    (void)state;
    journal_close(opened(JOURNAL_CREATE));
    assert_int_equal(refused(JOURNAL_CREATE, "exists"), -EEXIST);
    assert_false(exists("run.db.new"));
    journal_close(NULL);
}

static void put_file(const char *bytes, size_t size) {
    int fd = open(path_of("run.db"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(close(fd), 0);
}

static void other_files_are_refused(void **state) {
    (void)state;
    put_file("", 0);
    assert_int_equal(refused(JOURNAL_READ, "not the journal"), TY_ECORRUPT);
    assert_int_equal(refused(JOURNAL_APPEND, "not the journal"), TY_ECORRUPT);
    char text[8192] = "This is not a database at all.";
    put_file(text, sizeof text);
    assert_int_equal(refused(JOURNAL_READ, "not a database"), TY_ECORRUPT);
    assert_int_equal(refused(JOURNAL_APPEND, "not a database"), TY_ECORRUPT);
    (void)unlink(path_of("run.db"));
    assert_int_equal(mkdir(path_of("run.db"), 0755), 0);
    assert_true(refused(JOURNAL_READ, "cannot open") < 0);
    assert_true(refused(JOURNAL_CREATE, "cannot create") < 0);
    assert_int_equal(rmdir(path_of("run.db")), 0);
}

/* Bytes 60 to 63 of the file hold the version, big-endian. */
static void a_newer_journal_is_refused(void **state) {
    (void)state;
    journal_close(opened(JOURNAL_CREATE));
    int fd = open(path_of("run.db"), O_WRONLY);
    assert_int_equal(pwrite(fd, "\7", 1, 63), 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(refused(JOURNAL_READ, "version 7"), TY_EVERSION);
    assert_int_equal(refused(JOURNAL_APPEND, "version 7"), TY_EVERSION);
}

static void an_empty_journal(void **state) {
    (void)state;
    journal_close(opened(JOURNAL_CREATE));
    struct journal *journal = opened(JOURNAL_READ);
    expect_events(journal, 0, "");
    expect_reports(journal, -1, 0, "");
    expect_reports(journal, -1, 5, "");
    assert_int_equal(count_reports(journal), 0);
    uint64_t number = 99;
    assert_int_equal(journal_last_number(journal, &number, NULL), 0);
    assert_int_equal(number, 0);
    journal_close(journal);
    assert_false(exists("run.db-wal"));
    assert_false(exists("run.db-shm"));
}

static void write_some(struct journal *journal) {
    put_event(journal, EVENT_RUN, -1, "{\"name\": \"a\"}");
    put_event(journal, EVENT_STARTED, 3, NULL);
    for (unsigned number = 1; number <= 3; number++)
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(put_report(journal, rank, number, NULL), 0);
    struct journal_checkpoint checkpoint = {3, 1, 50, "checkpoint_000003", "{\"step\": 3}"};
    assert_int_equal(journal_checkpoint(journal, &checkpoint, NULL), 0);
}

static void expect_some(struct journal *journal) {
    expect_events(journal, 0, "1 run 1 -1 -1 {\"name\": \"a\"};2 started 1 3 -1 -;");
    expect_events(journal, 1, "2 started 1 3 -1 -;");
    expect_events(journal, 2, "");
    expect_reports(journal, 1, 0, "1:1@10 {\"step\": 1};1:2@20 {\"step\": 2};1:3@30 {\"step\": 3};");
    expect_reports(journal, 0, 2, "0:2@20 {\"step\": 2};0:3@30 {\"step\": 3};");
    expect_reports(journal, -1, 3, "1:2@20 {\"step\": 2};0:3@30 {\"step\": 3};1:3@30 {\"step\": 3};");
    expect_reports(journal, 7, 0, "");
    assert_int_equal(count_reports(journal), 6);
    CLEANUP(buffer_done) struct buffer seen = {0};
    assert_int_equal(journal_each_checkpoint(journal, append_checkpoint, &seen, NULL), 0);
    assert_string_equal(seen.data, "3 1 checkpoint_000003 {\"step\": 3};");
}

static void written_is_read(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    write_some(journal);
    expect_some(journal);
    journal_close(journal); /* commits */
    assert_false(exists("run.db-wal"));
    assert_false(exists("run.db-shm"));

    journal = opened(JOURNAL_READ);
    expect_some(journal);
    journal_close(journal);
    assert_false(exists("run.db-wal"));
    assert_false(exists("run.db-shm"));
}

static void put_reports_of(struct journal *journal, int attempt, int rank, uint64_t first, uint64_t last) {
    for (uint64_t number = first; number <= last; number++) {
        struct journal_report report = {
            .attempt = attempt, .rank = rank, .number = number, .time = 10, .metrics = "{}", .metrics_size = 2};
        assert_int_equal(journal_report(journal, &report, NULL), 0);
    }
}

static void expect_last_reports(struct journal *journal, int attempt, const uint64_t expected[4]) {
    uint64_t numbers[4] = {99, 99, 99, 99};
    assert_int_equal(journal_last_reports(journal, attempt, numbers, 4, NULL), 0);
    assert_memory_equal(numbers, expected, sizeof numbers);
}

static void the_last_reports_of_an_attempt(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    expect_last_reports(journal, 1, (const uint64_t[]){0, 0, 0, 0});
    put_reports_of(journal, 1, 0, 1, 5);
    put_reports_of(journal, 1, 2, 1, 9);
    put_reports_of(journal, 1, 0, 6, 7);
    expect_last_reports(journal, 1, (const uint64_t[]){7, 0, 9, 0});
    expect_last_reports(journal, 2, (const uint64_t[]){0, 0, 0, 0});
    put_reports_of(journal, 2, 3, 10, 12);
    put_reports_of(journal, 2, 7, 10, 20); /* one rank too many */
    put_reports_of(journal, 2, 1, 10, 10);
    expect_last_reports(journal, 2, (const uint64_t[]){0, 10, 0, 12});
    put_reports_of(journal, 2, 0, 10, 11);
    put_reports_of(journal, 2, 2, 10, 10);
    expect_last_reports(journal, 2, (const uint64_t[]){11, 10, 10, 12}); /* of all, and no more is read */
    expect_last_reports(journal, 1, (const uint64_t[]){7, 0, 9, 0});
    journal_close(journal);
}

static void appending_goes_on(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    write_some(journal);
    journal_close(journal);
    journal = opened(JOURNAL_APPEND);
    put_event(journal, EVENT_RUN_END, -1, "{}");
    assert_int_equal(journal_commit_durable(journal, NULL), 0);
    expect_events(journal, 2, "3 run_end 1 -1 -1 {};");
    uint64_t number = 0;
    assert_int_equal(journal_last_number(journal, &number, NULL), 0);
    assert_int_equal(number, 3);
    struct journal_checkpoint checkpoint = {9, 2, 60, "checkpoint_000009", NULL};
    assert_int_equal(journal_checkpoint(journal, &checkpoint, NULL), 0);
    assert_int_equal(journal_checkpoint(journal, &checkpoint, NULL), 0); /* a second time */
    assert_int_equal(journal_last_number(journal, &number, NULL), 0);
    assert_int_equal(number, 9);
    assert_int_equal(journal_checkpoint_metrics(journal, 9, "{\"step\": 9}", NULL), 0);
    assert_int_equal(journal_checkpoint_metrics(journal, 7, "{}", NULL), 0); /* there is none */
    CLEANUP(buffer_done) struct buffer seen = {0};
    assert_int_equal(journal_each_checkpoint(journal, append_checkpoint, &seen, NULL), 0);
    assert_string_equal(seen.data, "3 1 checkpoint_000003 {\"step\": 3};9 2 checkpoint_000009 {\"step\": 9};");
    journal_close(journal);
}

static void a_reader_beside_the_writer(void **state) {
    (void)state;
    struct journal *writer = opened(JOURNAL_CREATE);
    write_some(writer);
    assert_int_equal(journal_commit(writer, NULL), 0);
    struct journal *reader = opened(JOURNAL_READ);
    expect_some(reader);
    put_event(writer, EVENT_READY, 3, NULL);
    expect_events(reader, 2, ""); /* not committed yet */
    assert_int_equal(journal_commit(writer, NULL), 0);
    expect_events(reader, 2, "3 ready 1 3 -1 -;");
    ty_error err = {0};
    assert_int_equal(put_report(reader, 0, 1, &err), -EROFS);
    assert_non_null(strstr(err.message, "run.db"));
    journal_close(reader);
    put_event(writer, EVENT_GONE, 3, NULL);
    journal_close(writer);
    assert_false(exists("run.db-wal"));
}

static void a_path_that_looks_like_an_address(void **state) {
    (void)state;
    char saved[sizeof run_path];
    strcpy(saved, run_path);
    strcat(run_path, "/a?b#c%41 &=");
    assert_int_equal(mkdir(run_path, 0755), 0);
    struct journal *writer = opened(JOURNAL_CREATE);
    write_some(writer);
    assert_int_equal(journal_commit(writer, NULL), 0);
    struct journal *reader = opened(JOURNAL_READ);
    expect_some(reader);
    journal_close(reader);
    journal_close(writer);
    reader = opened(JOURNAL_READ);
    expect_some(reader);
    journal_close(reader);
    assert_int_equal(tear_down(NULL), 0);
    strcpy(run_path, saved);
}

/* A child writes and kills itself, having committed all but its last event. */
static void killed_writer(void) {
    pid_t child = fork();
    if (child == 0) {
        struct journal *journal = opened(JOURNAL_CREATE);
        write_some(journal);
        (void)journal_commit(journal, NULL);
        put_event(journal, EVENT_RUN_END, -1, NULL);
        (void)raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_true(exists("run.db-wal"));
}

static void a_reader_after_a_killed_writer(void **state) {
    (void)state;
    killed_writer();
    for (int i = 0; i < 2; i++) {
        struct journal *reader = opened(JOURNAL_READ);
        expect_some(reader);
        journal_close(reader);
        assert_true(exists("run.db-wal")); /* reading did not tidy up */
    }
    struct journal *writer = opened(JOURNAL_APPEND);
    expect_some(writer);
    put_event(writer, EVENT_ATTEMPT, -1, NULL);
    journal_close(writer);
    assert_false(exists("run.db-wal"));
    assert_false(exists("run.db-shm"));
}

/* Reads as somebody who may write nothing; the exit status tells how it went. */
static void read_powerless(void) {
    assert_int_equal(chmod(run_path, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) < 0) _exit(1);
        struct journal *journal = NULL;
        ty_error err = {0};
        if (journal_open(run_path, JOURNAL_READ, &journal, &err) < 0) {
            (void)fprintf(stderr, "%s\n", err.message);
            _exit(2);
        }
        expect_some(journal);
        journal_close(journal);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(run_path, 0755), 0);
    assert_int_equal(status, 0);
}

static void a_reader_that_may_write_nothing(void **state) {
    (void)state;
    killed_writer();
    read_powerless();
    (void)unlink(path_of("run.db-shm"));
    read_powerless();
    assert_false(exists("run.db-shm"));
    journal_close(opened(JOURNAL_APPEND));
    assert_false(exists("run.db-wal"));
    read_powerless();
}

static void a_live_writer_read_by_the_powerless(void **state) {
    (void)state;
    struct journal *writer = opened(JOURNAL_CREATE);
    write_some(writer);
    assert_int_equal(journal_commit(writer, NULL), 0);
    read_powerless();
    journal_close(writer);
}

/* Commits numbered reports without end, telling each commit over a pipe; killed at a random moment, what it
 * told is there. */
static void what_was_committed_survives_a_kill(void **state) {
    (void)state;
    srand(20240607);
    for (int trial = 0; trial < 12; trial++) {
        int told[2];
        assert_int_equal(pipe(told), 0);
        pid_t child = fork();
        if (child == 0) {
            struct journal *journal = opened(trial == 0 ? JOURNAL_CREATE : JOURNAL_APPEND);
            uint64_t number = 0;
            for ((void)journal_last_number(journal, &number, NULL);;) {
                for (int i = 0; i < 10; i++)
                    if (put_report(journal, 0, ++number, NULL) < 0) _exit(1);
                if (journal_commit(journal, NULL) < 0) _exit(2);
                if (write(told[1], &number, sizeof number) < 0) _exit(3);
            }
        }
        assert_int_equal(close(told[1]), 0);
        uint64_t last = 0, number = 0;
        int commits = 1 + rand() % 400;
        while (commits-- > 0 && read(told[0], &number, sizeof number) == sizeof number)
            last = number;
        assert_int_equal(kill(child, SIGKILL), 0);
        while (read(told[0], &number, sizeof number) == sizeof number)
            last = number;
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(close(told[0]), 0);
        assert_true(last > 0);

        struct journal *reader = opened(JOURNAL_READ);
        uint64_t count = count_reports(reader);
        assert_true(count >= last && count % 10 == 0);
        assert_int_equal(journal_last_number(reader, &number, NULL), 0);
        assert_int_equal(number, count);
        journal_close(reader);
    }
}

/* A limit on the size of files stands in for a full disk. */
static void a_full_disk_is_told_and_kept(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct journal *journal = opened(JOURNAL_CREATE);
        write_some(journal);
        if (journal_commit(journal, NULL) < 0) _exit(1);
        (void)signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {256 << 10, 256 << 10};
        if (setrlimit(RLIMIT_FSIZE, &limit) < 0) _exit(2);
        ty_error err = {0};
        int result = 0;
        for (uint64_t number = 1; result == 0 && number < 100000; number++) {
            result = put_report(journal, 0, number, &err);
            if (result == 0 && number % 1000 == 0) result = journal_commit(journal, &err);
        }
        if (result == 0 || strstr(err.message, "run.db") == NULL) _exit(3);
        ty_error again = {0};
        struct journal_event event = {.kind = EVENT_RUN_END, .rank = -1, .node = -1};
        if (journal_event(journal, &event, &again) != result || strcmp(again.message, err.message) != 0)
            _exit(4);
        if (journal_commit_durable(journal, NULL) != result) _exit(5);
        if (journal_each_event(journal, 0, append_event, NULL, NULL) != result) _exit(6);
        journal_close(journal);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct journal *reader = opened(JOURNAL_READ);
    assert_int_equal((count_reports(reader) - 6) % 1000, 0); /* whole commits only */
    expect_events(reader, 0, "1 run 1 -1 -1 {\"name\": \"a\"};2 started 1 3 -1 -;");
    journal_close(reader);
}

static int stop_at_second(void *context, const struct journal_report *report) {
    (void)report;
    return ++*(int *)context == 2 ? 42 : 0;
}

static void a_callback_may_stop(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    write_some(journal);
    int calls = 0;
    assert_int_equal(journal_each_report(journal, -1, 0, stop_at_second, &calls, NULL), 42);
    assert_int_equal(calls, 2);
    journal_close(journal);
}

static int append_last(void *context, const struct journal_event *event, const char *checkpoint) {
    (void)append_event(context, 0, event);
    buffer_printf(context, " %s;", checkpoint != NULL ? checkpoint : "-");
    return 42;
}

static int append_end(struct journal_ends *ends, struct buffer *seen) {
    return journal_ends_read(ends, run_path, append_last, seen);
}

/* Each time in another file, as if they were journals of several runs. */
static void the_ends_of_many(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer seen = {0};
    struct journal_ends *ends = NULL;
    assert_int_equal(journal_ends_create(&ends, NULL), 0);
    assert_int_equal(append_end(ends, &seen), -EAGAIN); /* there is none */
    journal_close(opened(JOURNAL_CREATE));
    assert_int_equal(append_end(ends, &seen), -EAGAIN); /* it is empty */
    struct journal *journal = opened(JOURNAL_APPEND);
    put_event(journal, EVENT_RUN, -1, NULL);
    journal_close(journal);
    assert_int_equal(append_end(ends, &seen), 42);
    journal = opened(JOURNAL_APPEND);
    write_some(journal);
    struct journal_checkpoint checkpoint = {20, 1, 60, "checkpoint_000020", NULL};
    assert_int_equal(journal_checkpoint(journal, &checkpoint, NULL), 0);
    assert_int_equal(journal_commit(journal, NULL), 0);
    assert_int_equal(append_end(ends, &seen), -EAGAIN); /* it is written */
    journal_close(journal);
    assert_int_equal(append_end(ends, &seen), 42);
    journal = opened(JOURNAL_APPEND);
    put_event(journal, (enum run_event_kind)RUN_EVENT_KINDS, -1, NULL); /* of a later version */
    journal_close(journal);
    assert_int_equal(append_end(ends, &seen), -EAGAIN);
    assert_int_equal(unlink(path_of("run.db")), 0);
    journal = opened(JOURNAL_CREATE);
    for (int i = 0; i < 100; i++)
        put_event(journal, EVENT_GONE, i, NULL);
    journal_close(journal);
    assert_int_equal(append_end(ends, &seen), 42);
    assert_int_equal(truncate(path_of("run.db"), 4096), 0);
    assert_int_equal(append_end(ends, &seen), -EAGAIN);
    assert_string_equal(seen.data,
                        "0 run 1 -1 -1 -; -;0 started 1 3 -1 -; checkpoint_000020;0 gone 1 99 -1 -; -;");
    journal_ends_destroy(ends);
}

static int write_meanwhile(void *context, int64_t sequence, const struct journal_event *event) {
    (void)sequence;
    if (event->kind == EVENT_STARTED) put_event(context, EVENT_GONE, event->rank, event->data);
    return 0;
}

static void a_callback_may_write(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    write_some(journal);
    assert_int_equal(journal_each_event(journal, 0, write_meanwhile, journal, NULL), 0);
    expect_events(journal, 2, "3 gone 1 3 -1 -;");
    journal_close(journal);
}

/* Of a later version, whose run an older one may look at. */
static void an_unknown_event_is_passed_over(void **state) {
    (void)state;
    struct journal *journal = opened(JOURNAL_CREATE);
    put_event(journal, (enum run_event_kind)RUN_EVENT_KINDS, -1, NULL);
    put_event(journal, EVENT_GONE, 3, NULL);
    expect_events(journal, 0, "2 gone 1 3 -1 -;");
    journal_close(journal);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(opening_what_is_not_there),
        TEST(creating_twice_is_refused),
        TEST(other_files_are_refused),
        TEST(a_newer_journal_is_refused),
        TEST(an_empty_journal),
        TEST(written_is_read),
        TEST(the_last_reports_of_an_attempt),
        TEST(appending_goes_on),
        TEST(a_reader_beside_the_writer),
        TEST(a_path_that_looks_like_an_address),
        TEST(a_reader_after_a_killed_writer),
        TEST(a_reader_that_may_write_nothing),
        TEST(a_live_writer_read_by_the_powerless),
        TEST(what_was_committed_survives_a_kill),
        TEST(a_full_disk_is_told_and_kept),
        TEST(a_callback_may_stop),
        TEST(the_ends_of_many),
        TEST(a_callback_may_write),
        TEST(an_unknown_event_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
