/* Saves the stacks of an agent's workers to {run}/logs/rank-N.stack: a process for each (stack_save.h), two
 * at a time, so that the agent's loop waits for nobody; the thread of the logs writes the file. Workers that
 * hang come first. */
#ifndef AGENT_STACKS_H
#define AGENT_STACKS_H

#include "agent/worker_process.h"

enum { STACKS_AT_ONCE = 2 };

struct stacks { /* zero-initialised but for loop, done and context */
    struct loop *loop;
    struct logs *logs;
    /* All are saved, or the limit passed; `frames` are the innermost lines of the first that hangs, maybe
     * none. Borrowed. */
    void (*done)(void *context, const struct buffer *frames);
    void *context;
    const struct node_launch *launch;
    struct worker_process *workers;
    size_t n;
    size_t next; /* in the order of stacks_start */
    bool running;
    struct stacks_job {
        pid_t pid; /* 0: free */
        const struct worker_process *worker;
        int fd; /* of what is found out, in memory; -1: it was taken */
    } jobs[STACKS_AT_ONCE];
    struct buffer frames;
    struct loop_timer limit;
};

/* Begins; does nothing while one is on. `done` follows, perhaps before this returns. */
void stacks_start(struct stacks *stacks, const struct node_launch *launch, struct worker_process *workers,
                  size_t n);

/* A child of this process was reaped: true when it was one of these. */
bool stacks_reaped(struct stacks *stacks, pid_t pid);

/* Ends what goes on, without `done`; stacks_busy is false once its processes are reaped. */
void stacks_cancel(struct stacks *stacks);
bool stacks_busy(const struct stacks *stacks);

/* Looks (looks.c): workers of a node looked at again and again, as the controller asks for somebody elsewhere:
 * by a process of its own, `trainyard agent --looks LENGTH PERIOD RANK:PID...` (ns), since to read another's
 * /proc can wait for that process. One at a time; it ends with the workers. */

struct looks { /* zero-initialised but for `outbox` */
    struct outbox *outbox;
    pid_t pid; /* 0: none */
    int fd;    /* of what is found out, in memory */
    uint32_t ticket;
};

/* Begins; what was seen is sent when it is over. Nothing was, where it cannot begin or another goes on. */
void looks_begin(struct looks *looks, const Wire__Look *order, const struct worker_process *workers, size_t n);
/* A child of this process was reaped: true when it was that one. */
bool looks_reaped(struct looks *looks, pid_t pid);
/* Kills it; it goes on until it is reaped. */
void looks_end(struct looks *looks);
bool looks_go_on(const struct looks *looks);

/* Exit status. argv[0] is the word before LENGTH. */
int looks_main(int argc, char **argv);

#endif
