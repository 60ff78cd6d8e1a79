/* One run in the hands of the process that drives it: struct ty_run, the object of <trainyard/run.h>, and what
 * its files do for each other. `core` is the state machine of run/, which decides; everything else carries out.
 * Each file has a struct of its own in here, which the others read at most. Checkpoints, records, events and
 * progress, which know no run, have headers of their own. */
#ifndef CONTROLLER_TY_RUN_H
#define CONTROLLER_TY_RUN_H

#include <signal.h>

#include <trainyard/run.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"
#include "controller/answers.h"
#include "controller/checkpoints.h"
#include "controller/controller.h"
#include "controller/events.h"
#include "controller/input.h"
#include "controller/prepare.h"
#include "controller/progress.h"
#include "controller/records.h"
#include "controller/run_lock.h"
#include "controller/sink.h"
#include "loop/loop.h"
#include "run/chaos.h"
#include "run/replay.h"
#include "run/run.h"
#include "run/store.h"
#include "wire/channel.h"

enum { NODE_UNUSED = UINT32_MAX }; /* the node rank of a node without workers */

/* How far a run is. It only goes forward, and may leave phases out. */
enum run_phase {
    PHASE_WAITING,   /* for devices that other runs hold */
    PHASE_OPENING,   /* what an earlier controller left is looked at */
    PHASE_RUNNING,   /* the core decides what happens */
    PHASE_LINGERING, /* it has ended; its storage still has something to do */
    PHASE_OVER,      /* nothing more is to be done */
};

/* -- opening.c: from a request to a run that has begun */

/* Where an earlier controller of the run left it; zeros for a new run. */
struct run_past {
    bool exists; /* it left a journal */
    int attempts;
    uint64_t last_number; /* of the reports */
    /* By clock_boot: then nothing is left on other machines of its last attempt; 0: nothing is at once. */
    nanoseconds fenced_at;
};

int opening_begin(struct ty_run *run, ty_error *err);
/* The devices are ours: the run begins, behind a look at what an earlier controller left, */
int opening_go_on(struct ty_run *run, ty_error *err);
/* and behind the end of what that one had running elsewhere. */
void opening_fenced(struct ty_run *run);

/* -- adoption.c: an attempt of an earlier controller that goes on */

struct adopted_value {
    char *key, *value; /* owned; no value: `sum` was added */
    size_t size;
    int64_t sum;
};

struct adoption { /* zeros: there is none */
    bool found;
    int attempt;
    uint32_t n; /* ranks */
    uint64_t report_base;
    uint64_t settled;   /* nothing is to be done any more for checkpoints up to this number */
    uint64_t *recorded; /* by rank, n_recorded: the last report on record; owned */
    size_t n_recorded;
    struct run_worker *workers; /* as far as they are known; owned */
    struct hash *keys;          /* key -> index of */
    struct adopted_value *values;
    size_t n_values;
};

/* What workers are to do, of a command that is executed in `directory`. */
void adoption_name_work(const struct ty_run *run, const char *directory, struct digest *digest);
/* What the journal knows, where there is somebody to be adopted. */
int adoption_read(struct ty_run *run, struct journal *journal, ty_error *err);
bool adoption_find(struct ty_run *run); /* before anything of it is touched; why not is told */
int adoption_begin(struct ty_run *run, ty_error *err);
void adoption_done(struct ty_run *run);
/* Of the attempt that goes on: this report is on record; checkpoints up to this one are settled. */
bool adoption_has(const struct ty_run *run, uint32_t rank, uint64_t number);
bool adoption_has_settled(const struct ty_run *run, uint64_t number);

/* -- wait.c: devices that others hold */

struct room_watch {
    int fd; /* readable when a holder may have gone; -1 unless something is waited for */
    struct loop_watch watch;
    struct loop_timer second;
    void (*look)(struct ty_run *run);
};

