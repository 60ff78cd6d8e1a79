/* What happens next: the state machine of a run. It hears events (a node is up, a worker exited, a report came,
 * a timer fired) and says through its ops what is to be done. No system call, no clock, no memory of
 * descriptors: the real controller and a simulated one drive the same code. */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/idset.h"
#include "run/event.h"
#include "run/settings.h"
#include "run/state.h"

/* X(name, text, exit status; that of a failed worker is its own) */
#define RUN_OUTCOMES(X)                        \
    X(OUTCOME_NONE, "none", 0)                 \
    X(OUTCOME_SUCCEEDED, "succeeded", 0)       \
    X(OUTCOME_FAILED, "failed", 1)             \
    X(OUTCOME_START_FAILED, "start_failed", 4) \
    X(OUTCOME_NODE_LOST, "node_lost", 5)       \
    X(OUTCOME_TIME_LIMIT, "time_limit", 124)   \
    X(OUTCOME_INTERRUPTED, "interrupted", 130) \
    X(OUTCOME_PREEMPTED, "preempted", 143)     \
    X(OUTCOME_RESIZED, "resized", 0) /* of an attempt: it made way for one of another size */

enum run_outcome {
#define X(name, text, status) name,
    RUN_OUTCOMES(X)
#undef X
};

const char *run_outcome_name(enum run_outcome outcome); /* "node_lost"; static storage */

/* The limits that a run waits under, one timer each. */
enum run_timer {
    TIMER_START,   /* every agent must have said hello */
    TIMER_LIMIT,   /* the user's time limit */
    TIMER_PAUSE,   /* the next attempt begins */
    TIMER_STOP,    /* after the grace, workers told to stop must be gone */
    TIMER_FINISH,  /* agents must have said bye */
    TIMER_STACKS,  /* the stacks of a run that hangs must have been saved */
    TIMER_STORAGE, /* a commit, or the look at the latest checkpoint, that the end of an attempt waits for */
    TIMER_REPORTS, /* ranks wait for a checkpoint that others lack: it is time to say so */
    TIMER_RESIZE,  /* an elastic run looks for room, or has waited long enough for a checkpoint */
    RUN_TIMERS
};

struct run_config {
    uint32_t n_workers, n_nodes;
    /* Node of each world rank; borrowed until the next layout, else for the run's life. */
    const uint32_t *node_of;
    uint32_t max_workers, max_nodes; /* of an elastic run, in all of its attempts; 0: n_workers, n_nodes */
    nanoseconds resize_interval;     /* between two looks at the size of an elastic run; 0: the size is fixed */
    bool replaced; /* lost nodes by others: the nodes of a next attempt are planned anew, whatever its size */
    struct failure_policy failures;
    int first_attempt;      /* 1, or more when resumed */
    nanoseconds time_limit; /* 0: none */
    nanoseconds grace;
    nanoseconds start_limit;
    uint64_t report_base;   /* reports are numbered from here + 1 */
    const char *checkpoint; /* path of the last committed one when resumed, NULL; copied */
};

/* How a worker stands or ended. */
struct run_worker {
    enum worker_state state;
    int pid;
    int wait_status;  /* valid when `exited` */
    bool exited;      /* its end was seen */
    bool stopped;     /* it ended after it was told to */
    bool failed;      /* it ended by itself with something else than 0, or could not be started, or hung */
    bool hung;        /* it was ended because it said nothing any more */
    uint64_t reports; /* number of its last report */
};

/* What failed first in an attempt. */
struct run_failure {
    enum run_outcome outcome; /* OUTCOME_NONE: nothing */
    bool transient;           /* a start that may succeed the next time */
    bool preempted;           /* the node was taken away */
    bool hung;                /* a worker that said nothing any more; `tail` is where it stood */
    int rank;                 /* -1 for a node or a limit */
    int node;                 /* node rank, -1 */
    int wait_status;          /* of a worker that ran; of a preemption: its signal */
    nanoseconds time;         /* wall */
    bool told;                /* `time` is when the worker itself wrote that it failed */
    char text[512];           /* one line: how */
    char *tail;               /* last lines of its output, NULL without; owned by the run */
    size_t tail_size;
};

