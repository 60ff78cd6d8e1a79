/* The files of a journal, in the hands of others: no client of SQLite, no copy made in the writer's own process
 * and no child of it takes an acknowledged row away; readers open nothing for writing and leave nothing behind,
 * and are right or say that they are not. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/cleanup.h"
#include "journal/journal_module.h"

static const struct journal_module *const module = &trainyard_journal;
static const char *const parts[] = {"run.db", "run.db-wal", "run.db-shm"};
static char run_path[64];
static bool on_a_network;

/* The file system that a reader believes in. */
__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *status) {
    (void)fd;
    *status = (struct statfs){.f_type = on_a_network ? NFS_SUPER_MAGIC : EXT4_SUPER_MAGIC};
    return 0;
}

static const char *path_of(const char *name) {
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", run_path, name);
    return path;
}

static bool exists(const char *name) {
    return access(path_of(name), F_OK) == 0;
}

static int set_up(void **state) {
    (void)state;
    on_a_network = false;
    strcpy(run_path, "/tmp/test_journal_files.XXXXXX");
    return mkdtemp(run_path) == NULL ? -1 : chmod(run_path, 0755);
}

static int tear_down(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        (void)unlink(path_of(parts[i]));
    (void)unlink(path_of("kept"));
    return rmdir(run_path);
}

static struct journal *opened(enum journal_mode mode) {
    struct journal *journal = NULL;
    ty_error err = {0};
    if (module->open(run_path, mode, &journal, &err) < 0) fail_msg("%s", err.message);
    return journal;
}

/* A report, committed: acknowledged. */
static void put(struct journal *journal, uint64_t number) {
    struct journal_report report = {
        .attempt = 1, .number = number, .time = 1, .metrics = "{}", .metrics_size = 2};
    ty_error err = {0};
    if (module->report(journal, &report, &err) < 0 || module->commit(journal, false, &err) < 0)
        fail_msg("report %u: %s", (unsigned)number, err.message);
}

static int count(void *context, struct journal *journal, ty_error *err) {
    return module->count_reports(journal, context, err);
}

