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

/* What makes a database ours: run.db, the journal, and usage.db, samples of the hardware. `file` and other
 * readers tell by its application id whose it is; the version grows with every change of its tables. */
struct journal_form {
    const char *name;   /* of the file */
    const char *what;   /* "the journal of a run" */
    const char *schema; /* sets both numbers, and makes the tables */
    const char *tables; /* of a row of SQLite's list of what is in a database: it is one of them */
    int application, version, n_tables;
};

extern const struct journal_form journal_of_run, journal_of_usage;

/* The tables of run.db; docs/journal.md tells what is in them. */

#define JOURNAL_SCHEMA                                                                                      \
    "PRAGMA application_id = 1415146094;"                                                                   \
    "PRAGMA user_version = 1;"                                                                              \
    "CREATE TABLE events(sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,"          \
    " attempt INTEGER NOT NULL, rank INTEGER NOT NULL, node INTEGER NOT NULL, data TEXT);"                  \
    "CREATE TABLE reports(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL,"         \
    " rank INTEGER NOT NULL, number INTEGER NOT NULL, metrics TEXT NOT NULL);"                              \
    "CREATE TABLE checkpoints(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL," \
    " name TEXT NOT NULL, metrics TEXT);"

/* Those of usage.db, "TYus": docs/seeing.md. A row is a sample (span 0), or all samples of a time (span, in
 * ms). */
#define USAGE_SCHEMA                                                                         \
    "PRAGMA application_id = 1415148915;"                                                    \
    "PRAGMA user_version = 1;"                                                               \
    "CREATE TABLE samples(span INTEGER NOT NULL, time INTEGER NOT NULL, node TEXT NOT NULL," \
    " what TEXT NOT NULL, number INTEGER NOT NULL, n INTEGER NOT NULL, min REAL NOT NULL,"   \
    " mean REAL NOT NULL, max REAL NOT NULL, PRIMARY KEY(span DESC, time, node, what, number)) WITHOUT ROWID;"

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
/* On storage that other machines mount another controller may have taken the journal over. */
bool journal_files_are_local(sqlite3 *db);

/* ---- the connection ---- */

/* The log is synced before it is carried over into the file; a commit alone costs no sync. */
#define JOURNAL_SYNCHRONOUS "PRAGMA synchronous = NORMAL"

struct journal {
    sqlite3 *db;
    const struct journal_form *form;
    char *path; /* of the file */
    bool writable;
    bool fresh;               /* just created: the head of its log needs no sync */
    bool dirty;               /* a transaction is open */
    bool anchored;            /* the file as it was created is on the disk */
    struct journal_look look; /* a reader's, before it opened the files */
    ty_error error;           /* of the first write that failed, given by every call after it */
    sqlite3_stmt *begin, *commit, *insert_event, *insert_report, *insert_checkpoint, *update_checkpoint,
        *delete_checkpoint, *find_report, *reports_between, *insert_sample;
    int pressure;       /* usage.db: how much sooner samples are thinned, for want of room */
    int64_t thinned_at; /* usage.db: the minute in which they last were */
};

/* "cannot VERB PATH: why", from what SQLite says about its last call, which returned `rc`; the code it stands
 * for. */
int sqlite_fail(struct journal *journal, int rc, const char *verb, ty_error *err);

/* Removes the log and the index of the database `path`, and with `all` that itself. (journal_module.c) */
void journal_remove(const char *path, bool all);

/* Goes on in a log anew, when the one that is open, or its index, has lost its name: by somebody's hand, for no
 * client of SQLite removes what a writer has open. All of it is carried over first, while run.db has its name.
 * An SQLITE_ code. (journal_module.c) */
int journal_renew(struct journal *journal);

/* The bytes of a complete database without rows, SQLite's to free; NULL when memory is short.
 * (journal_create.c) */
unsigned char *journal_image(const struct journal_form *form, size_t *size);
/* Writes the bytes of a complete database without rows to `path`, which did not exist. (journal_create.c) */
int journal_create(const struct journal_form *form, const char *path, ty_error *err);

/* Opens the run's file of a form, or reads it (journal_read). (journal_module.c) */
int journal_open_form(const struct journal_form *form, const char *run_path, enum journal_mode mode,
                      struct journal **journal, ty_error *err);
int journal_read_form(const struct journal_form *form, const char *run_path, journal_reading *read,
                      void *context, ty_error *err);

/* 0, or the error that was kept. (journal_write.c) */
int journal_kept_error(const struct journal *journal, ty_error *err);
/* A statement that the connection keeps, made when it is first needed. An SQLITE_ code. */
int journal_prepare(struct journal *journal, sqlite3_stmt **statement, const char *sql);
/* Makes `statement` ready to be bound, inside a transaction. */
int journal_begin(struct journal *journal, sqlite3_stmt **statement, const char *sql, ty_error *err);
/* Runs it, unless binding failed: `rc`. */
int journal_insert(struct journal *journal, sqlite3_stmt *statement, int rc, ty_error *err);

/* The module's functions: those of usage.db in usage_db.c, of the ends in journal_ends.c, the others where rows
 * are written and read. */
#define X(face, name, parameters, arguments) int module_##name parameters;
JOURNAL_CALLS(X)
#undef X
int module_commit(struct journal *journal, bool durable, ty_error *err);
int module_ends_create(struct journal_ends **out, ty_error *err);
void module_ends_destroy(struct journal_ends *ends);
int module_usage_open(const char *run_path, struct journal **db, ty_error *err);
int module_usage_read(const char *run_path, journal_reading *read, void *context, ty_error *err);

#define JOURNAL_EVENT_COLUMNS "sequence, time, kind, attempt, rank, node, data"
#define JOURNAL_LAST                                                                                \
    "SELECT " JOURNAL_EVENT_COLUMNS ", (SELECT name FROM checkpoints ORDER BY number DESC LIMIT 1)" \
    " FROM events ORDER BY sequence DESC LIMIT 1"

/* Gives a row of JOURNAL_LAST to `take`: what it gives, or -EAGAIN where the row is damaged, or of a later
 * version. (journal_read.c) */
int journal_hand_last(struct journal *journal, sqlite3_stmt *row, journal_take_end *take, void *context);

#endif