/* A checkpoint that is whole. Borrowed during the call. */
struct run_commit {
    uint64_t number;
    int attempt;
    const char *name;         /* NULL: by its number */
    const char *const *files; /* what the ranks said with their commits: JSON, n of them */
    size_t n;
};

/* Which rank runs where in an attempt of an elastic run. A node keeps its number for the run's life; in some
 * attempts it has no workers. */
struct run_layout {
    uint32_t n_workers; /* 0: the fewest that the run wants do not fit */
    uint32_t n_nodes;   /* that are known by now */
    /* Node of each rank; borrowed until the next layout, one that was claimed until the next such. */
    const uint32_t *node_of;
    char why[256]; /* what is short; "" when enough fit */
};

enum layout_flags {
    LAYOUT_LOST_TOO = 1, /* nodes that are lost count as there */
    LAYOUT_CLAIM = 2,    /* the next attempt runs so: devices are claimed, it goes on record */
};

/* Carried out by the controller, all of them. None may call back into the run; events follow later. */
struct run_ops {
    nanoseconds (*wall)(void *context);
    nanoseconds (*now)(void *context); /* monotonic */
    uint64_t (*random)(void *context);
    /* Starts the agent of a node: run_node_up, run_node_lost or run_node_refused follows. A failure here is one
     * of the last two: -errno may pass, TY_E... will not. */
    int (*start_node)(void *context, uint32_t node, ty_error *err);
    /* Sends a node what its workers need. When it fails, nothing of this attempt will run there. */
    int (*launch)(void *context, uint32_t node, int attempt, ty_error *err);
    /* Tells the workers of a node to end, or kills them. The end of each is heard of as any; `reason` is
     * borrowed, and for people. */
    void (*stop)(void *context, uint32_t node, bool kill, const char *reason);
    /* Saves the stacks of a node's workers: run_node_stacks follows. */
    void (*stacks)(void *context, uint32_t node);
    /* The run is over for a node: run_node_bye follows, or run_node_lost. */
    void (*finish)(void *context, uint32_t node);
    /* Ends a node that does not answer, by force; all that ran there is gone when it returns, or
     * run_node_unclean was called. No event follows. */
    void (*abandon)(void *context, uint32_t node);
    /* run_timer_fired follows after so long, once, unless the timer is set anew before; negative: cancel. */
    void (*set_timer)(void *context, enum run_timer timer, nanoseconds delay);
    void (*record)(void *context, const struct run_event *event);
    /* Makes a checkpoint of what the ranks wrote: `*path` (malloc'd) or the error; 1: run_published follows. */
    int (*publish)(void *context, const struct run_commit *commit, char **path, ty_error *err);
    /* The same for one that is still to follow, since nobody can wait any longer: not 1, and at once. */
    int (*settle)(void *context, uint64_t number, char **path, ty_error *err);
    /* What the ranks wrote for a checkpoint that can never be whole, or whose publishing failed, goes. */
    void (*discard)(void *context, uint64_t number, int attempt);
    /* Before another attempt: begins to look whether the latest checkpoint is whole. True: run_checked
     * follows. */
    bool (*check)(void *context);
    /* Answers a rank that waits for a commit. `path` NULL: it failed, see `error`. */
    void (*answer)(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                   const char *error);
    /* Answers a rank that asked which checkpoints are kept. */
    void (*list)(void *context, uint32_t node, uint32_t channel);
    /* Elastic runs: plans anew with what is there now, as many workers as fit. The states of nodes may be
     * asked of the run. */
    void (*layout)(void *context, unsigned flags, struct run_layout *layout);
    void (*ended)(void *context); /* once; the run may be destroyed after the current event */
};

struct run; /* opaque */

/* Copies `config`; `ops` is borrowed for the run's life. 0 or -ENOMEM. */
int run_create(const struct run_config *config, const struct run_ops *ops, void *context, struct run **out,
               ty_error *err);
