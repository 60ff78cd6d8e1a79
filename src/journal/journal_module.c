/* The module: opens and closes journals, and gives the table of functions to the face.
 *
 * A writer holds a write-ahead connection, with locks of its own (journal_files.c). A reader looks at the files
 * first (journal_guard.c): without a log (the run ended in order) it reads the file alone; beside a live or
 * dead writer on this machine's own disk the log, through the index that is there; and elsewhere, or where
 * there is no index, through one in its own memory, without locks. */
#include "journal/journal_module.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "journal/journal_sqlite.h"

enum { BUSY_MS = 2000, READINGS = 5 };

/* 4 MiB of log before it is carried over into the file: seldom enough for a flood of reports, and a short stop
 * for each. */
#define TUNING "PRAGMA cache_size = -1024; PRAGMA wal_autocheckpoint = 1000"

/* Codes are extended ones, whose lowest byte is the plain code. Of a file that is not there SQLite says
 * SQLITE_CANTOPEN, at times without keeping the system's error. */
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
    if ((rc & 0xff) == SQLITE_CANTOPEN) {
        /* Of a path that is too long SQLite says that it is unable to open it, and no more. Its limit is that
         * of its files, on the whole path without links, with what is added for the names beside it. */
        CLEANUP_FREE char *real = realpath(journal->path, NULL);
        size_t length = real != NULL ? strlen(real) : 0;
        size_t most = (size_t)sqlite3_vfs_find(NULL)->mxPathname - strlen("-journal");
        if (length > most)
            return ty_fail(err, TY_EUSAGE,
                           "the path %s has %zu bytes: SQLite opens at most %zu; choose a shorter place",
                           journal->path, length, most);
    }
    const char *why = sqlite3_errmsg(journal->db);
    if ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN) why = strerror(-code);
    return ty_fail(err, code, "cannot %s %s: %s", verb, journal->path, why);
}

const struct journal_form journal_of_run = {.name = "run.db",
                                            .what = "the journal of a run",
                                            .schema = JOURNAL_SCHEMA,
                                            .tables = "'events', 'reports', 'checkpoints'",
                                            .application = 0x54596a6e,
                                            .version = 1,
                                            .n_tables = 3};

/* The number that a statement gives. SQLite's code in *rc. */
static int read_number(struct journal *journal, const char *sql, int *number, int *rc, ty_error *err) {
    sqlite3_stmt *look = NULL;
    *rc = sqlite3_prepare_v2(journal->db, sql, -1, &look, NULL);
    if (*rc == SQLITE_OK) *rc = sqlite3_step(look);
    int result = *rc == SQLITE_ROW ? 0 : sqlite_fail(journal, *rc, "open", err);
    *number = result == 0 ? sqlite3_column_int(look, 0) : 0;
    (void)sqlite3_finalize(look);
    return result;
}

/* The first look into the file: SQLite opens it, and the log, only now. Gives SQLite's code in *rc. A view
 * under the name of a table could have rows without end. */
static int read_version(struct journal *journal, int *rc, ty_error *err) {
    const struct journal_form *form = journal->form;
    int application = 0, version = 0, tables = 0;
    char sql[192];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name IN (%s)",
                   form->tables);
    int result = read_number(journal, "PRAGMA application_id", &application, rc, err);
    if (result == 0) result = read_number(journal, "PRAGMA user_version", &version, rc, err);
    if (result == 0) result = read_number(journal, sql, &tables, rc, err);
    if (result < 0) return result;
    if (application != form->application || (version == form->version && tables != form->n_tables))
        return ty_fail(err, TY_ECORRUPT, "%s is not %s", journal->path, form->what);
    if (version != form->version)
        return ty_fail(err, TY_EVERSION, "%s is a journal of version %d; this trainyard %s reads version %d",
                       journal->path, version, TY_VERSION, form->version);
    return 0;
}

static void close_database(struct journal *journal) {
    sqlite3_stmt **statements[] = {&journal->begin,
                                   &journal->commit,
                                   &journal->insert_event,
                                   &journal->insert_report,
                                   &journal->insert_checkpoint,
                                   &journal->update_checkpoint,
                                   &journal->delete_checkpoint,
                                   &journal->find_report,
                                   &journal->reports_between,
                                   &journal->insert_sample};
    for (size_t i = 0; i < ARRAY_SIZE(statements); i++)
        (void)sqlite3_finalize(TAKE(*statements[i]));
    (void)sqlite3_close(TAKE(journal->db));
}

