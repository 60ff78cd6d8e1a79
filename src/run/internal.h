/* What the files of run/ share and nobody else sees: struct run, the inputs that come to it, and what each of
 * the files does for the others. Whoever drives a run knows run.h alone. Functions here change the run and say
 * through its ops what is to be done; none waits, and none asks for the time but through them. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H

#include <stdint.h>

#include "base/duration.h"
#include "base/idset.h"
#include "run/run.h"
#include "run/settings.h"

/* What follows a failed attempt: another one, at once or after a pause, or the end. Each kind of failure has
 * a count and a limit of its own (run/settings.h). The pause grows only while attempts end shortly after
 * they began: a run that dies once a day goes on at once each time, one that cannot get through its first
 * seconds does not keep the machine busy with it. */

/* X(name, member of struct failure_policy that limits it) */
#define RUN_FAILURE_KINDS(X)                   \
    X(FAILURE_TRAINING, max_failures)          \
    X(FAILURE_START, controller_failure_limit) \
    X(FAILURE_PREEMPTION, max_preemption_failures)

enum failure_kind {
#define X(name, limit) name,
    RUN_FAILURE_KINDS(X)
#undef X
        FAILURE_KINDS
};

/* An attempt that lasted so long made progress: the next failure is the first of its row. */
#define RETRY_SHORT (5 * NS_PER_S)
#define RETRY_FIRST_PAUSE (1 * NS_PER_S)
#define RETRY_LONGEST_PAUSE (30 * NS_PER_S)

struct retry {
    int counts[FAILURE_KINDS]; /* failures of the run so far, that of the current attempt included */
    int row;                   /* short attempts in a row */
};

/* Counts a failure of an attempt that lasted so long. True when another attempt follows; `*pause` is then 0
 * for the first of a row, else 1 s, 2 s, 4 s ... 30 s, of which `random` (any number) takes up to a half, so
 * that many runs that failed together do not come back together. */
bool retry_next(struct retry *retry, const struct failure_policy *policy, enum failure_kind kind,
                nanoseconds lasted, uint64_t random, nanoseconds *pause);

/* The wait status that a worker failed with which did not get to tell one: code 1, as of any exception. */
enum { UNTOLD_STATUS = 1 << 8 };

/* A checkpoint that some rank has begun or named, and that is not yet whole. Arrays have room for every rank:
 * `writes` is by rank, `files` and `waiters` are in the order in which ranks committed, n_files of each. All is
 * owned. */
struct pending {
    struct pending *next;
    uint64_t number;
    uint32_t arrived; /* ranks that made the report of this number */
    uint32_t begun;   /* ranks that write files */
    uint32_t settled; /* of these, ranks that have written all of theirs, or given up */
    bool *writes;     /* by rank: it has begun, and not settled */
    char *name;       /* given by rank 0; NULL: by its number */
    char **files;     /* lists of the ranks that committed */
    struct commit_waiter {
        uint32_t rank, node, channel;
    } * waiters;
    uint32_t n_files;
    nanoseconds since; /* monotonic: when the first of them came */
    char error[1024];  /* why it cannot become whole, or "" */
    bool told;         /* the failure is on record */
    bool publishing;   /* it is whole, and on its way into its place */
};

/* A rank that asks which checkpoints there are, once the reports up to `number` have been seen to. */
struct list_waiter {
    struct list_waiter *next;
    uint64_t number;
    uint32_t rank, node, channel;
};

/* A node as the core knows it, by its number, which it keeps for the run's life. */
struct node_slot {
    enum node_state state;
    uint32_t n_workers; /* of the plan */
    uint32_t n_alive;   /* launched and not gone */
    bool wanted;        /* by a layout that is looked at */
    bool leaving;       /* its agent ends by itself */
    bool saves_stacks;  /* it was asked to, and has not answered */
};

/* While the stacks of a run that hangs, or is to quit, are saved. */
struct run_hang {
    uint32_t n_awaited;         /* nodes that have not answered */
    struct run_failure failure; /* that follows; OUTCOME_INTERRUPTED: the run quits */
};

/* On the way to another size. */
enum resize_phase {
    RESIZE_NONE,
    RESIZE_PROBING,  /* agents of nodes that may have come back are started */
    RESIZE_AWAITING, /* for a checkpoint, so that little is done twice */
    RESIZE_DUE,      /* it is whole: the workers are stopped once those that wait for it are answered */
    RESIZE_STOPPING  /* the workers were told to stop */
};

