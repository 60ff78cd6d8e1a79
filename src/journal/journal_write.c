/* Writing: rows gather in one transaction until the commit. The first failure rolls the transaction back and is
 * kept. When a commit is made is the controller's (controller/records.c). */
#include <errno.h>
#include <string.h>

#include "journal/journal_sqlite.h"

int journal_kept_error(const struct journal *journal, ty_error *err) {
    if (journal->error.code != 0 && err != NULL) *err = journal->error;
    return journal->error.code;
}

/* Rolls back, and keeps what SQLite says of `rc`. */
static int keep_failure(struct journal *journal, int rc, ty_error *err) {
    if (journal->error.code == 0) (void)sqlite_fail(journal, rc, "write", &journal->error);
    if (journal->db != NULL && sqlite3_get_autocommit(journal->db) == 0)
        (void)sqlite3_exec(journal->db, "ROLLBACK", NULL, NULL, NULL);
    journal->dirty = false;
    return journal_kept_error(journal, err);
}

/* Runs a statement that gives no rows and leaves it ready for the next time. */
static int run(sqlite3_stmt *statement) {
    (void)sqlite3_step(statement);
    return sqlite3_reset(statement);
}

int journal_prepare(struct journal *journal, sqlite3_stmt **statement, const char *sql) {
    if (*statement != NULL) return SQLITE_OK;
    return sqlite3_prepare_v3(journal->db, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
}

int journal_begin(struct journal *journal, sqlite3_stmt **statement, const char *sql, ty_error *err) {
    int result = journal_kept_error(journal, err);
    if (result < 0) return result;
    if (!journal->writable)
        return ty_fail(err, -EROFS, "cannot write %s: it was opened for reading", journal->path);
    int rc = journal_prepare(journal, statement, sql);
    if (rc == SQLITE_OK && !journal->dirty) {
        rc = journal_prepare(journal, &journal->begin, "BEGIN IMMEDIATE");
        if (rc == SQLITE_OK) rc = run(journal->begin);
        journal->dirty = rc == SQLITE_OK;
    }
    return rc == SQLITE_OK ? 0 : keep_failure(journal, rc, err);
}

/* Texts are bound without a copy: they outlive the step, and the next call binds new ones. */
int journal_insert(struct journal *journal, sqlite3_stmt *statement, int rc, ty_error *err) {
    if (rc == SQLITE_OK) rc = run(statement);
    return rc == SQLITE_OK ? 0 : keep_failure(journal, rc, err);
}

static int bind_text(sqlite3_stmt *statement, int at, const char *text, size_t size) {
    if (text == NULL) return sqlite3_bind_null(statement, at);
    return sqlite3_bind_text64(statement, at, text, size, SQLITE_STATIC, SQLITE_UTF8);
}

static int bind_string(sqlite3_stmt *statement, int at, const char *text) {
    return bind_text(statement, at, text, text != NULL ? strlen(text) : 0);
}

/* Codes of binding are or-ed, here and below: success is 0, and any other ends the journal, whichever it is. */
int module_event(struct journal *journal, const struct journal_event *event, ty_error *err) {
    int result = journal_begin(
        journal, &journal->insert_event,
        "INSERT INTO events(time, kind, attempt, rank, node, data) VALUES(?1, ?2, ?3, ?4, ?5, ?6)", err);
    if (result < 0) return result;
    sqlite3_stmt *statement = journal->insert_event;
    int rc = sqlite3_bind_int64(statement, 1, event->time);
    rc |= bind_string(statement, 2, run_event_name(event->kind));
    rc |= sqlite3_bind_int(statement, 3, event->attempt);
    rc |= sqlite3_bind_int(statement, 4, event->rank);
    rc |= sqlite3_bind_int(statement, 5, event->node);
    rc |= bind_string(statement, 6, event->data);
    return journal_insert(journal, statement, rc, err);
}

int module_report(struct journal *journal, const struct journal_report *report, ty_error *err) {
    int result = journal_begin(
        journal, &journal->insert_report,
        "INSERT INTO reports(time, attempt, rank, number, metrics) VALUES(?1, ?2, ?3, ?4, ?5)", err);
    if (result < 0) return result;
    sqlite3_stmt *statement = journal->insert_report;
    int rc = sqlite3_bind_int64(statement, 1, report->time);
    rc |= sqlite3_bind_int(statement, 2, report->attempt);
    rc |= sqlite3_bind_int(statement, 3, report->rank);
    rc |= sqlite3_bind_int64(statement, 4, (sqlite3_int64)report->number);
    rc |= bind_text(statement, 5, report->metrics, report->metrics_size);
    return journal_insert(journal, statement, rc, err);
}

/* A checkpoint that was renamed into place by a controller that died before it wrote the row is committed a
 * second time. */
int module_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err) {
    int result = journal_begin(journal, &journal->insert_checkpoint,
                               "INSERT OR REPLACE INTO checkpoints(number, time, attempt, name, metrics)"
                               " VALUES(?1, ?2, ?3, ?4, ?5)",
                               err);
    if (result < 0) return result;
    sqlite3_stmt *statement = journal->insert_checkpoint;
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)checkpoint->number);
    rc |= sqlite3_bind_int64(statement, 2, checkpoint->time);
    rc |= sqlite3_bind_int(statement, 3, checkpoint->attempt);
    rc |= bind_string(statement, 4, checkpoint->name);
    rc |= bind_string(statement, 5, checkpoint->metrics);
    return journal_insert(journal, statement, rc, err);
}