static void free_journal(struct journal *journal) {
    close_database(journal);
    free(journal->path);
    free(journal);
}

struct opening {
    const char *name; /* a path or URI */
    int flags;
    const char *layer, *tuning;
};

/* Opens, tunes and looks into it. *rc is SQLite's code where that went wrong. Who only reads carries nothing
 * over when it closes. SQLite needs no mutex of its own (NOMUTEX), as one thread at a time has a journal. */
static int open_database(struct journal *journal, const struct opening *opening, int *rc, ty_error *err) {
    int flags = opening->flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    *rc = journal_files_init();
    if (*rc != SQLITE_OK)
        return ty_fail(err, TY_EFAULT, "cannot open %s: SQLite has no files here", journal->path);
    *rc = sqlite3_open_v2(opening->name, &journal->db, flags, opening->layer);
    if (*rc == SQLITE_OK && !journal->writable)
        *rc = sqlite3_db_config(journal->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (*rc == SQLITE_OK) *rc = sqlite3_busy_timeout(journal->db, BUSY_MS);
    if (*rc == SQLITE_OK) *rc = sqlite3_exec(journal->db, opening->tuning, NULL, NULL, NULL);
    int result = *rc == SQLITE_OK ? read_version(journal, rc, err) : sqlite_fail(journal, *rc, "open", err);
    if (result < 0) close_database(journal);
    return result;
}

static int open_reader_with(struct journal *journal, const char *parameters, const char *layer,
                            const char *tuning, int *rc, ty_error *err) {
    CLEANUP(buffer_done) struct buffer uri = {0};
    buffer_text(&uri, "file:");
    for (const char *at = journal->path; *at != '\0'; at++)
        if (*at == '%' || *at == '?' || *at == '#')
            buffer_printf(&uri, "%%%02x", (unsigned char)*at);
        else
            buffer_char(&uri, *at);
    buffer_printf(&uri, "?%s", parameters);
    *rc = SQLITE_NOMEM;
    if (uri.failed) return ty_fail_memory(err);
    const struct opening opening = {uri.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, layer, tuning};
    return open_database(journal, &opening, rc, err);
}

/* Reports are read once, one behind the other: many pages would be taken from the system and given back at
 * each reading, and none of them used again. */
#define READER_TUNING "PRAGMA cache_size = -256"

/* A journal that does not open may only have changed since it was looked at, as a run ended or was resumed.
 *
 * `immutable` has SQLite look for no log and take no locks. `readonly_shm` has it use the index that is there,
 * and make none. With locks that are exclusive from the beginning it keeps an index in its own memory, which it
 * makes of the log (sqlite.org/wal.html, 8: "Use of WAL Without Shared-Memory"); the layer without locks takes
 * none. */
static int open_reader(struct journal *journal, ty_error *err) {
    for (int tries = 1;; tries++) {
        int rc, result = journal_look(journal->path, &journal->look, err);
        if (result < 0) return result;
        if (journal->look.way == JOURNAL_ALONE)
            result = open_reader_with(journal, "mode=ro&immutable=1", JOURNAL_READER, READER_TUNING, &rc, err);
        if (journal->look.way == JOURNAL_INDEXED) {
            result =
                open_reader_with(journal, "mode=ro&readonly_shm=1", JOURNAL_READER, READER_TUNING, &rc, err);
            /* An index that cannot be opened (none is there, or it is not for us to read) leaves the log to be
             * read without it. */
            if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY)
                journal->look.way = JOURNAL_GUARDED;
        }
        if (journal->look.way == JOURNAL_GUARDED)
            result = open_reader_with(journal, "mode=ro", JOURNAL_LONE_READER,
                                      "PRAGMA locking_mode = EXCLUSIVE;" READER_TUNING, &rc, err);
        if (result == 0 || tries == READINGS || journal_look_stays(&journal->look, journal->path))
            return result;
    }
}

/* The log goes first: one that were left would be carried over into the next file of that name. */
void journal_remove(const char *path, bool all) {
    static const char *const parts[] = {"-wal", "-shm", ""};
    char name[PATH_MAX + sizeof "-wal"];
    for (size_t i = 0; i < ARRAY_SIZE(parts) - (all ? 0 : 1); i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, parts[i]);
        (void)unlink(name);
    }
}

/* A new file has nothing to protect, and is not synced until its first commit (module_commit); where it does
 * not even open, nothing is left of it. */