static void expect_rows(uint64_t rows) {
    uint64_t found = 0;
    ty_error err = {0};
    if (module->read(run_path, count, &found, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(found, rows);
}

static void wait_for(pid_t child, int expected) {
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, expected);
}

static int64_t ask(sqlite3 *db, const char *sql) {
    sqlite3_stmt *statement = NULL;
    int64_t answer = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        answer = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return answer;
}

/* Another process looks, as `sqlite3 run.db` does: it may write, and tidies up behind itself if it is the last
 * one. */
static void look_from_outside(const char *sql, int64_t expected) {
    pid_t child = fork();
    if (child == 0) {
        sqlite3 *db = NULL;
        if (sqlite3_open(path_of("run.db"), &db) != SQLITE_OK) _exit(1);
        (void)sqlite3_busy_timeout(db, 5000);
        int64_t answer = ask(db, sql);
        (void)sqlite3_close(db);
        _exit(answer == expected ? 0 : 2);
    }
    wait_for(child, 0);
}

static void copy_in_this_process(void) {
    char bytes[4096];
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        int fd = open(path_of(parts[i]), O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        while (read(fd, bytes, sizeof bytes) > 0)
            continue;
        assert_int_equal(close(fd), 0);
    }
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of("run.db"), &db), SQLITE_OK);
    assert_true(ask(db, "SELECT count(*) FROM reports") > 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Runs `write` in a process that then dies without a word; its rows are there. */
static void die_after(void (*write)(void), uint64_t rows) {
    pid_t child = fork();
    if (child == 0) {
        write();
        (void)raise(SIGKILL);
    }
    wait_for(child, SIGKILL);
    expect_rows(rows);
    struct journal *journal = opened(JOURNAL_APPEND);
    put(journal, rows + 1);
    module->close(journal);
    expect_rows(rows + 1);
    assert_false(exists("run.db-wal"));
    assert_false(exists("run.db-shm"));
}

static void write_beside_copies(void) {
    struct journal *journal = opened(JOURNAL_CREATE);
    for (uint64_t number = 1; number <= 8; number++) {
        put(journal, number);
        copy_in_this_process();
        look_from_outside("SELECT count(*) FROM reports", (int64_t)number);
        assert_true(exists("run.db-wal"));
    }
}

static void a_copy_in_the_process_takes_no_row_away(void **state) {
    (void)state;
    die_after(write_beside_copies, 8);
}

/* In the middle of a transaction, too: the log is not emptied under it. */
static void write_beside_carriers(void) {
    struct journal *journal = opened(JOURNAL_CREATE);
    put(journal, 1);
    for (uint64_t number = 2; number <= 6; number++) {
        struct journal_report report = {.attempt = 1, .number = number, .metrics = "{}", .metrics_size = 2};
        assert_int_equal(module->report(journal, &report, NULL), 0);
        copy_in_this_process();
        pid_t child = fork();
        if (child == 0) {
            sqlite3 *db = NULL;
            (void)sqlite3_open(path_of("run.db"), &db);
            int64_t busy = ask(db, "PRAGMA wal_checkpoint(TRUNCATE)");
            (void)sqlite3_close(db);
            _exit((int)busy);
        }
        wait_for(child, 1 << 8);
        assert_int_equal(module->commit(journal, false, NULL), 0);
        look_from_outside("PRAGMA wal_checkpoint(PASSIVE)", 0); /* anybody may */
    }
}

static void who_carries_the_log_over_takes_no_row_away(void **state) {
    (void)state;
    die_after(write_beside_carriers, 6);
}

/* A shell that was left open in the middle of a transaction. */
static void write_beside_a_writer(void) {
    struct journal *journal = opened(JOURNAL_CREATE);
    for (uint64_t number = 1; number <= 3; number++) {
        sqlite3 *db = NULL;
        put(journal, number);
        assert_int_equal(sqlite3_open(path_of("run.db"), &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_BUSY);
        assert_int_equal(sqlite3_exec(db, "DELETE FROM reports", NULL, NULL, NULL), SQLITE_BUSY);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
}

static void nobody_else_writes(void **state) {
    (void)state;
    die_after(write_beside_a_writer, 3);
}

/* Another user locks all that he can open. */
static pid_t lock_as_another_user(void) {
    int pipe_ends[2];
    char done;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        if (setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) _exit(1);
        for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
            int fd = open(path_of(parts[i]), O_RDONLY | O_CLOEXEC);
            for (lock.l_start = 0; fd >= 0 && lock.l_start < 256; lock.l_start++, lock.l_len = 1)
                (void)fcntl(fd, F_OFD_SETLK, &lock);
        }
        if (write(pipe_ends[1], "", 1) == 1) (void)pause();
        _exit(1);
    }
    assert_int_equal(read(pipe_ends[0], &done, 1), 1);
    assert_int_equal(close(pipe_ends[0]), 0);
    assert_int_equal(close(pipe_ends[1]), 0);
    return child;
}

static void end(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    wait_for(child, SIGKILL);
}

static void who_may_only_read_holds_up_no_writer(void **state) {
    (void)state;
    if (geteuid() != 0) return; /* nobody else is at hand */
    struct journal *journal = opened(JOURNAL_CREATE);
    pid_t first = lock_as_another_user();
    put(journal, 1);
    pid_t second = lock_as_another_user();
    put(journal, 2);
    module->close(journal);
    expect_rows(2);
    journal = opened(JOURNAL_APPEND); /* beside the log, which stays as for any reader */
    put(journal, 3);
    module->close(journal);
    end(first);
    end(second);
    expect_rows(3);
}

static void write_beside_a_vandal(void) {
    struct journal *journal = opened(JOURNAL_CREATE);
    for (uint64_t number = 1; number <= 9; number++) {
        if (number % 3 != 1) (void)unlink(path_of("run.db-wal"));
        if (number % 3 != 2) (void)unlink(path_of("run.db-shm"));
        put(journal, number);
        look_from_outside("SELECT count(*) FROM reports", (int64_t)number);
    }
}

static void a_log_that_was_removed_is_made_anew(void **state) {
    (void)state;
    die_after(write_beside_a_vandal, 9);
}

static void call(const char *words) {
    char command[512];
    (void)snprintf(command, sizeof command, "cd %s && %s", run_path, words);
    assert_int_equal(system(command), 0);
}

/* An old log under the name would be taken for the latest pages. */
static void write_beside_a_restorer(void) {
    struct journal *journal = opened(JOURNAL_CREATE);
    put(journal, 1);
    call("cp run.db-wal kept");
    put(journal, 2);
    call("mv kept run.db-wal");
    put(journal, 3);
    put(journal, 4);
}

static void an_old_log_in_its_place_is_not_taken(void **state) {
    (void)state;
    die_after(write_beside_a_restorer, 4);
}

/* What is left where only run.db was removed. */
static void a_log_of_another_journal_is_not_taken(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        put(opened(JOURNAL_CREATE), 1);
        (void)raise(SIGKILL);
    }
    wait_for(child, SIGKILL);
    assert_true(exists("run.db-wal"));
    assert_int_equal(unlink(path_of("run.db")), 0);
    struct journal *journal = opened(JOURNAL_CREATE);
    expect_rows(0);
    put(journal, 1);
    assert_true(module->open(run_path, JOURNAL_CREATE, &(struct journal *){NULL}, NULL) < 0);
    put(journal, 2);
    module->close(journal);
    expect_rows(2);
}

/* Its locks must not outlive the writer in a child. */
static void a_child_holds_no_lock_on(void **state) {
    (void)state;
    int pipe_ends[2];
    pid_t sleeper = 0;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t writer = fork();
    if (writer == 0) {
        struct journal *journal = opened(JOURNAL_CREATE);
        put(journal, 1);
        struct journal_report report = {.attempt = 1, .number = 2, .metrics = "{}", .metrics_size = 2};
        (void)module->report(journal, &report, NULL); /* in a transaction */
        sleeper = fork();
        if (sleeper == 0) {
            sleeper = getpid();
            if (write(pipe_ends[1], &sleeper, sizeof sleeper) < 0) _exit(1);
            (void)pause();
        }
        (void)pause();
    }
    assert_int_equal(read(pipe_ends[0], &sleeper, sizeof sleeper), sizeof sleeper);
    assert_int_equal(kill(writer, SIGKILL), 0);
    wait_for(writer, SIGKILL);
    struct journal *journal = opened(JOURNAL_APPEND);
    put(journal, 2);
    module->close(journal);
    assert_false(exists("run.db-wal"));
    expect_rows(2);
    assert_int_equal(kill(sleeper, SIGKILL), 0);
    assert_int_equal(close(pipe_ends[0]), 0);
    assert_int_equal(close(pipe_ends[1]), 0);
}

