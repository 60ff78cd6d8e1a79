/* The journal when the calls beneath it fail: each file call of a whole life (opened, written, finished,
 * closed) fails once, or from there on, or writes half before that; or the power goes, and with it what was not
 * synced; or memory runs short, at each allocation. Whoever opens the journal next finds a whole beginning of
 * what was written, with all that was acknowledged, and goes on. The functions below stand before libc's, for
 * SQLite as well. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "failing_memory.h"
#include "journal/journal_module.h"

/* ------------------------------------------------------------------------------------------------- calls that
 * fail */

enum mode {
    FAILS_ONCE,
    FAILS_FROM_THEN_ON,
    TEARS,     /* a write writes half; everything fails from then on */
    LOSES_ALL, /* the power goes: what was not synced is not there afterwards */
    LOSES_LOG, /* of the log alone; of the file it happens to be there */
    LOSES_FILE,
    MODES,
};

static struct {
    bool armed;
    enum mode mode;
    long left; /* calls that still succeed */
    bool failed;
    const char *call; /* the first that failed */
} fault;

/* What of the files is on the disk: bytes as they were synced last, names as their directory was. */
static struct kept_file {
    const char *name;
    bool named;
    struct buffer bytes;
} disk[] = {{.name = "run.db"}, {.name = "run.db-wal"}};

static char run_path[64];

/* Whether this call fails; errno is set then. */
static bool fails(const char *call) {
    if (!fault.armed) return false;
    bool first = fault.left-- == 0;
    if (first) {
        fault.failed = true;
        fault.call = call;
    }
    errno = EIO;
    return first || (fault.failed && fault.mode != FAILS_ONCE);
}

/* How much of a write that fails is written. */
static size_t torn(size_t size) {
    return fault.left == -1 && fault.mode == TEARS ? size / 2 : 0;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))
#define INTERPOSED __attribute__((visibility("default")))

INTERPOSED ssize_t write(int fd, const void *bytes, size_t size) {
    if (!fails("write")) return REAL(write)(fd, bytes, size);
    ssize_t half = torn(size) > 0 ? REAL(write)(fd, bytes, torn(size)) : 0;
    errno = EIO;
    return half < 0 ? half : -1;
}

INTERPOSED ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    if (!fails("pwrite64")) return REAL(pwrite64)(fd, bytes, size, at);
    ssize_t half = torn(size) > 0 ? REAL(pwrite64)(fd, bytes, torn(size), at) : 0;
    errno = EIO;
    return half < 0 ? half : -1;
}

static void keep_bytes(const char *path) {
    const char *name = strrchr(path, '/') + 1;
    for (size_t i = 0; i < ARRAY_SIZE(disk); i++) {
        if (!str_equal(name, disk[i].name)) continue;
        buffer_clear(&disk[i].bytes);
        assert_int_equal(file_read(path, 1 << 24, &disk[i].bytes, NULL), 0);
    }
}

static void keep_names(void) {
    char path[128];
    for (size_t i = 0; i < ARRAY_SIZE(disk); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", run_path, disk[i].name);
        disk[i].named = access(path, F_OK) == 0;
    }
}

/* Nothing is really synced: the test would wait for it. */
static int sync_to_disk(int fd) {
    char link[64], path[256];
    if (!fault.armed) return 0;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    assert_true(size > 0);
    path[size] = '\0';
    bool of_names = str_equal(path, run_path);
    if (fails(of_names ? "sync of names" : "sync")) return -1;
    if (of_names)
        keep_names();
    else
        keep_bytes(path);
    return 0;
}

INTERPOSED int fdatasync(int fd) {
    return sync_to_disk(fd);
}

INTERPOSED int fsync(int fd) {
    return sync_to_disk(fd);
}

INTERPOSED int ftruncate64(int fd, off64_t size) {
    return fails("ftruncate64") ? -1 : REAL(ftruncate64)(fd, size);
}

INTERPOSED int unlink(const char *path) {
    return fails("unlink") ? -1 : REAL(unlink)(path);
}

INTERPOSED int rename(const char *from, const char *to) {
    return fails("rename") ? -1 : REAL(rename)(from, to);
}