/* Adds to the reason why a run must wait who holds what it wants, and since when. */
void wait_describe(const struct demand *demand, const struct holder_list *holders, ty_error *reason);
/* Before the run has begun: opening_go_on is called when the devices are ours. */
int wait_begin(struct ty_run *run, const char *reason, const struct holder_list *holders, ty_error *err);
/* Calls `look` when one of the holders may have gone, in place of what was watched for before. */
int wait_watch(struct ty_run *run, const struct holder_list *holders, void (*look)(struct ty_run *run),
               ty_error *err);
void wait_end(struct ty_run *run);

/* -- agents.c: a node's agent, and our end of the channel to it */

struct peer {
    struct ty_run *run;
    uint32_t node;         /* its number, for the run's life */
    uint32_t node_rank;    /* in the current attempt */
    uint32_t cluster_node; /* its index in the cluster when it was last planned for */
    char *name;            /* owned */
    struct channel *channel;
    struct answers answers; /* that the channel has no room for yet */
    struct engine_handle handle;
    char address[64];
    nanoseconds asked;       /* when its Start was sent, wall */
    nanoseconds clock_ahead; /* of the node, where it is known to differ from ours */
    /* By clock_boot: nothing of what a lost node ran is there any more; 0: it is not lost. */
    nanoseconds fenced_at;
    bool left_clean;         /* it was told to end, and said that nothing is left */
    bool awaited;            /* the node is to join again before its agent can be started */
    uint64_t held_for;       /* rows that must be written before what the channel holds may go */
    bool storage_hangs;      /* under its logs: that was its last word of it */
    struct handing *handing; /* a checkpoint that is on its way there; NULL: none */
    bool adopted; /* an agent of this machine that another controller had started: no child of ours */
};

struct run_agents {
    struct peer *peers; /* `max` of them, so that none moves; `n` are known */
    uint32_t n, max;
    struct hash *names;  /* name -> peer */
    uint32_t *node_of;   /* node of each rank, with room for the most workers */
    uint32_t *looked_at; /* the same, of a plan that is only looked at */
    uint64_t since;      /* sweep_clock before the first agent */
    struct loop_timer store_timer;
    struct loop_timer fence_timer;
    bool fencing; /* an attempt waits for that timer */
    /* "c for b": which nodes took the places of which in the last attempt; empty: none. */
    struct buffer replaced;
};

int peer_start(struct peer *peer, ty_error *err);
/* How long until nothing that ran on lost nodes can be there any more: another attempt does not begin before.
 * Where that is not at once act_fenced follows. */
nanoseconds agents_fence(struct ty_run *run);
bool peer_is_remote(const struct peer *peer); /* it joined over the network, or was adopted */
struct run_adoption;
/* Takes the nodes of an attempt that goes on, and has the core adopt it. */
void agents_adopt(struct ty_run *run, const struct run_adoption *adoption);
void peer_send(struct peer *peer, const Wire__Message *message);
void agents_send(void *context, const Wire__Message *message); /* to all; context: the run */
void peer_send_to_rank(void *context, uint32_t rank, const Wire__Message *message); /* context: the run */
/* What is sent from now on waits until all rows before it are written, or for peer_let_go. */
void peer_hold(struct peer *peer);
void peer_let_go(struct peer *peer);
void peer_abandon(struct peer *peer); /* ends an agent that does not answer, and all that ran there */
void peer_lose(struct peer *peer);    /* the same, when its descriptors are not ours any more */
/* An answer for whoever waits on that channel of an agent, with a value (NULL: none) that it holds; context:
 * the run. */
void peer_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                 struct shared *value);
void agents_open(struct ty_run *run);
int agents_make_room(struct ty_run *run, uint32_t max_nodes, size_t max_workers); /* -ENOMEM */
void agents_free(struct ty_run *run);                                             /* also half of it */
struct peer *agents_add(struct ty_run *run, const char *name);                    /* NULL: no room */
struct peer *agents_find(const struct ty_run *run, const char *name);             /* NULL: unknown */
void agents_flush(struct ty_run *run);                                            /* at the end of a turn */
void agents_close(struct ty_run *run);                                            /* waits for them */
bool agents_rest(const struct ty_run *run);               /* they stay for the next run of this process */
const char *agents_failed_name(const struct ty_run *run); /* node of the attempt's failure; NULL without */

/* -- sweep.c: what an agent that died could not do, to end every process of its node */

