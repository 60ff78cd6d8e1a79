/* One run on the node of an agent.
 *
 * Order of things: hello; launch -> each worker started, a few a turn (started): executed, or forked by the
 * template; its lines relayed, its messages forwarded (ready, reports, store); its end seen by SIGCHLD
 * (exited); its pipes drained and its process group ended (gone). When all are gone and the attempt is over
 * comes the sweep: the agent is a subreaper, so that no child left (waitid: ECHILD) proves that no
 * descendant is left; others are killed and counted. Then the lease is dropped, and bye. When the channel
 * closes before that, workers are stopped at once (TERM, grace, KILL) and swept, or go on (adrift.h).
 *
 * Files: node_run.c opens the run, says hello and bye, and takes the steps between; orders.c does what the
 * controller says; attempt.c starts, stops and ends the workers of an attempt; signals.c reaps, and hears
 * signals that ask for the end; hang.c watches workers that say nothing; sampling.c keeps the sampler;
 * node_sweep.c proves that nothing is left. */
#ifndef AGENT_NODE_RUN_H
#define AGENT_NODE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/adrift.h"
#include "agent/agent.h"
#include "agent/logs.h"
#include "agent/node_storage.h"
#include "agent/outbox.h"
#include "agent/stacks.h"
#include "agent/template/template.h"
#include "agent/worker_process.h"
#include "base/idset.h"
#include "loop/loop.h"

/* -- who hangs */

/* Which workers hang: those that have said nothing for too long; of those that never said that they are up, the
 * ones that show no other sign of life (hang.c). Anything that a worker says counts, and so does waiting
 * for an answer, which comes when other ranks have done their part: theirs is the hang then. One timer, for the
 * earliest that can be too late. */
struct hang { /* zero-initialised but for loop, found and context */
    struct loop *loop;
    void (*found)(void *context, struct worker_process *worker); /* called once for each that hangs */
    void *context;
    struct worker_process *workers;
    size_t n;
    nanoseconds limit; /* 0: nobody is watched */
    nanoseconds due;   /* of the next look; monotonic */
    struct loop_timer timer;
};

/* Watches these workers until hang_end. */
void hang_begin(struct hang *hang, struct worker_process *workers, size_t n, nanoseconds limit);
void hang_end(struct hang *hang); /* twice is fine */

/* How long until one that was last heard at `heard` is too late, 0 when it is; times are monotonic. */
nanoseconds hang_remaining(nanoseconds heard, nanoseconds limit, nanoseconds now);

/* True when a look comes so late that this agent did not run itself: it was stopped, or the machine
 * suspended or overloaded, and so its workers could say nothing either. All have their whole time anew. */
bool hang_was_away(nanoseconds due, nanoseconds limit, nanoseconds now);

/* "no report or heartbeat for 30 s", or what else was looked for, and what the kernel says of its state if that
 * is the reason. */
void hang_describe(const struct worker_process *worker, nanoseconds limit, struct buffer *out);

/* -- the sampler */

/* The sampler of a node (usage/usage.h) as its agent keeps it: started some time into the run, so that a short
 * one has none; its samples sent on; one that stops to answer ended and, a minute later, replaced. Nothing
 * waits for it, not even the end of the run: one that the kernel cannot end is left behind. X(name, what holds
 * in it) */
#define SAMPLING_STATES(X)                                      \
    X(SAMPLING_OFF, "nothing is sampled")                       \
    X(SAMPLING_DUE, "a sampler is started when the timer ends") \
    X(SAMPLING_ON, "one runs; when the timer ends it has stopped to answer")

enum sampling_state {
#define X(name, meaning) name,
    SAMPLING_STATES(X)
#undef X
};

struct sampling { /* zero-initialised but for loop, outbox and node_name */
    struct loop *loop;
    struct outbox *outbox;
    const char *node_name;
    enum sampling_state state;
    nanoseconds period;
    struct worker_process *const *workers; /* borrowed, as they change */
    const size_t *n_workers;
    pid_t pid; /* 0: none, or it was reaped */
    int fd;    /* in SAMPLING_ON */
    struct loop_watch watch;
    struct loop_timer timer;
    bool told; /* that samples are missing */
};

/* Goes on where one runs already. 0: off. */
void sampling_begin(struct sampling *sampling, nanoseconds period, struct worker_process *const *workers,
                    const size_t *n_workers);
