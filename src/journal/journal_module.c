/* The module: opens and closes journals, and gives the table of functions to the face.
 *
 * A writer holds an ordinary write-ahead connection. A reader never writes to the database, and uses the
 * gentlest way that works: without a write-ahead log (the run ended in order) the file alone; beside a live or
 * dead writer the log through its shared index; and where the index can neither be opened nor made (a dead
 * writer's run in a directory that is read-only), the log through an index in this process's memory, without
 * locks. */
#include "journal/journal_module.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/build.h"
#include "base/cleanup.h"
#include "journal/journal_schema.h"
#include "journal/journal_sqlite.h"

enum { BUSY_MS = 2000 };

/* 4 MiB of log before it is carried over into the file: seldom enough for a flood of reports, and a short stop
 * for each. */
#define TUNING "PRAGMA cache_size = -1024; PRAGMA wal_autocheckpoint = 1000"

static int code_of(sqlite3 *db, int rc) {
    int system_error = sqlite3_system_errno(db);
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return TY_ECORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_CANTOPEN:
        return system_error > 0 ? -system_error : -ENOENT;
    case SQLITE_IOERR:
        return system_error > 0 ? -system_error : -EIO;
    default:
        return TY_EFAULT;
    }
}

int sqlite_fail(struct journal *journal, int rc, const char *verb, ty_error *err) {
    int code = code_of(journal->db, rc);
    const char *why = sqlite3_errmsg(journal->db);
    if ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN) why = strerror(-code);
    return ty_fail(err, code, "cannot %s %s: %s", verb, journal->path, why);
}

static int check_version(struct journal *journal, int application, int version, ty_error *err) {
    if (application != JOURNAL_APPLICATION)
        return ty_fail(err, TY_ECORRUPT, "%s is not the journal of a run", journal->path);
    if (version != JOURNAL_VERSION)
        return ty_fail(err, TY_EVERSION, "%s is a journal of version %d; this trainyard %s reads version %d",
                       journal->path, version, TY_VERSION, JOURNAL_VERSION);
    return 0;
}

/* The first look into the file: SQLite opens it, and the log, only now. Gives SQLite's code in *rc. */
static int read_version(struct journal *journal, int *rc, ty_error *err) {
    sqlite3_stmt *look = NULL;
    int result = -1;
    *rc = sqlite3_prepare_v2(
        journal->db, "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version", -1,
        &look, NULL);
    if (*rc == SQLITE_OK) *rc = sqlite3_step(look);
    if (*rc == SQLITE_ROW)
        result = check_version(journal, sqlite3_column_int(look, 0), sqlite3_column_int(look, 1), err);
    else
        result = sqlite_fail(journal, *rc, "open", err);
    (void)sqlite3_finalize(look);
    return result;
}

static void close_database(struct journal *journal) {
    sqlite3_stmt **statements[] = {&journal->begin,
                                   &journal->commit,
                                   &journal->insert_event,
                                   &journal->insert_report,
                                   &journal->insert_checkpoint,
                                   &journal->delete_checkpoint,
                                   &journal->find_report};
    for (size_t i = 0; i < ARRAY_SIZE(statements); i++)
        (void)sqlite3_finalize(TAKE(*statements[i]));
    (void)sqlite3_close(TAKE(journal->db));
}

static void free_journal(struct journal *journal) {
    close_database(journal);
    free(journal->path);
    free(journal);
}