INTERPOSED int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    return fails("linkat") ? -1 : REAL(linkat)(from_directory, from, to_directory, to, flags);
}

static void arm(long k, enum mode mode) {
    for (size_t i = 0; i < ARRAY_SIZE(disk); i++) {
        buffer_clear(&disk[i].bytes);
        disk[i].named = false;
    }
    fault = (typeof(fault)){.armed = true, .mode = mode, .left = k};
}

static void restore(const struct kept_file *file) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", run_path, file->name);
    (void)unlink(path);
    if (!file->named) return;
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_int_equal(file_write_all(fd, file->bytes.data, file->bytes.size), 0);
}

/* The machine goes down, if that is what was tried, and comes back. */
static void come_back(void) {
    char path[128];
    fault.armed = false;
    if (!fault.failed || fault.mode < LOSES_ALL) return;
    (void)snprintf(path, sizeof path, "%s/run.db-shm", run_path);
    (void)unlink(path);
    if (fault.mode != LOSES_LOG) restore(&disk[0]);
    if (fault.mode != LOSES_FILE) restore(&disk[1]);
}

/* ----------------------------------------------------------------------------------------------------------- a
 * life */

enum { ROWS = 12, METRICS = 3000 };

static const struct journal_module *const module = &trainyard_journal;

struct life {
    bool opened;
    int acknowledged, durable; /* rows */
    ty_error error;            /* the first that was told */
};

static bool told(struct life *life, int result, const ty_error *err) {
    if (result >= 0) return false;
    assert_int_equal(result, err->code);
    if (strstr(err->message, "out of memory") == NULL && strstr(err->message, "run.db") == NULL)
        fail_msg("%d %s", result, err->message);
    if (life->error.code == 0) life->error = *err;
    return true;
}

/* Rows are numbered from 1; every third is an event, a report, a checkpoint. */
static int put(struct journal *journal, int row, ty_error *err) {
    static char metrics[METRICS];
    memset(metrics, 'm', sizeof metrics);
    if (row % 3 == 1)
        return module->event(journal, &(struct journal_event){.kind = EVENT_READY, .rank = row, .data = "{}"},
                             err);
    if (row % 3 == 2)
        return module->report(journal,
                              &(struct journal_report){
                                  .number = (uint64_t)row, .metrics = metrics, .metrics_size = sizeof metrics},
                              err);
    return module->checkpoint(journal, &(struct journal_checkpoint){.number = (uint64_t)row, .name = "c"}, err);
}

static void write_rows(struct journal *journal, struct life *life) {
    static const int commits[ROWS + 1] = {[2] = 1, [4] = 2, [7] = 1, [8] = 1, [9] = 2, [11] = 1};
    for (int row = 1; row <= ROWS; row++) {
        ty_error err = {0};
        bool failed = told(life, put(journal, row, &err), &err);
        if (!failed && commits[row] > 0) {
            failed = told(life, module->commit(journal, commits[row] == 2, &err), &err);
            if (!failed) life->acknowledged = row;
            if (!failed && commits[row] == 2) life->durable = row;
        }
        assert_int_equal(failed, life->error.code < 0); /* it is kept */
    }
}

static void live(struct life *life) {
    struct journal *journal = NULL;
    ty_error err = {0};
    if (told(life, module->open(run_path, JOURNAL_CREATE, &journal, &err), &err)) return;
    life->opened = true;
    write_rows(journal, life);
    bool failed = told(life, module->finish(journal, &err), &err);
    assert_int_equal(failed, life->error.code < 0);
    if (!failed) life->acknowledged = life->durable = ROWS;
    module->close(journal);
}

/* ------------------------------------------------------------------------------------------------- what is
 * found of it */

static int see_event(void *seen, int64_t sequence, const struct journal_event *event) {
    (void)sequence;
    *(uint64_t *)seen |= 1u << event->rank;
    return 0;
}

static int see_report(void *seen, const struct journal_report *report) {
    assert_int_equal(report->metrics_size, METRICS);
    assert_int_equal(report->metrics[METRICS - 1], 'm');
    *(uint64_t *)seen |= 1u << report->number;
    return 0;
}

