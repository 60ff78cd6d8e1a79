/* The journal: the run's SQLite file, {run}/run.db. One writer, many readers; what a run is, is what its events
 * say.
 *
 * SQLite is loaded when a journal is first opened: the functions below call the module (journal_module.c),
 * whose struct is `trainyard_journal`. Writes gather in a transaction until journal_commit, behind which the
 * controller acts; one thread at a time has a journal in its hands. A commit survives the death of the process;
 * journal_commit_durable, used for checkpoints and the end, that of the machine too. */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"
#include "run/event.h"
#include "run/replay.h"

/* An event as a row has it (run_event_encode); the values are journal_event_values'. */
struct journal_event {
    nanoseconds time;
    enum run_event_kind kind;
    int attempt, rank, node;
    const char *data; /* JSON object text; or NULL */
};

struct journal_report {
    int attempt, rank;
    uint64_t number;
    nanoseconds time;    /* wall, when the agent took it */
    const char *metrics; /* JSON object text */
    size_t metrics_size;
    int64_t id; /* of the row that was read */
};

struct journal_checkpoint {
    uint64_t number;
    int attempt;
    nanoseconds time;
    const char *name;    /* directory in the run's, or a place (checkpoint_is_place) */
    const char *metrics; /* of rank 0's report, JSON; or NULL */
};

struct journal; /* opaque */

/* 1 when there is a journal in the run's directory, 0 when there is none; -errno where nobody can tell, as the
 * directory may not be entered or its storage fails. */
int journal_exists(const char *run_path);

enum journal_mode { JOURNAL_CREATE, JOURNAL_APPEND, JOURNAL_READ };

/* CREATE fails where the file exists; APPEND recovers what a dead writer left; READ opens nothing for writing,
 * and makes and removes nothing. What is READ where a file system has no index that all its machines see, or
 * while a run that had ended is resumed, is right only if the files did not change meanwhile: read such by
 * journal_read. TY_ECORRUPT names the file. */
int journal_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err);
typedef int journal_reading(void *context, struct journal *journal, ty_error *err);
/* Opens for reading, calls `read` and closes again. Where the files changed so that what was read may be wrong,
 * `read` is called again, 5 times at most, and must begin anew; -EBUSY when they changed each time. Else what
 * `read` gave. */
int journal_read(const char *run_path, journal_reading *read, void *context, ty_error *err);
/* Commits, and carries the log over into run.db, synced, so nothing need be synced just before. What fails here
 * is told, where journal_close has nobody to tell it to. */
int journal_finish(struct journal *journal, ty_error *err);
/* The journal is another writer's by now: every later call gives this error, and closing leaves all files as
 * they are. */
int journal_leave(struct journal *journal, const ty_error *why);
/* Finishes what is not finished yet; NULL is fine. */
void journal_close(struct journal *journal);

/* A failed write (disk full, ...) is kept: it and every later call give that error; nothing is half written. */
int journal_event(struct journal *journal, const struct journal_event *event, ty_error *err);
int journal_report(struct journal *journal, const struct journal_report *report, ty_error *err);
int journal_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err);
/* A checkpoint that is no longer kept: its row goes, the event that says so is the caller's. */
int journal_forget_checkpoint(struct journal *journal, uint64_t number, ty_error *err);
/* One that is kept has other metrics from now on, a JSON object; nothing where there is no row of it. */
int journal_checkpoint_metrics(struct journal *journal, uint64_t number, const char *metrics, ty_error *err);
int journal_commit(struct journal *journal, ty_error *err);
int journal_commit_durable(struct journal *journal, ty_error *err);

/* Readers: `each` is called in order and may stop with a value other than 0, which is returned. */
typedef int journal_take_event(void *context, int64_t sequence, const struct journal_event *event);
typedef int journal_take_report(void *context, const struct journal_report *report);
typedef int journal_take_checkpoint(void *context, const struct journal_checkpoint *checkpoint);
int journal_each_event(struct journal *journal, int64_t after_sequence, journal_take_event *each, void *context,
                       ty_error *err);
/* Folds all events (run/replay.h), which begins zero-initialised. */
int journal_replay(struct journal *journal, struct run_replay *replay, ty_error *err);
/* Reads a row's values, as run_event_decode does. */
int journal_event_values(const struct journal_event *row, struct run_event *event, struct event_memory *memory);
/* Reports of a rank (-1: all), the last `limit` of them (0: all), oldest first. */
int journal_each_report(struct journal *journal, int rank, size_t limit, journal_take_report *each,
                        void *context, ty_error *err);
/* Those with an id from `first` to `last`, in their order. */
int journal_each_report_between(struct journal *journal, int64_t first, int64_t last, journal_take_report *each,
                                void *context, ty_error *err);
int journal_each_checkpoint(struct journal *journal, journal_take_checkpoint *each, void *context,
                            ty_error *err);
/* The metrics of one report, *metrics malloc'd and the caller's; 1, or 0 when there is no such report. The
 * newest are found fastest. */
int journal_find_report(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                        ty_error *err);
/* Numbers of the last reports of ranks 0 to n - 1 in an attempt, 0 without. Those of the last attempt are found
 * fastest. */
int journal_last_reports(struct journal *journal, int attempt, uint64_t *numbers, size_t n, ty_error *err);
/* Number of reports of every rank and attempt together. */
int journal_count_reports(struct journal *journal, uint64_t *count, ty_error *err);
/* Highest report number of any rank in any attempt, 0 without. */
int journal_last_number(struct journal *journal, uint64_t *number, ty_error *err);

/* -- the ends of many journals, one after the other; a thread has one of its own */

struct journal_ends; /* opaque */

typedef int journal_take_end(void *context, const struct journal_event *event, const char *checkpoint);

int journal_ends_create(struct journal_ends **ends, ty_error *err);
void journal_ends_destroy(struct journal_ends *ends); /* NULL is fine */
/* Calls `take` with the last event of a journal that no writer has open, and with the name of its newest
 * checkpoint or NULL; what it gave. -EAGAIN: this one must be read by journal_read, to be told, or to be told
 * why not. */
int journal_ends_read(struct journal_ends *ends, const char *run_path, journal_take_end *take, void *context);

#endif