int module_forget_checkpoint(struct journal *journal, uint64_t number, ty_error *err) {
    int result =
        journal_begin(journal, &journal->delete_checkpoint, "DELETE FROM checkpoints WHERE number = ?1", err);
    if (result < 0) return result;
    sqlite3_stmt *statement = journal->delete_checkpoint;
    return journal_insert(journal, statement, sqlite3_bind_int64(statement, 1, (sqlite3_int64)number), err);
}

int module_checkpoint_metrics(struct journal *journal, uint64_t number, const char *metrics, ty_error *err) {
    int result = journal_begin(journal, &journal->update_checkpoint,
                               "UPDATE checkpoints SET metrics = ?2 WHERE number = ?1", err);
    if (result < 0) return result;
    sqlite3_stmt *statement = journal->update_checkpoint;
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)number);
    rc |= bind_string(statement, 2, metrics);
    return journal_insert(journal, statement, rc, err);
}

/* Brings a file of the connection, named by its SQLITE_FCNTL_ operation, to the disk. */
static int sync_file(struct journal *journal, int which) {
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(journal->db, "main", which, &file);
    if (rc != SQLITE_OK || file == NULL || file->pMethods == NULL) return rc;
    return file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
}

/* SQLite syncs the log only when it carries it over (synchronous = NORMAL), and the file never before that.
 * With the first sync of a log it also syncs the directory, and so the file's own name. */
static int sync_all(struct journal *journal, ty_error *err) {
    int rc = sync_file(journal, SQLITE_FCNTL_JOURNAL_POINTER);
    if (rc == SQLITE_OK && !journal->anchored) rc = sync_file(journal, SQLITE_FCNTL_FILE_POINTER);
    if (rc != SQLITE_OK) return keep_failure(journal, rc, err);
    journal->anchored = true;
    return 0;
}

/* The log is looked for behind each commit, not before: rows that went into a log that had lost its name are
 * still readable through the descriptor, and journal_renew carries them over; what is committed stays
 * committed. */
int module_commit(struct journal *journal, bool durable, ty_error *err) {
    int result = journal_kept_error(journal, err);
    if (result < 0) return result;
    int rc = SQLITE_OK;
    if (journal->dirty) {
        rc = journal_prepare(journal, &journal->commit, "COMMIT");
        if (rc == SQLITE_OK) rc = run(journal->commit);
        /* SQLite syncs the head of a new log at once, which would cost every run a millisecond for a log that
         * has nothing before it to protect; so the first commit goes without. */
        if (rc == SQLITE_OK && journal->fresh)
            rc = sqlite3_exec(journal->db, JOURNAL_SYNCHRONOUS, NULL, NULL, NULL);
        if (rc == SQLITE_OK) journal->fresh = journal->dirty = false;
    }
    /* A directory that was moved or removed keeps its journal, which nobody finds by name; the end of the run
     * tells of that. */
    bool removed =
        rc == SQLITE_OK && !journal_files_hold_log(journal->db) && journal_files_hold_name(journal->db);
    if (removed && !journal_files_are_local(journal->db)) {
        ty_error why;
        (void)ty_fail(&why, TY_ECORRUPT, "cannot write %s: its log was removed, perhaps by another controller",
                      journal->path);
        (void)module_leave(journal, &why);
        return journal_kept_error(journal, err);
    }
    if (removed) rc = journal_renew(journal);
    if (rc != SQLITE_OK) return keep_failure(journal, rc, err);
    return durable ? sync_all(journal, err) : 0;
}

/* A log that could not be carried over stays for whoever opens the journal next: after a failed sync nobody
 * knows what of the file is on the disk. Where a reader is in the way the log is at least synced. */
int module_finish(struct journal *journal, ty_error *err) {
    int result = module_commit(journal, false, err);
    if (result < 0) return result;
    int rc = sqlite3_wal_checkpoint_v2(journal->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc == SQLITE_BUSY) return sync_all(journal, err);
    if (rc == SQLITE_OK) return 0;
    (void)sqlite3_db_config(journal->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return keep_failure(journal, rc, err);
}

/* Nothing of the log is carried over any more, neither here nor when the journal is closed: what lies in the
 * file is the other writer's. */
int module_leave(struct journal *journal, const ty_error *why) {
    if (journal->error.code == 0) journal->error = *why;
    int rc = sqlite3_db_config(journal->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return rc == SQLITE_OK ? 0 : TY_EFAULT;
}