static int open_writer(struct journal *journal, bool fresh, ty_error *err) {
    int rc;
    journal->writable = true;
    journal->fresh = fresh;
    const char *tuning = fresh ? TUNING "; PRAGMA synchronous = OFF" : TUNING "; " JOURNAL_SYNCHRONOUS;
    const struct opening opening = {journal->path, SQLITE_OPEN_READWRITE, JOURNAL_WRITER, tuning};
    int result = open_database(journal, &opening, &rc, err);
    if (result < 0 && fresh) journal_remove(journal->path, true);
    return result;
}

/* CREATE clears away a log without its file, which SQLite would carry over into the new one. Only a regular
 * file is opened: a FIFO of that name could keep the caller waiting. */
static int open_in_mode(struct journal *journal, enum journal_mode mode, ty_error *err) {
    struct stat status;
    if (mode == JOURNAL_CREATE) {
        if (access(journal->path, F_OK) < 0) journal_remove(journal->path, false);
        int result = journal_create(journal->form, journal->path, err);
        if (result < 0) return result;
    } else if (stat(journal->path, &status) < 0) {
        return ty_fail(err, -errno, "cannot open %s: %s", journal->path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        return ty_fail(err, TY_ECORRUPT, "cannot open %s: it is no regular file", journal->path);
    }
    if (mode == JOURNAL_READ) return open_reader(journal, err);
    int result = open_writer(journal, mode == JOURNAL_CREATE, err);
    /* Where no lock keeps a writer away that had stood still it goes on in the log that it has open: ours is
     * another one. */
    bool anew = result == 0 && mode == JOURNAL_APPEND && !journal_files_are_local(journal->db);
    int rc = anew ? journal_renew(journal) : SQLITE_OK;
    if (rc == SQLITE_OK) return result;
    return journal->error.code < 0 ? journal_kept_error(journal, err) : sqlite_fail(journal, rc, "open", err);
}

int journal_open_form(const struct journal_form *form, const char *run_path, enum journal_mode mode,
                      struct journal **journal, ty_error *err) {
    struct journal *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    made->form = form;
    made->path = str_format("%s/%s", run_path, form->name);
    if (made->path == NULL) {
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

static int module_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err) {
    return journal_open_form(&journal_of_run, run_path, mode, journal, err);
}

int journal_read_form(const struct journal_form *form, const char *run_path, journal_reading *read,
                      void *context, ty_error *err) {
    for (int tries = 0; tries < READINGS; tries++) {
        struct journal *journal = NULL;
        int result = journal_open_form(form, run_path, JOURNAL_READ, &journal, err);
        if (result < 0) return result;
        result = read(context, journal, err);
        bool right = journal->look.way == JOURNAL_INDEXED || journal_look_stays(&journal->look, journal->path);
        free_journal(journal);
        if (right) return result;
    }
    return ty_fail(err, -EBUSY, "%s/%s is busy: it was written during each of %d readings; try again", run_path,
                   form->name, READINGS);
}

static int module_read(const char *run_path, journal_reading *read, void *context, ty_error *err) {
    return journal_read_form(&journal_of_run, run_path, read, context, err);
}

/* FULL waits, for BUSY_MS, until no reader goes by older pages, and tells how much of the log was carried over:
 * where that is not all the log stays. */
int journal_renew(struct journal *journal) {
    int n_log = -1, n_carried = -1;
    int rc = sqlite3_wal_checkpoint_v2(journal->db, NULL, SQLITE_CHECKPOINT_FULL, &n_log, &n_carried);
    if (rc == SQLITE_OK && n_log != n_carried) rc = SQLITE_BUSY;
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_db_config(journal->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    close_database(journal);
    journal_remove(journal->path, false);
    return open_writer(journal, false, &journal->error) == 0 ? SQLITE_OK : SQLITE_ERROR;
}

/* Closing carries over what is left of the log. */
static void module_close(struct journal *journal) {
    if (journal->writable) (void)module_commit(journal, false, NULL);
    free_journal(journal);
}

__attribute__((visibility("default"))) const struct journal_module trainyard_journal = {
    .version = base_build,
#define X(face, name, parameters, arguments) .name = module_##name,
    JOURNAL_CALLS(X)
#undef X
        .open = module_open,
    .read = module_read,
    .close = module_close,
    .commit = module_commit,
    .ends_create = module_ends_create,
    .ends_destroy = module_ends_destroy,
    .usage_open = module_usage_open,
    .usage_read = module_usage_read,
};
