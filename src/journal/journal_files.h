/* The files of a journal as SQLite sees them: two file layers (VFS) over the system's own.
 *
 * A writer's holds its locks, in run.db and in the index beside it, by open file descriptions (F_OFD_SETLK).
 * Other clients of SQLite respect them as any others; but locks of a process, which SQLite takes by itself, go
 * when anything in the process opens and closes the file: a callback that makes a copy is enough. Then another
 * client takes itself for the last one and deletes the log, and the writer goes on into a file without a name.
 *
 * A reader's opens nothing for writing, makes nothing and removes nothing, whatever SQLite asks for. */
#ifndef JOURNAL_JOURNAL_FILES_H
#define JOURNAL_JOURNAL_FILES_H

#include <stdbool.h>

#include <sqlite3.h>

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

#endif
