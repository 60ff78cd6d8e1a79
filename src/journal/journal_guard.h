/* How a journal may be read, and whether what was read is right: by what its files look like before and after.
 * Where the index of the log is shared memory that all its clients see, SQLite sees to that by itself; it does
 * not where machines share the files (a mapping on one is not seen on the other), and a file that is read alone
 * may get a log while it is read: a run that is resumed. */
#ifndef JOURNAL_JOURNAL_GUARD_H
#define JOURNAL_JOURNAL_GUARD_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/error.h"

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

#endif