/* Ends it. The process is gone then, or cannot be ended: sampling_owns it. */
void sampling_end(struct sampling *sampling);
bool sampling_owns(const struct sampling *sampling, pid_t pid);
/* A child of this process was reaped: true when it was the sampler. */
bool sampling_reaped(struct sampling *sampling, pid_t pid);

/* -- the sweep */

/* The proof of a clean end: after the workers of an attempt are gone, this process, which adopts the orphans
 * among their descendants, must have no child left but the template's processes. What is left is asked to
 * end, then killed, and counted. What workers that ended well left outside of their groups (daemons) may linger
 * before that. X(name, what holds in it) */
#define SWEEP_STATES(X)                                                            \
    X(SWEEP_IDLE, "nobody looks")                                                  \
    X(SWEEP_SETTLING, "what is left of a good end has a moment to end as well")    \
    X(SWEEP_LINGERING, "what is left was told of, and may linger")                 \
    X(SWEEP_ASKING, "what is left was told to end, and so is what comes to light") \
    X(SWEEP_KILLING, "what is left is killed")

enum sweep_state {
#define X(name, meaning) name,
    SWEEP_STATES(X)
#undef X
};

struct node_sweep {
    struct loop *loop;
    const struct template *template; /* its two processes are no leftovers */
    const struct sampling *sampling; /* nor is its process */
    /* None of them is called from within a call of ours. */
    void (*left)(void *context, const struct idset *pids); /* of a good end: perhaps none */
    void (*waited)(void *context);                         /* of node_sweep_wait */
    void (*ended)(void *context, bool clean);              /* of node_sweep_start */
    void *context;
    enum sweep_state state;
    nanoseconds linger;  /* of node_sweep_wait; 0: it is no such wait */
    nanoseconds grace;   /* between being asked and killed */
    nanoseconds give_up; /* when, after killing began */
    struct idset found;  /* pids told to end */
    struct loop_timer timer;
    uint32_t leftovers; /* processes found, in all sweeps */
};

/* All workers have ended well: what they left may linger so long (above 0). Ends with `waited`, sooner when
 * nothing is left. */
void node_sweep_wait(struct node_sweep *sweep, nanoseconds linger);
void node_sweep_hurry(struct node_sweep *sweep); /* that is waited for no longer */
/* Begins; `grace` 0 kills at once. `by_itself`: after a good end, of which nothing was told yet. */
void node_sweep_start(struct node_sweep *sweep, nanoseconds grace, bool by_itself);
bool node_sweep_runs(const struct node_sweep *sweep);
void node_sweep_kill(struct node_sweep *sweep); /* no more grace */
/* Some child was reaped. */
void node_sweep_check(struct node_sweep *sweep);
void node_sweep_done(struct node_sweep *sweep);

/* -- the run */

/* What the agent gives to each run. */
struct service {
    struct transport *transport; /* to the controller; borrowed, and empty while the run has it */
    /* Between machines, where devices are claimed by the agent, which has a lease of its own: without a
     * controller that runs out. Else NULL. */
    const struct agent_service *leased;
    int parent_fd;       /* pidfd of the controller, -1: its end is only seen by the channel; borrowed */
    int lease_fd;        /* kept open during the run, so that its lease holds; taken over; -1 without */
    const char *refusal; /* why this node cannot serve the run, NULL: it can */
    const char *warning; /* with its hello; NULL */
    const struct rlimit *nofile; /* of workers */
    const Wire__Start *start;
    struct template *template; /* borrowed */
    int status;                /* that the controller said goodbye with; set by the run */
    bool lost;                 /* the controller was; set by the run */
};

/* Kept: the channel is open, another run may come over it. Else it is closed. Failed: the controller was
 * lost, or something of the run could not be ended. */
enum node_run_result { NODE_RUN_KEPT, NODE_RUN_DONE, NODE_RUN_FAILED };

/* Serves one run until its end. */
enum node_run_result node_run_serve(struct service *service);

/* Within what the controller gives the end of a run. */
#define LOG_LIMIT (8 * NS_PER_S)

/* How the workers of an attempt are started. */
enum start_way { START_EXECUTED, START_FORKED, START_UNDECIDED, START_PREPARING /* the node's storage */ };