/* ------------------------------------------------------------------------------------------------------------
 * readers */

struct meeting {
    struct journal *writer;
    int readings, changes; /* so many readings see a change */
    void (*change)(struct meeting *meeting);
    uint64_t rows;
};

static int read_and_meet(void *context, struct journal *journal, ty_error *err) {
    struct meeting *meeting = context;
    if (meeting->readings++ < meeting->changes) meeting->change(meeting);
    return count(&meeting->rows, journal, err);
}

/* Carries the log over, and begins it anew. */
static void carry_over(struct meeting *meeting) {
    assert_int_equal(module->finish(meeting->writer, NULL), 0);
    put(meeting->writer, 100 + (uint64_t)meeting->readings);
}

static void a_reader_on_a_network_looks_twice(void **state) {
    (void)state;
    struct meeting meeting = {.writer = opened(JOURNAL_CREATE), .changes = 4, .change = carry_over};
    ty_error err = {0};
    on_a_network = true;
    put(meeting.writer, 1);
    expect_rows(1);
    assert_int_equal(module->read(run_path, read_and_meet, &meeting, &err), 0);
    assert_int_equal(meeting.readings, 5);
    assert_int_equal(meeting.rows, 5);
    meeting.readings = 0;
    meeting.changes = 5;
    assert_int_equal(module->read(run_path, read_and_meet, &meeting, &err), -EBUSY);
    assert_non_null(strstr(err.message, "run.db is busy"));
    assert_true(exists("run.db-wal"));
    module->close(meeting.writer);
    expect_rows(10);
}

static void resume(struct meeting *meeting) {
    meeting->writer = opened(JOURNAL_APPEND);
    put(meeting->writer, 2);
}

static void a_run_that_is_resumed_is_read_again(void **state) {
    (void)state;
    struct meeting meeting = {.writer = opened(JOURNAL_CREATE), .changes = 1, .change = resume};
    put(meeting.writer, 1);
    module->close(meeting.writer);
    assert_int_equal(module->read(run_path, read_and_meet, &meeting, NULL), 0);
    assert_int_equal(meeting.readings, 2);
    assert_int_equal(meeting.rows, 2);
    module->close(meeting.writer);
}

/* Nothing of the directory changes with a reading: no name, no byte, no time. */
static void look_at_files(char *text, size_t size) {
    size_t at = 0;
    struct stat status = {0};
    assert_int_equal(stat(run_path, &status), 0);
    at += (size_t)snprintf(text, size, "%ld.%09ld", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        bool there = stat(path_of(parts[i]), &status) == 0;
        at += (size_t)snprintf(text + at, size - at, " %d %lu %ld %ld.%09ld", there, there ? status.st_ino : 0,
                               there ? status.st_size : 0, there ? status.st_mtim.tv_sec : 0,
                               there ? status.st_mtim.tv_nsec : 0);
    }
}

static void expect_no_trace(uint64_t rows) {
    for (int network = 0; network < 2; network++) {
        char before[512], after[512];
        on_a_network = network != 0;
        look_at_files(before, sizeof before);
        expect_rows(rows);
        look_at_files(after, sizeof after);
        assert_string_equal(before, after);
    }
    on_a_network = false;
}

static void a_reader_leaves_no_trace(void **state) {
    (void)state;
    struct journal *writer = opened(JOURNAL_CREATE);
    expect_no_trace(0);
    put(writer, 1);
    expect_no_trace(1);
    module->close(writer);
    expect_no_trace(1);
    pid_t child = fork();
    if (child == 0) {
        put(opened(JOURNAL_APPEND), 2);
        (void)raise(SIGKILL);
    }
    wait_for(child, SIGKILL);
    expect_no_trace(2);
    assert_int_equal(unlink(path_of("run.db-shm")), 0);
    expect_no_trace(2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_copy_in_the_process_takes_no_row_away),
        TEST(who_carries_the_log_over_takes_no_row_away),
        TEST(nobody_else_writes),
        TEST(who_may_only_read_holds_up_no_writer),
        TEST(a_log_that_was_removed_is_made_anew),
        TEST(an_old_log_in_its_place_is_not_taken),
        TEST(a_log_of_another_journal_is_not_taken),
        TEST(a_child_holds_no_lock_on),
        TEST(a_reader_on_a_network_looks_twice),
        TEST(a_run_that_is_resumed_is_read_again),
        TEST(a_reader_leaves_no_trace),
    };
    return cmocka_run_group_tests_name("journal_files", tests, NULL, NULL);
}
