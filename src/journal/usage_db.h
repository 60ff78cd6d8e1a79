/* usage.db beside run.db: samples of the hardware (usage/usage.h), lossy by design. As they were sampled for
 * two hours, then by the minute for a day, then by ten minutes; sooner where there would be more than a bound.
 * The same handle, the same ways to read beside a writer as the journal's (journal.h): journal_commit,
 * journal_finish and journal_close take it. */
#ifndef JOURNAL_USAGE_DB_H
#define JOURNAL_USAGE_DB_H

#include "journal/journal.h"
#include "usage/usage.h"

#define USAGE_DB_MOST ((int64_t)1 << 30)

/* For writing: made where there is none, and anew where it cannot be read. */
int usage_db_open(const char *run_path, struct journal **db, ty_error *err);
/* As journal_read: what `read` made of it counts only when this returns 0 or more; it may be called again.
 * -ENOENT without the file. */
int usage_db_read(const char *run_path, journal_reading *read, void *context, ty_error *err);

int usage_db_add(struct journal *db, const char *node, const struct usage_sample *sample, ty_error *err);
/* Thins what is old enough, at most once a minute of `now` (wall). */
int usage_db_thin(struct journal *db, nanoseconds now, int64_t most_bytes, ty_error *err);

struct usage_row {
    nanoseconds time, span; /* wall; span 0: one sample */
    const char *node;       /* borrowed */
    enum usage_what what;
    int number;
    int64_t n;
    double min, mean, max;
};

struct usage_query {
    const char *node, *what; /* NULL: any */
    nanoseconds from, to;    /* wall, both inclusive; 0 and INT64_MAX: any */
    nanoseconds newest;      /* above 0: in place of `from`, so much before the newest row */
};

typedef int usage_take_row(void *context, const struct usage_row *row);
/* By time, for each row of a known name, until `each` returns other than 0, which is returned. */
int usage_db_each(struct journal *db, const struct usage_query *query, usage_take_row *each, void *context,
                  ty_error *err);

#endif