/* An attempt lasts until the sweep behind its workers is done. Swept: where they ended by themselves, and
 * another controller may adopt the attempt, all that it would be told is kept until this one goes on. Over: bye
 * is said, and what comes is for the next run. */
enum node_run_phase { NODE_RUN_BETWEEN /* attempts */, NODE_RUN_ATTEMPT, NODE_RUN_SWEPT, NODE_RUN_OVER };

struct node_run {
    struct service *service;
    struct loop *loop;
    struct outbox outbox;
    struct logs logs;
    struct node_storage storage;
    struct log *log;       /* the agent's own */
    nanoseconds log_limit; /* how long the end of the run waits for logs */
    struct worker_channels channels;
    struct oom oom;
    struct node_sweep sweep;
    struct hang hang;
    struct stacks stacks;
    struct looks looks;
    struct sampling sampling;
    char *preemption; /* owned: what workers are told of it; NULL without */
    struct loop_signal child_signal, stop_signals[4], preempt_signal;
    struct loop_watch parent; /* readable once the process that started this one is gone */
    int lease_fd;             /* open as long as the run may use its devices; -1: none */
    struct adrift adrift;
    nanoseconds heard; /* when the Start came, wall; of an agent that joined */

    struct node_launch launch; /* of the current attempt */
    struct worker_process *workers;
    size_t n_workers;
    size_t n_started; /* the first ones were started, or need not be */
    enum start_way way;
    size_t reaped_hint;
    struct loop_timer start_timer;
    struct loop_timer goodbye;

    Wire__Launch *next; /* arrived before the attempt was over */
    enum node_run_phase phase;
    bool read_told;           /* that a worker read standard input */
    bool ending;              /* after the attempt comes the end */
    bool keep;                /* the agent stays for another run */
    bool killing;             /* no grace */
    bool lost;                /* the controller is gone */
    bool unclean;             /* something could not be ended */
    int signals;              /* that asked for the end */
    nanoseconds signalled_at; /* the first of them */
};

/* After the attempt comes the end of the run; workers are stopped so (worker_process_stop). */
void node_run_end(struct node_run *run, enum worker_process_stop how);
/* This node cannot serve the run any more; none of its workers is there. It may be started again. */
void node_run_refuse(struct node_run *run, const char *why);

/* The controller is gone, and no other one is waited for: `why` goes on behind that. */
void node_run_lose(struct node_run *run, const char *why, enum worker_process_stop how);
/* Another controller has adopted the workers, over this channel. */
void node_run_follow(struct node_run *run, struct channel *channel);

/* A message of the controller; `context` is the run. */
void orders_take(void *context, const Wire__Message *message);

/* Begins an attempt, or fails each of its workers. No other may go on. */
void attempt_begin(struct node_run *run, const Wire__Launch *body);
/* Fails each of its workers: a launch that cannot even begin, or is not to any more (`stopped`), which is no
 * failure. */
void attempt_refuse(struct node_run *run, const Wire__Launch *body, const char *why, bool stopped);
void attempt_go_on(void *context); /* starts some of the workers that were not started yet */
void attempt_storage_ready(void *context, const ty_error *err); /* or why it cannot be; workers start */
/* The template can be asked, or not, or an answer of it has come. */
void attempt_template_changed(void *context);
nanoseconds attempt_grace(const struct node_run *run);
void attempt_stop(struct node_run *run,
                  enum worker_process_stop how); /* all its workers, and those of the next launch */
bool attempt_all_gone(const struct node_run *run);
bool attempt_ended_well(const struct node_run *run); /* each of its workers, by itself */
/* How long what workers that ended well left outside of their groups may go on; 0 as long as a worker is
 * neither gone nor held for that. */
nanoseconds attempt_linger(const struct node_run *run);
void attempt_end(struct node_run *run); /* frees; fine when none is active */
/* The controller goes on, or is lost: one that is swept ends. */
void attempt_let_go(struct node_run *run);

int signals_start(struct node_run *run); /* negative errno */
void signals_stop(struct node_run *run);
/* Hears the signal that the launch names for a machine that is taken away. */
void signals_watch_preemption(struct node_run *run);
/* What workers are told of it, JSON; NULL: memory was short for that. */
void signals_set_preemption(struct node_run *run, const char *text);

#endif