struct run_resize {
    enum resize_phase phase;
    char text[512];      /* "resize: 2 -> 4 workers" */
    nanoseconds saved;   /* monotonic: the last checkpoint, or the launch */
    nanoseconds stopped; /* monotonic: when the workers were told to stop */
    uint64_t saved_number;
    double lost_seconds; /* of the attempt that ended last, by what is done once more */
    uint64_t lost_reports;
};

/* The fault of a device that may explain the failure of the attempt (fault.c). */
struct run_suspect {
    bool any, hardware;
    nanoseconds at; /* monotonic */
    struct idset ranks;
    char text[256];
};

/* The whole of a run. What counts nodes and workers (n_up, n_alive, n_bye, n_leaving, counts) are sums over the
 * slots, kept by the moves (run_move_worker, and move_node in run.c): an event of one worker of ten thousand
 * walks over none of the others. `config` is the current attempt's: a layout changes its sizes and node_of. */
struct run {
    struct run_config config;
    const struct run_ops *ops;
    void *context;
    enum run_state state;
    enum run_outcome outcome;
    int attempt;
    struct retry retry;
    bool retries;                 /* another attempt follows the one that ended, */
    nanoseconds pause;            /* after so long */
    nanoseconds began, failed_at; /* of the attempt, monotonic */
    struct run_worker *workers;
    struct node_slot *nodes;
    uint32_t n_needed; /* nodes that have workers */
    uint32_t n_up;     /* of these, those whose agents are there */
    uint32_t n_alive, n_bye, n_leaving;
    uint32_t counts[WORKER_STATE_COUNT];
    struct run_failure failure;
    struct run_hang hang;
    struct run_suspect suspect;
    struct run_resize resize;
    int interrupts, interrupt_signal;
    int preempted; /* the first interrupt was a preemption: its signal; else 0 */
    /* When the time limit passed, by the wall clock: no other attempt follows; else 0. */
    nanoseconds out_of_time;
    bool unclean; /* some node did not prove that nothing is left */
    uint32_t leftovers;
    uint64_t report_base, last_number;
    /* Checkpoints up to this number that are not pending can never be whole: no memory was left for one. */
    uint64_t forgotten;
    struct pending *pending; /* in the order of their numbers */
    struct list_waiter *lists;
    uint64_t words;       /* that ranks have said */
    bool watches_reports; /* TIMER_REPORTS is set */
    char *checkpoint;
};

/* What comes to a run from outside. The first RUN_TIMERS are the timers, by their numbers. */
enum run_input_kind {
    INPUT_START = RUN_TIMERS,
    INPUT_ADOPT,
    INPUT_NODE_UP,
    INPUT_NODE_LOST,
    INPUT_LEAVING,
    INPUT_BYE,
    INPUT_UNCLEAN,
    INPUT_STARTED,
    INPUT_READY,
    INPUT_RENDEZVOUS,
    INPUT_EXITED,
    INPUT_NOT_STARTED,
    INPUT_GONE,
    INPUT_HUNG,
    INPUT_STACKS,
    INPUT_FAULT,
    INPUT_REPORT,
    INPUT_PUBLISHED,
    INPUT_CHECKED,
    INPUT_ROOM,
    INPUT_INTERRUPT,
    INPUT_QUIT,
    RUN_INPUTS
};

/* An input with what it tells; what its kind does not have is 0. Pointers are borrowed but for `path`. */
struct run_input {
    enum run_input_kind kind;
    uint32_t node, rank; /* of this run */
    nanoseconds time;
    const char *text;               /* why a node is lost, how a worker hangs, why no commit came */
    const struct event_node *about; /* a node that is up; NULL: nothing is known of it */
    bool transient;                 /* a loss that another start may mend */
    bool clean;                     /* nothing is left on a node */
    bool preempts;                  /* an interrupt that takes the machines away */
    uint32_t leftovers;             /* of a node that says bye */
    int pid;                        /* of a worker that started */
    int signal_number;              /* of an interrupt, or of a node that is taken away */
    uint64_t number;                /* of a commit, */
    char *path;                     /* and where it is; stolen */
    const void *frames;             /* where a hung worker stands, */
    size_t size;                    /* so many bytes */
    const struct run_exit *exit;
    const struct run_start_failure *start;
    const struct run_report *report;
    const struct run_fault *fault;
    const struct run_adoption *adoption;
};

/* Does what the table has for this input in the state of the run (table.c). */
void run_take(struct run *run, const struct run_input *input);

/* The entries of the table. */
typedef void run_entry(struct run *run, const struct run_input *input);
run_entry run_on_begin, run_on_adopt, run_on_count, run_on_halt, run_on_kill, run_on_rush, run_on_quit,
    run_on_hurry, /* run.c */
    run_on_enrol, run_on_probe, run_on_join, run_on_lose, run_on_miss, run_on_drop, run_on_part, run_on_bye,
    run_on_stain, run_on_late, run_on_prune, run_on_force, run_on_shut, run_on_limit, run_on_over, run_on_pause,
    run_on_check, run_on_next, run_on_close;