/* What tells the processes of a dead agent from others. Its orphans became children of this process, a
 * sub-reaper. */
struct sweep_scope {
    const char *token; /* in the environment of its workers, as TRAINYARD_TOKEN */
    uint64_t since;    /* sweep_clock before the first agent was started */
    const int *agents; /* pids of the agents that live */
    size_t n_agents;
    const int *sessions; /* that the dead agent and its workers led: orphans of these are its own */
    size_t n_sessions;
    /* This process starts nothing but agents: every other child that began after that is an orphan of the dead
     * one, even with an emptied environment in a session of its own. */
    bool alone;
};

/* The last moment at which a child of this process may have begun that is none of the run's, in the kernel's
 * ticks since the boot: now; 0 when there is no child. */
uint64_t sweep_clock(void);
/* Kills what belongs to the scope until nothing is found, for at most two seconds, and reaps those that became
 * our children. False when some are left, whose pids are then in `left`, as far as memory allows. */
bool sweep_node(const struct sweep_scope *scope, struct idset *left);

/* -- carried.c: files from and for nodes whose storage is another */

void carried_take(struct peer *peer, Wire__File *file); /* whose bytes it takes over */
void carried_fetch(struct peer *peer, const Wire__Fetch *fetch);
void carried_taken(struct peer *peer, const Wire__Taken *taken);
void carried_stop(struct peer *peer);

struct apart {          /* zero-initialised: none is known of */
    struct idset nodes; /* whose storage is another, to be told of */
    uint32_t n_started; /* workers of the attempt */
};

void carried_apart(struct peer *peer);
void carried_started(struct ty_run *run); /* one more worker; with the last of them all nodes have said it */
void carried_tell(struct ty_run *run);    /* of those that have; the attempt is over */

/* -- resize.c: who runs where, anew for each attempt of an elastic run */

int resize_begin(struct ty_run *run, ty_error *err);      /* nodes and ranks of the first plan */
nanoseconds resize_interval_of(const struct ty_run *run); /* 0: the size is fixed */
void resize_layout(void *context, unsigned flags, struct run_layout *layout); /* the op of run/ */

/* -- ports.c: ports for the workers of this machine, free when an attempt begins: MASTER_PORT, and one for each
 * rank (docs/design.md 4, "Ports cannot collide"). They lie outside of what the kernel gives to those who ask
 * for any port, and nothing of ours is bound to them, so that a worker may bind its port in whatever way. Runs
 * keep clear of each other by names in the network namespace, which the kernel drops with their holder. */

struct ports {  /* zero-initialised holds none */
    int *locks; /* owned: a descriptor for each block that is held */
    uint16_t *blocks;
    size_t n;
};

/* `count` ports on which nobody listens, and no connection of an earlier attempt lingers; 0 for those that are
 * not to be had, but the first is, or this fails. */
int ports_find(struct ports *ports, size_t count, uint16_t *found, ty_error *err);
void ports_done(struct ports *ports);

/* -- launch.c: the launch messages of an attempt */

/* What all nodes of the attempt share. */
struct launched {
    struct launch *launch;
    int attempt; /* that `launch` and `store` are of */
    struct store *store;
    struct ports ports;
    uint16_t *port_numbers;        /* owned: MASTER_PORT, and each rank's */
    size_t store_bytes;            /* of its values, and of those on their way to agents */
    nanoseconds at, failed, ended; /* wall, monotonic, monotonic */
};

int launch_create(const struct ty_run *run, int attempt, struct launch **out, ty_error *err);
void launch_destroy(struct launch *launch); /* NULL is fine */
/* The frame for a node, appended to `out`. */
int launch_frame(const struct launch *launch, const struct peer *peer, struct buffer *out, ty_error *err);

enum { NODE_TOKEN_SIZE = 48 };
/* What marks the processes of a node: the token of the run and the node's number. */
void node_token(const char *run_token, uint32_t node, char token[NODE_TOKEN_SIZE]);

/* -- starting.c: what an agent that joined is told with its start */