static int see_checkpoint(void *seen, const struct journal_checkpoint *checkpoint) {
    *(uint64_t *)seen |= 1u << checkpoint->number;
    return 0;
}

/* How many rows there are: a beginning without holes. */
static int count_rows(struct journal *journal) {
    uint64_t seen = 1;
    ty_error err = {0};
    if (module->each_event(journal, 0, see_event, &seen, &err) != 0 ||
        module->each_report(journal, -1, 0, see_report, &seen, &err) != 0 ||
        module->each_checkpoint(journal, see_checkpoint, &seen, &err) != 0)
        fail_msg("%s", err.message);
    if ((seen & (seen + 1)) != 0) fail_msg("rows %#lx", (unsigned long)seen);
    return __builtin_popcountll(seen) - 1;
}

static struct journal *opened(enum journal_mode mode) {
    struct journal *journal = NULL;
    ty_error err = {0};
    if (module->open(run_path, mode, &journal, &err) != 0) fail_msg("%s", err.message);
    return journal;
}

static int count_in(enum journal_mode mode) {
    struct journal *journal = opened(mode);
    int rows = count_rows(journal);
    module->close(journal);
    return rows;
}

static void go_on(int rows) {
    struct journal *journal = opened(JOURNAL_APPEND);
    assert_int_equal(count_rows(journal), rows);
    assert_int_equal(put(journal, rows + 1, NULL), 0);
    assert_int_equal(module->finish(journal, NULL), 0);
    module->close(journal);
    assert_int_equal(count_in(JOURNAL_READ), rows + 1);
}

static bool file_is_there(const char *name) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", run_path, name);
    return access(path, F_OK) == 0;
}

static void remove_all(void) {
    static const char *const names[] = {"run.db", "run.db-wal", "run.db-shm", "run.db.new"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", run_path, names[i]);
        (void)unlink(path);
    }
}

/* Before anything was durable the power may leave a file without bytes; it is told by name. */
static bool is_refused(void) {
    struct journal *journal = NULL;
    ty_error err = {0};
    int result = module->open(run_path, JOURNAL_APPEND, &journal, &err);
    if (result == 0) {
        module->close(journal);
        return false;
    }
    assert_int_equal(result, TY_ECORRUPT);
    assert_non_null(strstr(err.message, "run.db"));
    return true;
}

static void check(const struct life *life) {
    bool power_went = fault.failed && fault.mode >= LOSES_ALL;
    int least = power_went ? life->durable : life->acknowledged;
    if (!file_is_there("run.db") || (power_went && least == 0 && is_refused())) {
        assert_int_equal(least, 0);
        if (!power_went) assert_false(life->opened);
        if (fault.mode == FAILS_ONCE) assert_false(file_is_there("run.db-wal"));
        remove_all();
        module->close(opened(JOURNAL_CREATE));
        return;
    }
    int rows = count_in(JOURNAL_READ);
    assert_in_range(rows, least, ROWS);
    go_on(rows);
}

/* SQLite does not tell that a new log's name was not synced (unless the power goes as well, that harms nobody),
 * and a log that is left after its journal was closed is found empty or carried over once more. */
static bool may_be_passed_over(const char *call) {
    return str_equal(call, "unlink") || (str_equal(call, "sync of names") && fault.mode == FAILS_ONCE);
}

/* False when fewer than k + 1 calls were made. */
static bool live_with_fault(long k, enum mode mode) {
    struct life life = {0};
    arm(k, mode);
    live(&life);
    come_back();
    if (fault.failed && life.error.code == 0 && !may_be_passed_over(fault.call))
        fail_msg("call %ld, %s, mode %d: nobody was told", k, fault.call, mode);
    check(&life);
    remove_all();
    return fault.failed;
}

static void each_call_fails(void **state) {
    (void)state;
    long calls = 0;
    assert_false(live_with_fault(100000, FAILS_ONCE));
    for (int mode = 0; mode < MODES; mode++)
        for (calls = 0; live_with_fault(calls, (enum mode)mode);)
            calls++;
    assert_in_range(calls, 40, 1000);
}

/* ------------------------------------------------------------------------------------------------- memory runs
 * short */

static sqlite3_mem_methods own_memory;

