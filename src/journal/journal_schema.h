/* The tables of run.db; docs/journal.md tells what is in them. */
#ifndef JOURNAL_JOURNAL_SCHEMA_H
#define JOURNAL_JOURNAL_SCHEMA_H

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

#endif
