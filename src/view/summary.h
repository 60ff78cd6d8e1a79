/* What the journal of a run says, gathered for a person: where the run stands, how its workers are, what it
 * reported, and where the seconds of its start went. */
#ifndef VIEW_SUMMARY_H
#define VIEW_SUMMARY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"
#include "journal/journal.h"
#include "run/pace.h"
#include "run/replay.h"

/* X(name, text) */
#define RUN_STANDINGS(X)                                                     \
    X(STANDING_WAITING, "waiting")                                           \
    X(STANDING_RUNNING, "running")                                           \
    X(STANDING_SUCCEEDED, "succeeded")                                       \
    X(STANDING_FAILED, "failed")                                             \
    X(STANDING_INTERRUPTED, "interrupted")                                   \
    X(STANDING_PREEMPTED, "preempted")                                       \
    X(STANDING_DIED, "died") /* its controller is gone and did not end it */ \
    X(RUN_STANDINGS_N, NULL)

enum run_standing {
#define X(name, text) name,
    RUN_STANDINGS(X)
#undef X
};

const char *run_standing_name(enum run_standing standing);

/* X(name, text) of one worker in the last attempt */
#define WORKER_STANDINGS(X)          \
    X(STANDS_WAITING, "waiting")     \
    X(STANDS_STARTED, "started")     \
    X(STANDS_READY, "ready")         \
    X(STANDS_SUCCEEDED, "succeeded") \
    X(STANDS_STOPPED, "stopped")     \
    X(STANDS_FAILED, "failed")       \
    X(WORKER_STANDINGS_N, NULL)

enum worker_standing {
#define X(name, text) name,
    WORKER_STANDINGS(X)
#undef X
};

const char *worker_standing_name(enum worker_standing standing);
enum worker_standing view_standing_of(const struct replay_worker *worker);

/* X(name, text): the parts of a start, in their order */
#define START_PHASES(X)                      \
    X(PHASE_PLAN, "plan")                    \
    X(PHASE_AGENT, "agent")                  \
    X(PHASE_SPAWN, "spawn")                  \
    X(PHASE_LOADER, "interpreter or loader") \
    X(PHASE_RENDEZVOUS, "rendezvous")        \
    X(PHASE_REPORT, "first report")          \
    X(START_PHASES_N, NULL)

enum start_phase_kind {
#define X(name, text) name,
    START_PHASES(X)
#undef X
};

const char *start_phase_name(enum start_phase_kind phase);

/* The longest that any node or rank took for it. */
struct start_phase {
    bool known;
    nanoseconds duration;
    int rank;              /* the slowest; -1 where it is not about ranks */
    const char *node_name; /* the slowest node, else NULL */
};

/* An attempt that had another number of workers than the one before it. */
struct attempt_size {
    int attempt;
    int64_t workers;
};

struct view_facts; /* view/facts.h */

struct view_summary {
    struct run_replay replay; /* of its events; texts that are not said to be owned are its */
    bool lent;                /* the replay is that of facts */
    char *name, *path;        /* owned; NULL when unknown, as all strings here */
    enum run_standing standing;
    int64_t pid; /* of the controller, 0 when unknown */
    const char *host, *version;
    char *command;               /* on one line; owned */
    nanoseconds began, ended;    /* wall; ended: of the last event when the run is over, else 0 */
    bool ends;                   /* its end is on record */
    const char *outcome, *cause; /* of the end; NULL before, and without a failure */
    int status;                  /* exit status, -1 before the end */
    int cause_rank;              /* -1 when none */
    const char *waits_for;       /* what it waits for now, and who has it; or NULL */
    nanoseconds waits_since;     /* wall */
    int attempts;
    int64_t workers; /* of the last attempt */
    size_t nodes;
    struct attempt_size *sizes; /* n_sizes, the first attempt's too; owned */
    size_t n_sizes;
    size_t by_standing[WORKER_STANDINGS_N];
    uint64_t reports;
    json_t *metrics;            /* owned; latest of rank 0, NULL without */
    nanoseconds last_report;    /* wall, of all ranks; 0: none */
    nanoseconds usual_interval; /* between the reports of a rank, in the last attempt; 0: not known */
    bool straggles;             /* a rank is notably slower than the others in the last attempt */
    struct pace_straggler straggler;
    size_t checkpoints;
    char *last_checkpoint;
    struct start_phase phases[START_PHASES_N];
};

/* Reads the journal below `run_path`, which may still be written. */
int view_summary_read(const char *name, const char *run_path, struct view_summary *summary, ty_error *err);
/* The same, of facts that were read; they outlive the summary. */
int view_summary_read_of(const char *name, const char *run_path, const struct view_facts *facts,
                         struct view_summary *summary, ty_error *err);
/* The same of one of many runs, in a tenth of the time where the journal's last word is the end of the run: of
 * such a run it tells name, path, how it stands and ended, and the newest checkpoint. */
int view_summary_read_end(struct journal_ends *ends, const char *name, const char *run_path,
                          struct view_summary *summary, ty_error *err);
void view_summary_done(struct view_summary *summary);

/* How long the run took, or has gone on; 0 where the clock was put back meanwhile. */
nanoseconds view_summary_time(const struct view_summary *summary);
/* From when on a running run is quiet, unless it reports: five usual intervals behind its last report, and 30 s
 * at least; wall. 0: it never is, as it does not run, or never reported. */
nanoseconds view_summary_quiet_from(const struct view_summary *summary);
/* How long a run that is quiet is without a report; else 0. */
nanoseconds view_summary_quiet(const struct view_summary *summary);
/* Name of the node of the first cause, or NULL. */
const char *view_summary_cause_node(const struct view_summary *summary);
/* The object of `trainyard status --format json`; a row of the list without `details`. The caller's; NULL when
 * memory is short. */
json_t *view_summary_phases_json(const struct view_summary *summary); /* its "start_up" */
json_t *view_summary_json(const struct view_summary *summary, bool details);

#endif