run_entry run_on_leave, run_on_go, run_on_began, run_on_ready, run_on_met, run_on_exit, run_on_end, run_on_fail,
    run_on_skip, run_on_gone, run_on_left; /* worker.c */
run_entry run_on_report, run_on_hear, run_on_commit, run_on_store, run_on_last, run_on_free,
    run_on_tell;                                                /* report.c */
run_entry run_on_hang, run_on_dump, run_on_stack, run_on_blame; /* hang.c */
run_entry run_on_resize;                                        /* resize.c */
run_entry run_on_fault;                                         /* fault.c */

/* Records (record.c): `time` 0 is now. */
void run_record_worker(struct run *run, enum run_event_kind kind, uint32_t rank,
                       nanoseconds time); /* of kinds without values */
void run_record_started(struct run *run, uint32_t rank, nanoseconds time);
void run_record_hung(struct run *run, uint32_t rank, const char *how);
void run_record_fault(struct run *run, const struct run_fault *fault);
void run_record_start_failed(struct run *run, uint32_t rank, const char *why);
void run_record_launched(struct run *run);
void run_record_adopted(struct run *run);
void run_record_wait(struct run *run, const char *reason);
void run_record_attempt(struct run *run);
void run_record_node(struct run *run, uint32_t node, const struct event_node *about); /* NULL: nothing known */
void run_record_node_lost(struct run *run, const struct run_input *loss);
void run_record_exit(struct run *run, uint32_t rank, const char *cause, nanoseconds time);
void run_record_checkpoint(struct run *run, uint64_t number, const char *path);
/* `unheard`: no rank waits for it, which would be answered. */
void run_record_lost_checkpoint(struct run *run, uint64_t number, const char *why, bool unheard);
void run_record_late_checkpoint(struct run *run, const struct pending *pending, const struct idset *ranks,
                                const char *what);
void run_record_stop(struct run *run, bool kill, const char *reason);
void run_record_clean(struct run *run, uint32_t node, bool clean, uint32_t leftovers);
void run_record_attempt_end(struct run *run);
void run_record_end(struct run *run);

/* The parts of run.c that resize.c goes on with. */
void run_begin_attempt(struct run *run);
void run_stop_attempt(struct run *run, const char *reason);
void run_start_nodes(struct run *run, const uint32_t *node_of,
                     uint32_t n); /* of these, those that are not there */
bool run_move(struct run *run, enum run_state to);
void run_count_nodes(struct run *run); /* how many workers each node has, by config.node_of */

/* resize.c. The attempt is on its way: from now on its size is looked at. */
void run_resize_launched(struct run *run);
void run_resize_committed(struct run *run, uint64_t number); /* a checkpoint is whole */
void run_resize_after_report(struct run *run);               /* stops now if that is what it waited for */
void run_resize_node(struct run *run);                       /* a node without workers came up, or did not */
/* What was done from the last checkpoint, or the launch, to that time is done once more. */
void run_count_lost(struct run *run, nanoseconds until);
/* True when the attempt, whose workers are gone, made way for another size; forgets what was on its way. */
bool run_resize_end(struct run *run);
void run_next_attempt(struct run *run); /* as many workers as fit, if enough do */

/* The parts of run.c that worker.c needs. False when the worker's state does not allow it. */
bool run_move_worker(struct run *run, uint32_t rank, enum worker_state to);
void run_end_when_gone(struct run *run); /* the attempt, when nobody is left of it */
void run_failure_text(struct run_failure *failure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The attempt fails of this, if of nothing else before; takes over failure->tail (run.c). */
void run_fail(struct run *run, const struct run_failure *failure);
/* Whatever was collected of a hang is forgotten: the run leaves RUN_HANGING (hang.c). */
void run_hang_end(struct run *run);

/* An attempt begins: what was suspected is of an earlier one (fault.c). */
void run_suspect_forget(struct run *run);
/* The attempt ends: what its failure came from, if that was a device, is told before it. */
void run_suspect_blame(struct run *run);

/* A rank has ended: a checkpoint that still waits for a report of it can never be whole (report.c). */
void run_reports_rank_ended(struct run *run, uint32_t rank);
/* The commit that is on its way, and decides whether the attempt's last checkpoint counts; NULL without. */
struct pending *run_reports_publishing(const struct run *run);
/* The attempt has ended: what is pending is discarded. */
void run_reports_end(struct run *run);

#endif
