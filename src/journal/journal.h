/* The journal: the run's SQLite file, {run}/run.db. One writer, many readers; what a run is, is what its events say.
 *
 * SQLite is loaded when a journal is first opened: the functions below call the module (journal_module.c), whose struct is
 * `trainyard_journal`. Writes gather in a transaction until journal_commit, which the controller calls before it acts.
 * A commit survives the death of the process; journal_commit_durable, used for checkpoints and the end, that of the machine too. */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"

/* X(name, text, what it tells: rank/node are -1 where they do not apply; data is a JSON object) */
#define JOURNAL_EVENTS(X)                                                                                    \
    X(JOURNAL_RUN, "run", "the run began: name, argv, scaling config, version, pid, host")                   \
    X(JOURNAL_WAIT, "wait", "it waits for devices: what is short, who holds it")                             \
    X(JOURNAL_PLAN, "plan", "the plan of an attempt: nodes, worker -> node, devices")                        \
    X(JOURNAL_ATTEMPT, "attempt", "an attempt began: number of workers, why")                                \
    X(JOURNAL_NODE, "node", "an agent is up: name, pid, address")                                            \
    X(JOURNAL_NODE_LOST, "node_lost", "an agent is gone before its time: why")                               \
    X(JOURNAL_STARTED, "started", "a worker was executed: pid")                                              \
    X(JOURNAL_READY, "ready", "a worker said that it is ready")                                              \
    X(JOURNAL_RENDEZVOUS, "rendezvous", "a worker's communicator stands")                                    \
    X(JOURNAL_EXITED, "exited", "a worker ended: exit code or signal, cause")                                \
    X(JOURNAL_GONE, "gone", "nothing of a worker is left")                                                   \
    X(JOURNAL_CHECKPOINT, "checkpoint", "a checkpoint was committed: number, path")                          \
    X(JOURNAL_STOP, "stop", "workers were told to stop: reason")                                             \
    X(JOURNAL_CLEAN, "clean", "no process of the run is left on a node, or which were")                      \
    X(JOURNAL_ATTEMPT_END, "attempt_end", "outcome of an attempt, first cause")                              \
    X(JOURNAL_RUN_END, "run_end", "outcome of the run, exit status, first cause")

enum journal_event_kind {
#define X(name, text, meaning) name,
    JOURNAL_EVENTS(X)
#undef X
};

const char *journal_event_name(enum journal_event_kind kind);

struct journal_event {
    int64_t sequence; /* given by the journal */
    nanoseconds time; /* wall */
    enum journal_event_kind kind;
    int attempt; /* 0 before the first */
    int rank;    /* -1: none */
    int node;    /* -1: none */
    const char *data; /* JSON object text, or NULL; when read: borrowed during the call */
};

struct journal_report {
    int attempt, rank;
    uint64_t number;
    nanoseconds time;    /* wall, when the agent took it */
    const char *metrics; /* JSON object text */
    size_t metrics_size;
};

struct journal_checkpoint {
    uint64_t number;
    int attempt;
    nanoseconds time;
    const char *name;    /* directory below the run's */
    const char *metrics; /* of rank 0's report, JSON; or NULL */
};

struct journal; /* opaque */

enum journal_mode { JOURNAL_CREATE, JOURNAL_APPEND, JOURNAL_READ };

/* CREATE fails where the file exists; APPEND recovers what a dead writer left; READ never writes, also beside a live
 * writer. TY_ECORRUPT names the file. */
int journal_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err);
void journal_close(struct journal *journal); /* commits; NULL is fine */

/* A failed write (disk full, ...) is kept: it and every later call give that error; nothing is half written. */
int journal_event(struct journal *journal, const struct journal_event *event, ty_error *err);
int journal_report(struct journal *journal, const struct journal_report *report, ty_error *err);
int journal_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err);
int journal_commit(struct journal *journal, ty_error *err);
int journal_commit_durable(struct journal *journal, ty_error *err);
bool journal_dirty(const struct journal *journal); /* something waits for a commit */

/* Readers: `each` is called in order and may stop with a value other than 0, which is returned. */
int journal_each_event(struct journal *journal, int64_t after_sequence,
                       int (*each)(void *context, const struct journal_event *event), void *context, ty_error *err);
/* Reports of a rank (-1: all), the last `limit` of them (0: all), oldest first. */
int journal_each_report(struct journal *journal, int rank, size_t limit,
                        int (*each)(void *context, const struct journal_report *report), void *context, ty_error *err);
int journal_each_checkpoint(struct journal *journal,
                            int (*each)(void *context, const struct journal_checkpoint *checkpoint), void *context,
                            ty_error *err);
/* Number of reports of every rank and attempt together; time of the first one in *first (0 without). */
int journal_count_reports(struct journal *journal, uint64_t *count, nanoseconds *first, ty_error *err);
/* Highest report number of any rank in any attempt, 0 without. */
int journal_last_number(struct journal *journal, uint64_t *number, ty_error *err);

#endif
