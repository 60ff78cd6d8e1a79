/* What the controller puts on record. The loop only gathers rows, as copies; a thread of the journal's own
 * writes them (storage.h), in the order in which they came, a transaction at a time: what gathers while one is
 * under way is the next. So storage that hangs holds up nothing but what waits for its row. Until a row is
 * written it is not known outside: whoever acts on it (agents.c) or answers for it (checkpoints.c) asks
 * records_have, or is called. */
#ifndef CONTROLLER_RECORDS_H
#define CONTROLLER_RECORDS_H

#include "base/storage.h"
#include "journal/journal.h"

struct records; /* opaque */

/* Takes over the journal. `lock`: see storage_open. */
int records_open(struct journal **journal, const char *run_path, int lock, struct records **out, ty_error *err);
/* In the thread of a database of the run, before it is written: TY_EEXISTS where another controller has taken
 * the run over, whom no lock kept away; closing then carries nothing over either. `lock`: the run's, -1: none;
 * `path`: of the database; `journal`: NULL where it is not open. */
int records_check_lock(int lock, const char *path, struct journal *journal, ty_error *err);
/* Writes what is gathered, and closes the journal: see records_wait. NULL is fine. */
void records_close(struct records *records, nanoseconds limit);

/* For reading, before the first commit or behind a records_wait. */
struct journal *records_journal(const struct records *records);

/* The first failure is kept, and from then on nothing more is taken. */
void records_event(struct records *records, const struct run_event *event);
void records_report(struct records *records, const struct journal_report *report);
/* `metrics` are those of rank 0's report of this number, if that is on record; else what is given here.
 * Durable. */
void records_checkpoint(struct records *records, const struct journal_checkpoint *checkpoint);
/* A kept checkpoint's from now on. Durable. */
void records_checkpoint_metrics(struct records *records, uint64_t number, const char *metrics);
void records_forget_checkpoint(struct records *records, uint64_t number); /* durable */
const ty_error *records_error(const struct records *records);             /* code 0: none */

/* Nothing is written any more, and nothing waited for. */
void records_abandon(struct records *records, const ty_error *why);

/* Begins to write what is gathered, unless something is being written. The thread begins with the first. */
void records_commit(struct records *records);
/* The same, and carries all over into run.db: the end. */
void records_finish(struct records *records);

uint64_t records_count(const struct records *records); /* rows that were taken */
bool records_have(const struct records *records,
                  uint64_t count);                /* the first `count` are written, or never will be */
bool records_busy(const struct records *records); /* something is gathered or being written */
bool records_full(const struct records *records); /* too much is gathered: no more should be */
struct storage *records_storage(const struct records *records); /* what the thread is at */

/* `written` is called whenever something was written, on the loop, by storage_take. */
void records_listen(struct records *records, void (*written)(void *context), void *context);
/* Calls back once, on the loop, when all rows that were taken until now are written or have failed: see
 * records_error. `metrics`: of the checkpoint among them, as it is on record; borrowed, NULL without. One at a
 * time; a callback of NULL forgets it. */
void records_then(struct records *records, void (*then)(void *context, const char *metrics), void *context);

/* Waits until all is written, as long as storage_patience says. What takes longer is told with the path, and
 * has failed with all behind it. */
void records_wait(struct records *records, nanoseconds limit);

#endif