/* SQLite's allocations count among ours. */
static bool is_short(void) {
    void *probe = malloc(1);
    free(probe);
    return probe == NULL;
}

static void *allocate(int size) {
    return is_short() ? NULL : own_memory.xMalloc(size);
}

static void *reallocate(void *old, int size) {
    return is_short() ? NULL : own_memory.xRealloc(old, size);
}

static void share_memory(void) {
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &own_memory), SQLITE_OK);
    sqlite3_mem_methods counted = own_memory;
    counted.xMalloc = allocate;
    counted.xRealloc = reallocate;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &counted), SQLITE_OK);
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
}

static bool memory_failed(bool for_good) {
    return memory_fails_after(-1, false) <= (for_good ? 0 : -1);
}

/* All is there, or the error was told. */
static bool live_without_memory(long k, bool for_good) {
    struct life life = {0};
    fault = (typeof(fault)){0};
    (void)memory_fails_after(k, for_good);
    live(&life);
    bool failed = memory_failed(for_good);
    if (life.error.code == 0)
        assert_int_equal(life.durable, ROWS);
    else
        assert_int_equal(life.error.code, -ENOMEM);
    if (!life.opened) assert_false(file_is_there("run.db"));
    check(&life);
    remove_all();
    return failed;
}

static bool is_whole(int result, const ty_error *err) {
    if (result >= 0) return true;
    assert_int_equal(result, -ENOMEM);
    assert_int_equal(err->code, -ENOMEM);
    return false;
}

static void look_for_a_report(struct journal *journal, ty_error *err) {
    CLEANUP_FREE char *metrics = NULL;
    int result = module->find_report(journal, 0, 0, 2, &metrics, err);
    if (is_whole(result, err)) assert_int_equal(strspn(metrics, "m"), METRICS);
}

static void look_at_all(struct journal *journal) {
    uint64_t events = 1, reports = 1, checkpoints = 1, count = 0, last = 0;
    ty_error err = {0};
    if (is_whole(module->each_event(journal, 0, see_event, &events, &err), &err))
        assert_int_equal(events, 0x493);
    if (is_whole(module->each_report(journal, -1, 3, see_report, &reports, &err), &err))
        assert_int_equal(reports, 0x921);
    if (is_whole(module->each_checkpoint(journal, see_checkpoint, &checkpoints, &err), &err))
        assert_int_equal(checkpoints, 0x1249);
    if (is_whole(module->count_reports(journal, &count, &err), &err)) assert_int_equal(count, 4);
    if (is_whole(module->last_number(journal, &last, &err), &err)) assert_int_equal(last, ROWS);
    look_for_a_report(journal, &err);
}

static bool read_without_memory(long k, bool for_good, enum journal_mode mode) {
    struct journal *journal = NULL;
    ty_error err = {0};
    (void)memory_fails_after(k, for_good);
    int result = module->open(run_path, mode, &journal, &err);
    if (is_whole(result, &err)) look_at_all(journal);
    if (journal != NULL) module->close(journal);
    bool failed = memory_failed(for_good);
    assert_int_equal(count_in(JOURNAL_READ), ROWS);
    return failed;
}

static void each_allocation_of_a_writer_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        long k = 0;
        while (live_without_memory(k, for_good))
            k++;
        assert_in_range(k, 200, 100000);
    }
}

static void each_allocation_of_a_reader_fails(void **state) {
    (void)state;
    struct life life = {0};
    live(&life);
    assert_int_equal(life.durable, ROWS);
    for (int mode = JOURNAL_APPEND; mode <= JOURNAL_READ; mode++)
        for (int for_good = 0; for_good < 2; for_good++) {
            long k = 0;
            while (read_without_memory(k, for_good, (enum journal_mode)mode))
                k++;
            assert_in_range(k, 100, 100000);
        }
    remove_all();
}

static int set_up(void **state) {
    (void)state;
    share_memory();
    strcpy(run_path, "/tmp/test_journal_faults.XXXXXX");
    return mkdtemp(run_path) == NULL ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(disk); i++)
        buffer_done(&disk[i].bytes);
    return rmdir(run_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(each_allocation_of_a_writer_fails),
        cmocka_unit_test(each_allocation_of_a_reader_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
