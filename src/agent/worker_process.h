/* One worker as its agent sees it: started, its output and its words passed on, stopped, seen to exit, and
 * gone. */
#ifndef AGENT_WORKER_PROCESS_H
#define AGENT_WORKER_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/logs.h"
#include "agent/node_launch.h"
#include "agent/outbox.h"
#include "agent/pty.h"
#include "agent/relay.h"
#include "agent/template/template.h"
#include "agent/worker_channel.h"
#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/idset.h"
#include "loop/loop.h"

/* Whether the kernel killed a worker for want of memory: the memory cgroup's counter of such kills, before
 * and after. */

struct oom {
    char directory[PATH_MAX]; /* of this process's memory cgroup; "": not found, nothing is ever told */
    bool v1;
    uint64_t kills; /* seen and accounted for */
};

void oom_init(struct oom *oom);

/* True when there was a kill that is not accounted for in `kills`; whom the kernel killed is not known. */
bool oom_happened(const struct oom *oom);

/* Accounts for all kills so far: those of an attempt are no cause in the next one. */
void oom_forget(struct oom *oom);

/* Appends "out of memory: limit 512 MiB, peak 498 MiB". */
void oom_describe(const struct oom *oom, long peak_kib, struct buffer *out);

/* What a worker that failed has written of it: the file that TORCHELASTIC_ERROR_FILE names, as PyTorch's
 * `@record` fills it. It is read on the thread of the logs, so that no storage keeps the agent, and as what a
 * stranger may have put there: a plain file of this attempt, of bounded size, of JSON in that form, or
 * nothing. */

struct last_words_found {
    char *message;    /* one line, harmless; NULL without */
    char *traceback;  /* lines; NULL without */
    nanoseconds time; /* wall; 0 when it is not told, or told wrong */
};

struct last_words; /* opaque: a question */

/* A moment by the clock with which the kernel dates files, which may be a tick behind, and may be set; and by
 * one that nobody sets. */
struct last_words_moment {
    nanoseconds dated, monotonic;
};

struct last_words_moment last_words_now(void);

/* Looks for what rank `rank` has written since a moment. `told` is called once, on the loop: with what there
 * is, or with nothing when the storage does not answer in time. NULL where there is nobody to ask. */
struct last_words *last_words_ask(struct logs *logs, const char *run_path, uint32_t rank,
                                  struct last_words_moment since,
                                  void (*told)(void *context, const struct last_words_found *found),
                                  void *context);
/* Nobody waits any more; NULL is fine. */
void last_words_drop(struct last_words *words);

/* A worker that is stopped or starved for a while, because a schedule of faults says so (run/chaos.h). */

/* Zero-initialised is at rest. */
struct disturbance {
    struct loop *loop;
    pid_t pid; /* a child that was not reaped */
    nanoseconds until;
    bool starves, stopped;
    struct loop_timer timer;
};

/* Stops the process until the length has passed; or, when it `starves`, nine tenths of that time. One that
 * is under way ends first. */
void disturb_begin(struct disturbance *disturbance, struct loop *loop, pid_t pid, bool starves,
                   nanoseconds length);
void disturb_end(struct disturbance *disturbance);    /* lets the process run */
void disturb_forget(struct disturbance *disturbance); /* it was reaped: its number may be another's */

/* The standard input of one worker, where it has any: what the controller sends goes into a pipe as fast as the
 * worker reads. The controller sends no more than it was told that there is room for; each piece that the pipe
 * took is told. A worker that closed its end, or ended, is told once and takes nothing more. */

struct feed { /* zero-initialised: the worker has no input */
    struct outbox *outbox;
    struct loop_watch watch;
    struct buffer queue;
    uint32_t rank;
    int fd;        /* our end of the pipe; -1: closed */
    bool terminal; /* a terminal's: its end is what Ctrl-D says */
    bool last;     /* the end comes behind what is queued */
};

/* Takes over `fd`. */
void feed_start(struct feed *feed, struct outbox *outbox, uint32_t rank, int fd, bool terminal);
void feed_add(struct feed *feed, const void *bytes, size_t size, bool last);
void feed_end(struct feed *feed); /* the worker reads no more; twice is fine */

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
    X(STOP_HELD, "its group is empty: what it left outside of it may linger, and use its output")  \
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

/* Signs of life, as they were when the worker last showed one, and at the look that is on (hang.c). */
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
    bool hung;       /* it says nothing any more (node_run.h) */
    bool group_gone; /* no process of its group is left */
    pid_t pid;
    nanoseconds grace;
    nanoseconds linger;       /* of what it leaves when it ends well */
    enum face face;           /* whose words messages about it use */
    nanoseconds ended_at;     /* monotonic; 0: it has not ended */
    nanoseconds kill_at;      /* while it stops: the end of its grace; monotonic */
    nanoseconds silent_since; /* its channels were closed then; 0: they are open */
    struct loop_timer deadline;
    struct disturbance disturbance;
    struct relay relay;
    struct feed feed;
    struct pty pty;
    struct speaker speaker;
    struct vitals vitals;           /* of one that never said that it is up */
    struct last_words_moment since; /* what was written before is not its own */
    struct last_words *words;       /* owned; while what it wrote of its failure is being read */
    Wire__WorkerEvent exit;         /* meanwhile: what is to be told of it */
    struct worker_origin *origin;   /* owned; how it was asked for, while that is not answered */
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

/* The process was reaped with this status, and had used that. */
void worker_process_reaped(struct worker_process *worker, int wait_status, const struct rusage *used);

/* Some process was reaped: looks whether this exited child's group is empty now. */
void worker_process_check_group(struct worker_process *worker);

/* It has ended with status 0, and nobody has told it to. */
bool worker_process_ended_well(const struct worker_process *worker);
/* One that is held is so no longer. */
void worker_process_release(struct worker_process *worker);

void worker_process_done(struct worker_process *worker); /* frees; a zeroed one is fine */

/* -- the processes beside a worker (leftovers.c) */

/* What a worker that ended well left: jobs in the background, as an upload that goes on. Helpers that end when
 * their worker has, as those of Python's multiprocessing, are not worth a word. */
#define LEFTOVERS_SETTLE (100 * NS_PER_MS)

/* Adds the processes of the group that live. */
void leftovers_of_group(pid_t group, struct idset *pids);
/* "rank 3 ended and left 2 processes: python upload.py, sleep 100: they have 1 h to end", and without that time
 * how to give it to them. Of none nothing is said. */
void leftovers_tell(struct outbox *outbox, const char *who, const struct idset *pids, nanoseconds linger,
                    enum face face);

enum { LISTENERS_MAX = 64 }; /* more than any worker has */

/* Which of a worker's processes are told to stop (SIGTERM), and how many. A worker that handles the signal is
 * told alone, so that what it has started, as the loaders of its data, goes on working while it saves. A shell,
 * or another process that does no more than wait for a child, does not pass a signal on: the processes that it
 * started are looked at in its place, down to the first on each branch that handles the signal. 0: the worker
 * is such a wrapper and nobody below it handles the signal, so that the whole group may be told. A worker that
 * is no wrapper is the one that is found, whether it handles the signal or is to end by it. */
size_t listeners_find(pid_t worker, pid_t pids[LISTENERS_MAX]);

/* True of a worker that was made to be stopped by SIGTERM and would die of SIGINT: who is found handles the
 * first and not the second. */
bool listeners_take_term_alone(pid_t worker);

#endif