void run_destroy(struct run *run); /* NULL is fine; what is pending is discarded */

void run_start(struct run *run); /* begins the first attempt; a second call changes nothing */

/* An attempt of an earlier controller, whose workers have gone on. Borrowed during the call. */
struct run_adoption {
    uint64_t report_base; /* of the attempt */
    /* Of each rank: pid and reports as they are known, its state before its end, which is heard of in any case,
     * and whether that is on record. */
    const struct run_worker *workers;
};
/* In place of run_start: that attempt, the one before config.first_attempt, goes on. Its nodes are all there,
 * and what is heard of them from now on is heard as of any. */
void run_adopt(struct run *run, const struct run_adoption *adoption);

/* How a worker ended; pointers are borrowed during the call. */
struct run_exit {
    int wait_status;
    bool stopped;      /* after it was told to */
    const char *cause; /* what is known beyond the status, NULL or "" */
    const void *tail;  /* last lines of its output */
    size_t tail_size;
    nanoseconds failed_at; /* wall: when the worker itself wrote that it failed; 0: it did not */
    nanoseconds time;      /* wall */
};

/* Events. An event that does not fit (late, doubled, of an earlier attempt) changes nothing. Times are wall. */
void run_node_up(struct run *run, uint32_t node, const struct event_node *about); /* NULL: nothing is known */
void run_node_lost(struct run *run, uint32_t node, const char *why);
/* As lost; its agent was told to end by others, and said that nothing is left. */
void run_node_left(struct run *run, uint32_t node, const char *why);
/* As lost; its agent can do nothing for this run, so that another start would end alike. */
void run_node_refused(struct run *run, uint32_t node, const char *why);
void run_node_bye(struct run *run, uint32_t node, bool clean, uint32_t leftovers);
/* Something that ran there does not end, though its agent is gone. The only event that may be called from an
 * op. */
void run_node_unclean(struct run *run, uint32_t node);
void run_worker_started(struct run *run, uint32_t rank, int pid, nanoseconds time);
void run_worker_ready(struct run *run, uint32_t rank, nanoseconds time);
void run_worker_rendezvous(struct run *run, uint32_t rank, nanoseconds time);
void run_worker_exited(struct run *run, uint32_t rank, const struct run_exit *exit);
void run_worker_gone(struct run *run, uint32_t rank, nanoseconds time);
/* Why a worker did not start. */
struct run_start_failure {
    const char *why;
    bool stopped;   /* it was told to stop before its turn came, which is no failure */
    bool transient; /* it may start the next time: no process, memory or descriptor was left */
    nanoseconds time;
};
void run_worker_start_failed(struct run *run, uint32_t rank, const struct run_start_failure *start);
void run_timer_fired(struct run *run, enum run_timer timer);

/* Stop politely (a signal's number for the exit status 128 + n), then, when called again, at once. */
void run_interrupt(struct run *run, int signal_number);
/* The same, because the machines are taken away: the run ends "preempted", to be resumed elsewhere or later. */
void run_preempt(struct run *run, int signal_number);
/* Save the stacks of all workers where they run, then kill them: for one who wants to know where they hang. */
void run_quit(struct run *run, int signal_number);

/* Elastic runs (resize.c): there may be room now that was not there before. A run that waits for room looks
 * at once; another one does at its next look. */
void run_room_changed(struct run *run);

/* Hangs and preempted nodes (hang.c). A worker says nothing any more, `how` tells for how long: when the
 * stacks of all have been saved, it has failed. */
void run_worker_hung(struct run *run, uint32_t rank, const char *how, nanoseconds time);
/* A node has saved the stacks of its workers; `frames` are lines of where the hung one stands, if that is
 * one of its. */
void run_node_stacks(struct run *run, uint32_t node, const void *frames, size_t size);
/* A node's agent was told to end by somebody else; `preempted`: the signal that says that the node is taken
 * away, or 0. */
void run_node_leaving(struct run *run, uint32_t node, int preempted, nanoseconds time);

