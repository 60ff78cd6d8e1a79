/* One worker as its agent sees it: started, its output and its words passed on, stopped, seen to exit, and gone. */
#ifndef AGENT_CHILD_H
#define AGENT_CHILD_H

#include "agent/disturb.h"
#include "agent/launch.h"
#include "agent/oom.h"
#include "agent/relay.h"
#include "agent/template.h"
#include "agent/worker_channel.h"

/* X(name, what holds in it) */
#define CHILD_STAGES(X)                                                            \
    X(CHILD_PLANNED, "not started yet")                                            \
    X(CHILD_ASKED, "the template was asked to fork it; its pid is not known yet")  \
    X(CHILD_RUNNING, "executed or forked, not reaped")                             \
    X(CHILD_EXITED, "reaped; its group, its pipes or its channels are still open") \
    X(CHILD_GONE, "nothing of it is left, or it never started")

enum child_stage {
#define X(name, meaning) name,
    CHILD_STAGES(X)
#undef X
};

/* How far its stop has come. */
enum child_stop { STOP_NONE, STOP_ASKED, STOP_KILLED, STOP_GIVEN_UP };

struct child {
    struct outbox *outbox;
    struct logs *logs;
    struct oom *oom;
    uint32_t rank;
    enum child_stage stage;
    enum child_stop stop;
    bool told;       /* the controller wanted it to stop */
    bool hung;       /* it says nothing any more (hang.h) */
    bool group_gone; /* no process of its group is left */
    pid_t pid;
    nanoseconds grace;
    nanoseconds silent_since; /* its channels were closed then; 0: they are open */
    struct loop_timer deadline;
    struct disturbance disturbance;
    struct relay relay;
    struct speaker speaker;
    struct child_origin *origin; /* owned; how it was asked for, while that is not answered */
};

/* Starts worker `index` of the launch, or says why that failed: it is then gone. Given a template that is ready, it is asked for the
 * worker, and the start is told when that has answered. */
void child_start(struct child *child, struct launch *launch, size_t index, struct worker_channels *channels,
                 struct template *template);

/* One that was not started never will be, for this reason (`code` as of an error). */
void child_refuse(struct child *child, int code, const char *why);

/* Asks it to end (TERM and CONT to its group, KILL after the grace), or kills it at once. One that was not started is gone. */
void child_stop(struct child *child, bool kill, nanoseconds grace);

/* Kills it, or stops or starves it for a while (run/chaos.h); one that does not run, or was told to stop, is left alone. */
void child_disturb(struct child *child, Wire__Disturb__Kind kind, nanoseconds length);

/* It was reaped with this status. `peak_kib` is the most memory that it used. */
void child_reaped(struct child *child, int wait_status, long peak_kib);

/* Some process was reaped: looks whether this exited child's group is empty now. */
void child_check_group(struct child *child);

void child_done(struct child *child); /* frees; a zeroed one is fine */

#endif
