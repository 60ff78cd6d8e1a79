/* The journal inside its module: one SQLite connection, statements prepared when first needed and kept. */
#ifndef JOURNAL_JOURNAL_SQLITE_H
#define JOURNAL_JOURNAL_SQLITE_H

#include <sqlite3.h>

#include "journal/journal_guard.h"
#include "journal/journal_module.h"

/* The log is synced before it is carried over into the file; a commit alone costs no sync. */
#define JOURNAL_SYNCHRONOUS "PRAGMA synchronous = NORMAL"

struct journal {
    sqlite3 *db;
    char *path; /* of run.db */
    bool writable;
    bool fresh;               /* just created: the head of its log needs no sync */
    bool dirty;               /* a transaction is open */
    bool anchored;            /* the file as it was created is on the disk */
    struct journal_look look; /* a reader's, before it opened the files */
    ty_error error;           /* of the first write that failed, given by every call after it */
    sqlite3_stmt *begin, *commit, *insert_event, *insert_report, *insert_checkpoint, *delete_checkpoint,
        *find_report, *reports_between;
};

/* "cannot VERB PATH: why", from what SQLite says about its last call, which returned `rc`; the code it stands
 * for. */
int sqlite_fail(struct journal *journal, int rc, const char *verb, ty_error *err);

/* Goes on in a log anew, when the one that is open, or its index, has lost its name: by somebody's hand, for no
 * client of SQLite removes what a writer has open. All of it is carried over first, while run.db has its name.
 * An SQLITE_ code. (journal_module.c) */
int journal_renew(struct journal *journal);

/* Writes the bytes of a complete journal without rows to `path`, which did not exist. (journal_create.c) */
int journal_create(const char *path, ty_error *err);

/* 0, or the error that was kept. (journal_write.c) */
int journal_kept_error(const struct journal *journal, ty_error *err);

int module_event(struct journal *journal, const struct journal_event *event, ty_error *err);
int module_report(struct journal *journal, const struct journal_report *report, ty_error *err);
int module_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err);
int module_forget_checkpoint(struct journal *journal, uint64_t number, ty_error *err);
int module_commit(struct journal *journal, bool durable, ty_error *err);
int module_finish(struct journal *journal, ty_error *err);

int module_each_event(struct journal *journal, int64_t after_sequence,
                      int (*each)(void *context, int64_t sequence, const struct journal_event *event),
                      void *context, ty_error *err);
int module_each_report(struct journal *journal, int rank, size_t limit,
                       int (*each)(void *context, const struct journal_report *report), void *context,
                       ty_error *err);
int module_each_report_between(struct journal *journal, int64_t first, int64_t last,
                               int (*each)(void *context, const struct journal_report *report), void *context,
                               ty_error *err);
int module_each_checkpoint(struct journal *journal,
                           int (*each)(void *context, const struct journal_checkpoint *checkpoint),
                           void *context, ty_error *err);
int module_find_report(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                       ty_error *err);
int module_count_reports(struct journal *journal, uint64_t *count, nanoseconds *first, ty_error *err);
int module_last_number(struct journal *journal, uint64_t *number, ty_error *err);

#endif