/* Faults of devices (fault.c): recorded, and told as the first cause of a failure that they explain. */
enum run_fault_weight {
    RUN_FAULT_NOTED,      /* explains nothing */
    RUN_FAULT_OF_PROGRAM, /* explains the end of the device's own ranks, soon after */
    RUN_FAULT_OF_HARDWARE /* and that of ranks that waited for them */
};
struct run_fault { /* borrowed during the call */
    uint32_t node;
    enum run_fault_weight weight;
    const struct event_hardware *told;
    const struct idset *ranks; /* that use the device */
    nanoseconds time;          /* wall */
};
void run_device_fault(struct run *run, const struct run_fault *fault);

/* Reports (report.c). */
enum report_kind { REPORT_METRICS, REPORT_BEGIN, REPORT_COMMIT, REPORT_ABORT, REPORT_LIST, REPORT_ALIVE };
struct run_report {
    uint32_t rank;
    enum report_kind kind;
    uint64_t number;
    const char *name;  /* of the checkpoint (METRICS, BEGIN): that of rank 0 counts; NULL or "": none */
    const void *files; /* JSON of what it wrote (COMMIT), or the reason (ABORT); borrowed */
    size_t size;
    uint32_t channel; /* who waits for the answer */
};
void run_report(struct run *run, const struct run_report *report);
/* Adds the ranks that wait for a checkpoint, or for the list of them, to `ranks` and says so in `out`, a
 * comma before each: ", rank 0 waits for checkpoint 3". `*words` changes with all that a rank says. */
void run_list_waiting(const struct run *run, struct idset *ranks, uint64_t *words, struct buffer *out);
/* A publication has come to its end: `path` (stolen), or NULL and why. */
void run_published(struct run *run, uint64_t number, char *path, const char *error);
/* The latest checkpoint was looked at, and run_begin_from called if need be: the next attempt may begin. */
void run_checked(struct run *run);
bool run_checks(const struct run *run);        /* run_checked is still waited for */
bool run_awaits_commit(const struct run *run); /* the workers are gone; run_published is still waited for */

/* How it stands (standing.c). What is returned is borrowed until the next event. */
/* Running, stopping and pausing without their parts: RUN_HANGING and RUN_COMPLETING are seen as RUN_RUNNING,
 * RUN_COMMITTING as RUN_STOPPING, RUN_RESTING, RUN_CHECKING and RUN_WAITING as RUN_PAUSING. */
enum run_state run_state_of(const struct run *run);
int run_attempt(const struct run *run);
uint64_t run_report_base(const struct run *run); /* of the current attempt */
const struct run_worker *run_worker(const struct run *run, uint32_t rank);
uint32_t run_size(const struct run *run); /* workers of the current attempt */
/* "resize: 2 -> 4 workers; ...": of the attempt that ended so, with what is lost of its work. */
const char *run_resize_text(const struct run *run);
int run_worker_exit(const struct run *run, uint32_t rank); /* exit code, 128 + signal; -1: no end was seen */
void run_count(const struct run *run, uint32_t counts[WORKER_STATE_COUNT]); /* workers in each state */
enum node_state run_node_state(const struct run *run, uint32_t node);
const char *run_checkpoint(const struct run *run); /* path of the last committed one, NULL without */
/* Between two attempts: the next one begins from this checkpoint (copied; NULL: from none), since the last
 * committed one is not whole any more. -ENOMEM leaves that one, from which no attempt may begin then. */
int run_begin_from(struct run *run, const char *path);
/* From now on the first failure of any kind is the end, whatever the limits were. */
void run_retry_no_more(struct run *run);
/* True when another attempt follows the one that failed, after a pause. */
bool run_retries(const struct run *run, nanoseconds *pause);
/* At the end: the outcome, the first cause of the last failed attempt, and the command's exit status. */
enum run_outcome run_outcome(const struct run *run);
const struct run_failure *run_failure(const struct run *run);
int run_exit_status(const struct run *run);
bool run_clean(const struct run *run, uint32_t *leftovers); /* every node proved that nothing is left */

#endif