/* Opens `name` (a path or URI), tunes and looks into it. *rc is SQLite's code where that went wrong. */
static int open_database(struct journal *journal, const char *name, int flags, const char *tuning, int *rc,
                         ty_error *err) {
    *rc = sqlite3_open_v2(name, &journal->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (*rc == SQLITE_OK) *rc = sqlite3_busy_timeout(journal->db, BUSY_MS);
    if (*rc == SQLITE_OK) *rc = sqlite3_exec(journal->db, tuning, NULL, NULL, NULL);
    int result = *rc == SQLITE_OK ? read_version(journal, rc, err) : sqlite_fail(journal, *rc, "open", err);
    if (result < 0) close_database(journal);
    return result;
}

static void append_uri(struct buffer *uri, const char *path, const char *parameters) {
    buffer_text(uri, "file:");
    for (const char *at = path; *at != '\0'; at++)
        if (*at == '%' || *at == '?' || *at == '#')
            buffer_printf(uri, "%%%02x", (unsigned char)*at);
        else
            buffer_char(uri, *at);
    buffer_printf(uri, "?%s", parameters);
}

static int open_reader_with(struct journal *journal, const char *parameters, const char *tuning, int *rc,
                            ty_error *err) {
    CLEANUP(buffer_done) struct buffer uri = {0};
    append_uri(&uri, journal->path, parameters);
    *rc = SQLITE_NOMEM;
    if (uri.failed) return ty_fail_memory(err);
    return open_database(journal, uri.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, tuning, rc, err);
}

static bool has_log(const char *path) {
    CLEANUP(buffer_done) struct buffer log = {0};
    struct stat status;
    buffer_printf(&log, "%s-wal", path);
    return !log.failed && stat(log.data, &status) == 0 && status.st_size > 0;
}

static int open_reader(struct journal *journal, ty_error *err) {
    int rc;
    if (!has_log(journal->path)) return open_reader_with(journal, "mode=ro&immutable=1", "", &rc, err);
    int result = open_reader_with(journal, "mode=ro", "", &rc, err);
    if ((rc & 0xff) != SQLITE_CANTOPEN && (rc & 0xff) != SQLITE_READONLY) return result;
    return open_reader_with(journal, "mode=ro&vfs=unix-none", "PRAGMA locking_mode = EXCLUSIVE", &rc, err);
}

/* The log goes first: one that were left would be carried over into the next file of that name. */
static void remove_created(const char *path) {
    static const char *const parts[] = {"-wal", "-shm", ""};
    char name[PATH_MAX + sizeof "-wal"];
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, parts[i]);
        (void)unlink(name);
    }
}

static int open_writer(struct journal *journal, bool fresh, ty_error *err) {
    int rc;
    journal->writable = true;
    journal->fresh = fresh;
    const char *tuning = fresh ? TUNING "; PRAGMA synchronous = OFF" : TUNING "; " JOURNAL_SYNCHRONOUS;
    int result = open_database(journal, journal->path, SQLITE_OPEN_READWRITE, tuning, &rc, err);
    if (result < 0 && fresh) remove_created(journal->path);
    return result;
}

static int open_in_mode(struct journal *journal, enum journal_mode mode, ty_error *err) {
    struct stat status;
    if (mode == JOURNAL_CREATE) {
        int result = journal_create(journal->path, err);
        if (result < 0) return result;
    } else if (stat(journal->path, &status) < 0) {
        return ty_fail(err, -errno, "cannot open %s: %s", journal->path, strerror(errno));
    }
    return mode == JOURNAL_READ ? open_reader(journal, err) : open_writer(journal, mode == JOURNAL_CREATE, err);
}

static int module_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err) {
    struct journal *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    if (asprintf(&made->path, "%s/run.db", run_path) < 0) {
        free(made);
        return ty_fail_memory(err);
    }
    int result = open_in_mode(made, mode, err);
    if (result < 0) {
        free_journal(made);
        return result;
    }
    *journal = made;
    return 0;
}

/* Closing carries over what is left of the log. */
static void module_close(struct journal *journal) {
    if (journal->writable) (void)module_commit(journal, false, NULL);
    free_journal(journal);
}

__attribute__((visibility("default"))) const struct journal_module trainyard_journal = {
    .version = base_build,
    .open = module_open,
    .close = module_close,
    .finish = module_finish,
    .event = module_event,
    .report = module_report,
    .checkpoint = module_checkpoint,
    .forget_checkpoint = module_forget_checkpoint,
    .commit = module_commit,
    .each_event = module_each_event,
    .each_report = module_each_report,
    .each_checkpoint = module_each_checkpoint,
    .find_report = module_find_report,
    .count_reports = module_count_reports,
    .last_number = module_last_number,
};
