/* One worker as its agent sees it: started, its output and its words passed on, stopped, seen to exit, and
 * gone. */
#ifndef AGENT_WORKER_PROCESS_H
#define AGENT_WORKER_PROCESS_H

#include "agent/disturb.h"
#include "agent/feed.h"
#include "agent/last_words.h"
#include "agent/node_launch.h"
#include "agent/oom.h"
#include "agent/pty.h"
#include "agent/relay.h"
#include "agent/template/template.h"
#include "agent/worker_channel.h"

/* X(name, what holds in it) */
#define WORKER_PROCESS_STAGES(X)                                                      \
    X(PROCESS_PLANNED, "not started yet")                                             \
    X(PROCESS_ASKED, "the template was asked to fork it; its pid is not known yet")   \
    X(PROCESS_RUNNING, "executed or forked, not reaped")                              \
    X(PROCESS_EXITED, "reaped; its group, its pipes, its channels or its last words") \
    X(PROCESS_GONE, "nothing of it is left, or it never started")

enum worker_process_stage {
#define X(name, meaning) name,
    WORKER_PROCESS_STAGES(X)
#undef X
};

/* X(name, what was done last): how far its stop has come. The grace is that of the whole stop. Of its end the
 * last quarter, 5 s at most, is STOP_ASKED's, and what came first has the time before. */
#define WORKER_PROCESS_STOPS(X)                                                                    \
    X(STOP_NONE, "nothing")                                                                        \
    X(STOP_SETTLING, "it ended well by itself: what it left has a moment to end as well")          \
    X(STOP_LINGERING, "what it left was told of, and may linger")                                  \
    X(STOP_INTERRUPTED,                                                                            \
      "SIGINT to its whole group, as a terminal does; not to a worker that handles SIGTERM alone") \
    X(STOP_TOLD, "SIGTERM to the worker alone, so that what it started works on while it saves")   \
    X(STOP_ASKED, "SIGTERM to its whole group: the worker has ended, or its time is nearly over")  \
    X(STOP_KILLED, "SIGKILL to its whole group")                                                   \
    X(STOP_GIVEN_UP, "even that did not end it")

enum worker_process_stop {
#define X(name, meaning) name,
    WORKER_PROCESS_STOPS(X)
#undef X
};

/* Signs of life, as they were when the worker last showed one, and at the look that is on (vitals.h). */
struct vitals {
    uint64_t output, ticks, members;
    uint64_t next_ticks, next_members;
};

struct worker_process {
    struct outbox *outbox;
    struct logs *logs;
    struct oom *oom;
    uint32_t rank;
    unsigned hidden; /* as in relay_config */
    enum worker_process_stage stage;
    enum worker_process_stop stop;
    bool told;       /* the controller wanted it to stop */
    bool hung;       /* it says nothing any more (hang.h) */
    bool group_gone; /* no process of its group is left */
    pid_t pid;
    nanoseconds grace;
    nanoseconds linger;       /* of what it leaves when it ends well */
    nanoseconds kill_at;      /* while it stops: the end of its grace; monotonic */
    nanoseconds silent_since; /* its channels were closed then; 0: they are open */
    struct loop_timer deadline;
    struct disturbance disturbance;
    struct relay relay;
    struct feed feed;
    struct pty pty;
    struct speaker speaker;
    struct vitals vitals;         /* of one that never said that it is up */
    nanoseconds since;            /* by the clock of files: what was written before is not its own */
    struct last_words *words;     /* owned; while what it wrote of its failure is being read */
    Wire__WorkerEvent exit;       /* meanwhile: what is to be told of it */
    struct worker_origin *origin; /* owned; how it was asked for, while that is not answered */
};

/* Starts worker `index` of the launch, or says why that failed: it is then gone. Given a template that is
 * ready, it is asked for the worker, and the start is told when that has answered. */
void worker_process_start(struct worker_process *worker, struct node_launch *launch, size_t index,
                          struct worker_channels *channels, struct template *template);

/* One that was not started never will be, for this reason (`code` as of an error). */
void worker_process_refuse(struct worker_process *worker, int code, const char *why);

/* Begins to stop it with STOP_INTERRUPTED, STOP_TOLD or STOP_KILLED; one that stops already is killed or goes
 * on as it is. One that was not started is gone. */
void worker_process_stop(struct worker_process *worker, enum worker_process_stop how, nanoseconds grace);

/* Kills it, or stops or starves it for a while (run/chaos.h); one that does not run, or was told to stop, is
 * left alone. */
void worker_process_disturb(struct worker_process *worker, Wire__Disturb__Kind kind, nanoseconds length);

/* It was reaped with this status. `peak_kib` is the most memory that it used. */
void worker_process_reaped(struct worker_process *worker, int wait_status, long peak_kib);

/* Some process was reaped: looks whether this exited child's group is empty now. */
void worker_process_check_group(struct worker_process *worker);

void worker_process_done(struct worker_process *worker); /* frees; a zeroed one is fine */

#endif