struct node_programs { /* zero-initialised */
    bool looked;
    char directory[4096];
    const char *search; /* of the request */
    struct listed_program {
        struct digest digest;
        Wire__Program wire;
    } programs[2];
    Wire__Program *list[2];
    size_t n;
};

/* Its run, its claims and its programs; the claims are to be freed, also when it fails. */
int starting_fill(struct ty_run *run, const struct peer *peer, Wire__Start *start, ty_error *err);

/* What the plan takes of the devices of a node that joined; nothing where a scheduler gives them, or the node
 * has no workers. To be freed, also when it fails. */
int claims_list(const struct prepared *prepared, uint32_t node_rank, Wire__Claim ***list, size_t *n,
                ty_error *err);
void claims_free(Wire__Claim **list, size_t n);

/* -- act.c: what run/ asks for */

struct timer_slot {
    struct ty_run *run;
    enum run_timer timer;
    struct loop_timer handle;
};

struct committing {
    struct published *awaited; /* the end of a commit goes there, while somebody waits for it */
    struct shared *list;       /* the checkpoints as they were told last; NULL at first */
    struct buffer metrics;     /* of rank 0 */
    bool staged;               /* ranks of this attempt have begun to write one, or may have */
    int beginning;             /* 0, or why it is not known which checkpoint the next attempt begins from */
};

extern const struct run_ops act_ops;
void act_fenced(void *context);    /* less may be left of the fence, or nothing; context: the run */
void act_open(struct ty_run *run); /* timers, and an ear for commits */
void act_close(struct ty_run *run);

/* -- interruption.c: signals, stops of the owner's, machines that are taken away */

enum interruption_level { UNINTERRUPTED, INTERRUPTED, HURRIED };
enum { SIGNALS_HANDLED = 5 };

struct interruption {
    enum interruption_level level;
    enum run_phase phase;         /* which the first met */
    int signal;                   /* the last that came; 0 */
    bool by_program;              /* the first was the owner's own */
    struct buffer told;           /* what workers are told of a preemption, JSON; empty: there is none */
    int numbers[SIGNALS_HANDLED]; /* 0: none */
    struct loop_signal handles[SIGNALS_HANDLED];
    struct sigaction saved[SIGNALS_HANDLED], own[SIGNALS_HANDLED]; /* before, and while the run listens */
};

/* The signal that ends the run as a preemption. */
int preempt_signal_of(const struct run_request *request);
/* SIGINT, SIGTERM, SIGHUP, SIGQUIT and that one come here; what whoever started us wants ignored stays so. */
void interruption_listen(struct ty_run *run);
void interruption_close(struct ty_run *run);          /* gives back what was handled before */
void interrupt_run(void *context, int signal_number); /* 0: the owner's own stop; context: the run */
/* Politely, and then at once, without a word about it. */
void interrupt_by_force(struct ty_run *run);
/* The agent of a node was told to end by that signal. */
void interrupt_node(struct ty_run *run, uint32_t node, int signal_number);

/* -- usage.c: samples of the hardware, to usage.db by a thread of their own; lost where it does not keep up */

struct usage_keeper; /* opaque */
int usage_open(struct ty_run *run, ty_error *err);
void usage_take(struct peer *peer, const Wire__Usage *usage, nanoseconds time);
void usage_commit(struct ty_run *run); /* what came in this turn is on its way */
struct storage *usage_storage(const struct ty_run *run);
void usage_close(struct ty_run *run); /* writes what is gathered, unless the storage hangs */

/* -- faults.c: what happens to devices */

void faults_take(struct peer *peer, const Wire__Usage *usage, nanoseconds time);

/* -- control_socket.c: what is asked from outside (controller/control_socket.h) */

struct control_socket {
    struct ty_run *run; /* NULL: not open */
    struct loop_listener listener;
    int client; /* -1 */
    struct loop_watch client_watch;
    struct loop_timer limit;
    uint32_t ticket;
    struct idset ranks, missing; /* asked for; nodes that have not answered */
    struct buffer answer;
    size_t sent;
};

void control_socket_open(struct ty_run *run);
void control_socket_take(struct peer *peer, const Wire__Look *seen);
void control_socket_close(struct ty_run *run);

