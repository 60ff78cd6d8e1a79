/* The template of a node: processes that have imported what workers need, and fork them (docs/design.md 4,
 * "Fork template").
 *
 * There are two. The zygote has imported the framework; it outlives runs, and serves all that want the same.
 * Each run forks its own template from it, which loads the training function, lives for all attempts of the
 * run, and forks the workers. Forks are made with CLONE_PARENT: what is forked is this process's child, and
 * is watched, stopped and reaped as any worker.
 *
 *   to         request (control.c)             answers, one line each, in order
 *   zygote     -                               ready | unsafe WHY | error WHY   when the imports are done
 *   zygote     R, with socket, output, payload pid N | unsafe WHY | error WHY
 *   the run's  -                               ready | unsafe WHY | error WHY   when the function is loaded
 *   the run's  W, with a worker's descriptors  pid N | unsafe WHY | error WHY
 *
 * The two of a program that knows nothing of this are its interpreter, which has imported what the program
 * imports first and is caught before it comes to the program (template_program.c).
 *
 * "unsafe" and "error" before a worker was asked for are a refusal: workers can be executed instead. A
 * template that dies, or does not answer within the limit, has failed: what it ran into would be met again.
 * Nothing here waits; all is told by `changed`. */
#ifndef AGENT_TEMPLATE_H
#define AGENT_TEMPLATE_H

#include <stddef.h>
#include <sys/resource.h>

#include "agent/node_launch.h"
#include "loop/loop.h"

struct template; /* opaque; one an agent */

/* X(name, what holds in it). Which events lead from one to another: the table in template_table.c. */
#define TEMPLATE_STATES(X)                                                                             \
    X(TEMPLATE_NONE, "there is no template of the run; a zygote may be there, ready")                  \
    X(TEMPLATE_RESTED, "the same, but the zygote is of an earlier run, and may be dead or deaf")       \
    X(TEMPLATE_IMPORTING, "the zygote imports")                                                        \
    X(TEMPLATE_WAKING, "a zygote of an earlier run was asked for the run's template; its pid is owed") \
    X(TEMPLATE_FORKING, "the same, of a zygote that has answered in this run")                         \
    X(TEMPLATE_LOADING, "the run's template loads the function")                                       \
    X(TEMPLATE_READY, "workers can be forked")                                                         \
    X(TEMPLATE_REFUSED, "forking is unsafe or impossible: template_reason")                            \
    X(TEMPLATE_FAILED, "one of the two died, or took too long: template_reason")

enum template_state {
#define X(name, meaning) name,
    TEMPLATE_STATES(X)
#undef X
        TEMPLATE_STATES_END
};

/* A worker that was asked for; embedded in its owner, who must outlive the answer. */
struct template_fork {
    /* With its pid; or with 0 and the reason. It may have ended already: template_take_reaped. */
    void (*answered)(void *context, pid_t pid, const char *why);
    void *context;
    struct template_fork *next;
};

struct template *template_create(void);           /* NULL when memory is short */
void template_destroy(struct template *template); /* ends what lives; NULL is fine */

/* The template of the next run is this child, a copy of the driver (engine/local.h), with its socket, which
 * is taken over. It is the only one that this template ever has. */
void template_give(struct template *template, int control_fd, pid_t pid);

/* Takes what the template writes; a path of "": nothing does. Both are borrowed until template_leave. */
struct template_log {
    struct logs *logs; /* opens it */
    const char *path;
};

/* Begins to serve a run on its loop. `changed` is called, never from within a call of ours, when the state
 * is another or an answer has come. */
void template_enter(struct template *template, struct loop *loop, const struct template_log *log,
                    void (*changed)(void *context), void *context);

/* Ends the run's template, and the zygote as well unless it is kept. True when there was something to end:
 * its descendants are left. */
bool template_leave(struct template *template, bool keep);

/* The launch names no program to fork from, and would have its workers forked: from an interpreter that has
 * begun the program (python/trainyard/_program.py). */
bool template_is_program(const struct node_launch *launch);
/* Why that cannot be tried; NULL where it can. */
const char *template_refuse_program(const struct node_launch *launch);

/* Begins to take steps towards workers of this launch, which is borrowed until template_forget. */
void template_prepare(struct template *template, const struct node_launch *launch);
/* Nobody waits for that launch any more. */
void template_forget(struct template *template);
enum template_state template_state(const struct template *template);
const char *template_reason(const struct template *template); /* borrowed until the next call */

/* Asks for worker `index` of the launch, when READY. `fds`: what become its descriptors 0 to 4, the last may
 * be -1; they remain the caller's. */
int template_fork(struct template *template, struct template_fork *fork, const struct node_launch *launch,
                  size_t index, const int fds[SPAWN_FDS], ty_error *err);
unsigned template_pending(const struct template *template); /* workers asked for and not answered */
/* No more time for those: they are answered with this reason, and the run's template ends. */
void template_abandon(struct template *template, const char *why);

bool template_lives(const struct template *template); /* at least one of the two has a process */
/* One of the two, and not a worker or what it left. */
bool template_owns(const struct template *template, pid_t pid);

/* A child of this process was reaped. True when it was one of the two. Another one's end is kept as long as
 * it may be that of a worker whose pid was not told yet. */
bool template_reaped(struct template *template, pid_t pid, int wait_status, const struct rusage *used);
bool template_take_reaped(struct template *template, pid_t pid, int *wait_status, struct rusage *used);

#endif
