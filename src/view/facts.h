/* What a journal tells beside its reports, as whoever draws them needs it: the state of the run, checkpoints,
 * faults, and which reports count. */
#ifndef VIEW_FACTS_H
#define VIEW_FACTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"
#include "journal/journal.h"
#include "run/replay.h"
#include "view/series.h"

/* For the pace of ranks the last few reports of each are enough. */
enum { PACE_REPORTS = 10, PACE_REPORTS_MAX = 100000 };

struct fact_checkpoint {
    uint64_t number;
    int attempt;
    nanoseconds time;
    char *name, *metrics; /* owned; metrics NULL without */
};

/* A rank that hung, or a device that broke. */
struct fact_fault {
    nanoseconds time;
    enum view_mark_kind kind;
    char *text; /* owned */
};

/* Up to which number the reports of an attempt count, and how long it lasted. It starts until its last worker
 * is ready, or in its group, and trains from then on. */
struct fact_attempt {
    int attempt;
    uint64_t began_from; /* number of the checkpoint, 0 without */
    uint64_t counts_to;  /* UINT64_MAX where no later attempt began */
    uint64_t reached;    /* number of its last report; 0: nobody had to know */
    nanoseconds began;
    nanoseconds started;    /* where nobody said to be ready: its last worker was started */
    bool trains;            /* somebody did */
    int64_t unready, apart; /* workers that are not ready, not in their group yet */
    nanoseconds saved;      /* its newest checkpoint; 0: none */
    nanoseconds ended;      /* the last that is known of it, of one that died with its controller a report */
    bool over;              /* its end is told */
    double told_lost;       /* seconds of training that its end says are lost; NAN: it says nothing */
};

/* X(name, text): by what an attempt ended that was to go on */
#define FAILURE_CAUSES(X)             \
    X(CAUSE_WORKER, "worker")         \
    X(CAUSE_MEMORY, "memory")         \
    X(CAUSE_HANG, "hang")             \
    X(CAUSE_NODE, "node")             \
    X(CAUSE_START, "start")           \
    X(CAUSE_PREEMPTION, "preemption") \
    X(FAILURE_CAUSES_N, NULL)

enum failure_cause {
#define X(name, text) name,
    FAILURE_CAUSES(X)
#undef X
};

const char *failure_cause_name(enum failure_cause cause);

struct view_facts {
    struct run_replay replay;
    nanoseconds first;                   /* event, wall; 0: none */
    struct fact_checkpoint *checkpoints; /* owned; that are kept, by number */
    size_t n_checkpoints;
    uint64_t lost_checkpoints; /* given up */
    uint64_t failures[FAILURE_CAUSES_N];
    enum failure_cause likely; /* of the attempt that goes on */
    double lost_seconds;       /* of training, by restarts */
    bool reopened;             /* and no attempt went on yet, or began */
    struct fact_fault *faults; /* owned */
    size_t n_faults;
    struct fact_attempt *attempts; /* owned; in their order */
    size_t n_attempts;
    /* Owned; of committed checkpoints by path, where the name does not tell; NULL: none. */
    struct hash *numbers;
    int64_t sequence; /* of the last event; 0: none was read */
    uint64_t reports; /* how many there are */
};

int view_facts_read(const char *run_path, struct view_facts *facts, ty_error *err);
/* The same of a journal that these may be of: only the events that came since are read, as of many workers
 * there are many; metrics of checkpoints are those of the last event. Another journal in its place is read
 * anew. Where that fails, nothing is known. */
int view_facts_renew(const char *run_path, struct view_facts *facts, ty_error *err);
void view_facts_done(struct view_facts *facts);

/* Facts that are kept from one answer about a run to the next; one at a time has them. */
struct facts_kept {
    pthread_mutex_t lock;
    struct view_facts facts;
};

void facts_kept_init(struct facts_kept *kept);
void facts_kept_done(struct facts_kept *kept);
/* The kept ones, renewed, until they are given back; those that are read into `own` where none are kept
 * (NULL). */
int facts_take(const char *run_path, struct facts_kept *kept, struct view_facts *own,
               const struct view_facts **facts, ty_error *err);
void facts_give_back(struct facts_kept *kept, struct view_facts *own);

/* The id of the first report of this attempt or a later one, among so many; attempts follow each other. */
int view_find_attempt(struct journal *journal, int attempt, uint64_t reports, int64_t *first, ty_error *err);

/* Whether a report counts, or a later attempt took it back. */
bool view_facts_count(const struct view_facts *facts, int attempt, uint64_t number);
/* Whether a report is one of those that are asked for. */
bool view_facts_select(const struct view_facts *facts, const struct view_selection *selection,
                       const struct journal_report *report);

#endif