/* -- run_storage.c: the threads at work on the run's files, and on its journal */

struct storage_watch {
    struct storage *storage;
    struct loop_watch watch;
    bool watched; /* while something is under way there */
};

struct run_storage {
    struct storage_watch watches[3];
    struct loop_timer timer;        /* to tell of what hangs */
    nanoseconds due;                /* it is, monotonic */
    struct loop_timer linger_timer; /* the run has ended, and waits no longer */
    bool held;                      /* an agent's logs hang, and so the storage is kept clear of */
    bool unrecorded;                /* the journal failed, which was told */
    bool lost;                      /* a commit found that another controller has taken the run over */
};

int run_storage_open(struct ty_run *run, ty_error *err);
void run_storage_close(struct ty_run *run);
/* Another controller has taken the run over: nothing that is decided here counts, and the end of the turn ends
 * the run. */
bool run_storage_is_lost(const struct ty_run *run);
void run_storage_commit(struct ty_run *run); /* the rows of this turn are on their way */
void run_storage_watch(struct ty_run *run);  /* at the end of a turn: there may be something to wait for */
/* What an agent says of its logs; as long as those of any node hang the storage is kept clear of. */
void run_storage_note(struct peer *peer, bool hangs);
/* How long a run that has ended waits for its storage: what hangs must not keep it from its end. */
nanoseconds run_storage_limit(const struct ty_run *run);
/* All is done but for what the storage still has to do: that is waited for, with an ear for signals. */
void run_storage_linger(struct ty_run *run);
void run_storage_stop_lingering(void *context); /* context: the run */

/* -- output.c: what workers print, and whether it is taken */

/* For news that stood behind output that was dropped. */
#define OUTPUT_LIMIT (5 * NS_PER_S)

struct run_output {
    struct sink sinks[2]; /* standard output, standard error */
    struct progress progress;
    bool told;   /* that it cannot be written */
    bool paused; /* agents are not heard, until it is taken */
};

void output_open(struct ty_run *run);
void output_close(struct ty_run *run);
void output_write(struct ty_run *run, uint32_t rank, int stream, const uint8_t *bytes, size_t size);
/* Agents are heard while what they say finds room, and not before. */
void output_pause_when_full(struct ty_run *run);
void output_go_on(void *context); /* something was taken; context: the run */
/* False when the output flows; else what nobody takes is dropped, so that agents are heard again. */
bool output_drop(struct ty_run *run);

/* -- notes.c: what happens, put on record and told the user */

/* The journal, the replay, those who listen. `metrics`: JSON that only the last hear; NULL without. */
void note_event(struct ty_run *run, const struct run_event *event, const char *metrics);
void note_run(struct ty_run *run);
void note_plan(struct ty_run *run, int attempt); /* 0: the first */
void note_network(struct ty_run *run);           /* where one was tried */
void note_tell(struct ty_run *run, const struct run_event *event);

/* -- chaos.c: faults on purpose (--chaos), by the schedule of run/chaos.h */

struct chaos_timer { /* zero-initialised does nothing */
    struct ty_run *run;
    struct chaos schedule;
    struct chaos_fault next;
    nanoseconds began;
    struct loop_timer timer;
};

void chaos_start(struct ty_run *run); /* once: a second call changes nothing */
void chaos_stop(struct ty_run *run);

/* -- scheduler.c: what the scheduler that lent the nodes says of them */

struct node_said {
    bool named; /* in the last answer: it is not well */
    char text[160];
};

struct scheduler {           /* zero-initialised asks nobody */
    struct storage *storage; /* its thread asks */
    struct node_said *nodes; /* by number; owned */
    bool asking;
    nanoseconds fresh_until; /* the last answer counts; by loop_now */
    struct loop_watch watch;
    struct loop_timer timer;
};

void scheduler_open(struct ty_run *run); /* once: a second call changes nothing */
/* What is said of a node that was lost just now, "down: disk bad"; "" when that is nothing. Valid until the
 * next answer. */
const char *scheduler_says(struct ty_run *run, const struct peer *peer);
void scheduler_close(struct ty_run *run);

