/* The journal inside its module: one SQLite connection, statements prepared when first needed and kept. */
#ifndef JOURNAL_JOURNAL_SQLITE_H
#define JOURNAL_JOURNAL_SQLITE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/error.h"
#include "journal/journal_module.h"

/* How a journal may be read, and whether what was read is right: by what its files look like before and after.
 * Where the index of the log is shared memory that all its clients see, SQLite sees to that by itself; it does
 * not where machines share the files (a mapping on one is not seen on the other), and a file that is read alone
 * may get a log while it is read: a run that is resumed. */

enum journal_way {
    JOURNAL_ALONE,   /* there is no log: the file is all there is */
    JOURNAL_INDEXED, /* the log, through its index, which others have open */
    JOURNAL_GUARDED, /* the log, without its index and without locks */
};

enum { JOURNAL_LOG_HEAD = 32 };

struct journal_look {
    enum journal_way way;
    struct stat file, log;
    unsigned char head[JOURNAL_LOG_HEAD]; /* of the log: other ones when it began anew */
};

/* Looks at run.db at `path`, by descriptors that are opened for that: a network's file system then asks its
 * server. */
int journal_look(const char *path, struct journal_look *look, ty_error *err);
/* Whether it looks the same now: what was read since, but for a log that grew, is what was there. */
bool journal_look_stays(const struct journal_look *look, const char *path);

/* The tables of run.db; docs/journal.md tells what is in them. */

/* "TYjn"; `file` and other readers tell by it whose database this is. The version grows with every change of
 * the tables. */
enum { JOURNAL_APPLICATION = 0x54596a6e, JOURNAL_VERSION = 1, JOURNAL_TABLES = 3 };

#define JOURNAL_SCHEMA                                                                                      \
    "PRAGMA application_id = 1415146094;"                                                                   \
    "PRAGMA user_version = 1;"                                                                              \
    "CREATE TABLE events(sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,"          \
    " attempt INTEGER NOT NULL, rank INTEGER NOT NULL, node INTEGER NOT NULL, data TEXT);"                  \
    "CREATE TABLE reports(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL,"         \
    " rank INTEGER NOT NULL, number INTEGER NOT NULL, metrics TEXT NOT NULL);"                              \
    "CREATE TABLE checkpoints(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL," \
    " name TEXT NOT NULL, metrics TEXT);"

/* Of a row of SQLite's list of what is in a database. */
#define JOURNAL_IS_TABLE "type = 'table' AND rootpage > 0 AND name IN ('events', 'reports', 'checkpoints')"

/* The files of a journal as SQLite sees them: two file layers (VFS) over the system's own.
 *
 * A writer's holds its locks, in run.db and in the index beside it, by open file descriptions (F_OFD_SETLK).
 * Other clients of SQLite respect them as any others; but locks of a process, which SQLite takes by itself, go
 * when anything in the process opens and closes the file: a callback that makes a copy is enough. Then another
 * client takes itself for the last one and deletes the log, and the writer goes on into a file without a name.
 *
 * A reader's opens nothing for writing, makes nothing and removes nothing, whatever SQLite asks for. */

#define JOURNAL_WRITER "trainyard-writer"
#define JOURNAL_READER "trainyard-reader"
#define JOURNAL_LONE_READER "trainyard-lone-reader" /* takes no locks */

/* The byte of the index that everybody who has it open holds a lock on. */
enum { JOURNAL_INDEX_USED = 128 };

/* Makes the layers known, once for the process. An SQLITE_ code. */
int journal_files_init(void);

/* Whether run.db, as a writer opened it, is still the file of its name; likewise the log and the index beside
 * it. */
bool journal_files_hold_name(sqlite3 *db);
bool journal_files_hold_log(sqlite3 *db);

/* ---- the connection ---- */

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
    sqlite3_stmt *begin, *commit, *insert_event, *insert_report, *insert_checkpoint, *update_checkpoint,
        *delete_checkpoint, *find_report, *reports_between;
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
int module_checkpoint_metrics(struct journal *journal, uint64_t number, const char *metrics, ty_error *err);
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