/* -- stall.c: every rank waits for the others, in the store or, some of them, for a checkpoint. No agent sees
 * that, as each of its workers only waits its turn. */

struct stall { /* zero-initialised watches nothing */
    struct ty_run *run;
    nanoseconds limit;
    uint64_t turn;    /* of the store and of what ranks say, when they were last seen stuck */
    unsigned n_looks; /* in a row that found it so */
    struct loop_timer timer;
};

/* From now on: a stand-still for so long (0: any) is a hang. */
void stall_watch(struct ty_run *run, nanoseconds limit);
void stall_end(struct ty_run *run);

/* -- metrics_file.c: --metrics-file, by a process of its own: what reads the journal is not of this room, and a
 * storage that hangs is to hold up nothing */

struct metrics_file { /* zero-initialised: none */
    pid_t pid;
    int held; /* as kernel_hold says */
    int fd;   /* of the socket over which the process is told of the end, and tells what went wrong */
    struct loop_watch watch;
};

void metrics_file_open(struct ty_run *run);  /* what cannot be started is told */
void metrics_file_close(struct ty_run *run); /* the file is gone, or told why not */

/* -- failure.c: the first cause */

/* "rank 3 exited with code 1, on node n2", "node n2 was lost: no route to host": on one line; `node` NULL: not
 * of a node. */
void failure_line(const struct run_failure *failure, const char *node, struct buffer *out);
/* On one screen: which rank failed first, where and how; its last lines; the other ranks folded; whether
 * anything is left; where to look. Appends nothing when nothing failed. */
void failure_format(const struct ty_run *run, struct buffer *out);
/* Makes the log that is named there at the end of the run, also of a rank that printed nothing. Not at the end
 * of each such rank: another attempt would wait for that, and a disk may take milliseconds to make a file. */
void failure_make_log(struct ty_run *run);

/* -- result.c: what a run came to */

/* An end that the core knows nothing of goes on record: interrupted, or refused, before it began. */
void result_note_unbegun(struct ty_run *run);
/* The result, and the code and error of ty_fit; on success 0. Without memory no result. `err` is not NULL. */
int result_tell(struct ty_run *run, ty_result **result, ty_error *err);

/* -- controller.c */

struct ty_run {
    pid_t owner; /* the process that opened it */
    const struct run_request *request;
    struct request *read; /* what `request` lies in; NULL: it is the caller's */
    enum run_phase phase;
    ty_error error; /* what ended it from outside of the core: the launch, a wait */

    /* Where it lies, and what says so. */
    char *name, *path;
    char id[CHECKPOINT_RUN_SIZE]; /* for the run's life: on record since its first controller */
    char token[33];               /* in the environment of all its processes */
    int directory;                /* -1 */
    bool made;                    /* the directory, by this controller */
    struct run_lock *lock;
    struct prepared prepared; /* checked, and planned unless it waits */
    struct run_past past;
    struct adoption adoption;

    /* What is kept of it. */
    struct records *records;
    struct checkpoints *checkpoints;
    struct usage_keeper *usage;
    int n_faults; /* of devices, that are on record */
    struct events events;
    struct run_replay replay; /* of all that happened, also before a resume */

    struct log_target log; /* of its owner, where that wants messages as events */

    struct loop *loop; /* NULL: not begun */
    struct run *core;  /* decides; NULL before PHASE_RUNNING */

    /* One of each file that carries out. */
    struct room_watch room;
    struct run_agents agents;
    struct launched launched;
    struct node_programs programs;
    struct timer_slot timers[RUN_TIMERS];
    struct committing committing;
    struct interruption interruption;
    struct run_storage storage;
    struct apart apart;
    struct run_output output;
    struct input input;   /* standard input, for workers */
    struct window window; /* the size of the terminal, for those of workers */
    struct chaos_timer chaos;
    struct scheduler scheduler;
    struct stall stall;
    struct control_socket control;
    struct metrics_file metrics_file;
    uint32_t size_told; /* notes.c: workers of the last attempt that began */
};

/* Everything that the loop wakes for is in its place behind it. */
int controller_open_loop(struct ty_run *run, ty_error *err);

#endif
