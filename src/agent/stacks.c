/* The agent's side of saved stacks: who is next, two at a time, each with a limit, and the end of it. What is
 * found comes from processes (stack_save.c) and goes to the thread of the logs. That a worker hangs is found
 * out in hang.c, and what follows is decided by the run. */
#include "agent/stacks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/log.h"

/* All stacks of a node; less than what the controller waits. */
#define STACKS_LIMIT (25 * NS_PER_S)

static int start_job(const struct stacks *stacks, const struct worker_process *worker, struct stacks_job *job,
                     ty_error *err) {
    char process[16], rank[16], attempt[16];
    CLEANUP_FD int found = kernel_memory_file("trainyard-stack");
    if (found < 0) return ty_fail(err, -errno, "no descriptor: %s", strerror(errno));
    (void)snprintf(process, sizeof process, "%d", worker->pid);
    (void)snprintf(rank, sizeof rank, "%u", worker->rank);
    (void)snprintf(attempt, sizeof attempt, "%u", stacks->launch->body->attempt);
    char *argv[] = {"trainyard", "agent", "--stacks", process, rank, attempt, worker->hung ? "hung" : "other",
                    NULL};
    int result = spawn_own(argv, -1, found, &job->pid, err);
    job->worker = worker;
    job->fd = result < 0 ? -1 : TAKE_FD(found);
    return result;
}

/* What a process has found out so far goes to its file; of the first that hangs it is told as well. */
static void take_found(struct stacks *stacks, struct stacks_job *job) {
    CLEANUP(buffer_done) struct buffer path = {0}, text = {0};
    CLEANUP_FD int fd = TAKE_FD(job->fd);
    if (fd < 0) return;
    stack_found(fd, &text);
    buffer_printf(&path, "%s/logs/rank-%u.stack", stacks->launch->body->run_path, job->worker->rank);
    if (text.failed || path.failed) return;
    size_t first = 0;
    while (first < stacks->n && !stacks->workers[first].hung)
        first++;
    if (job->worker == &stacks->workers[first]) stack_text_frames(text.data, text.size, &stacks->frames);
    struct log *log = log_open(stacks->logs, path.data, -1);
    log_add(log, text.data, text.size);
    log_close(log);
}

static void finish(struct stacks *stacks) {
    CLEANUP(buffer_done) struct buffer frames = stacks->frames;
    loop_timer_stop(stacks->loop, &stacks->limit);
    stacks->frames = (struct buffer){0};
    stacks->running = false;
    stacks->done(stacks->context, &frames);
}

bool stacks_busy(const struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->jobs[i].pid > 0) return true;
    return false;
}

/* Starts what there is room for: those that hang first, then the others, in two rounds through one list. */
static void go_on(struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE && stacks->running; i++) {
        struct stacks_job *job = &stacks->jobs[i];
        while (job->pid == 0 && stacks->next < 2 * stacks->n) {
            bool hung = stacks->next < stacks->n;
            const struct worker_process *worker = &stacks->workers[stacks->next++ % stacks->n];
            ty_error err = {0};
            if (worker->stage != PROCESS_RUNNING || worker->hung != hung) continue;
            if (start_job(stacks, worker, job, &err) == 0) continue;
            log_warning("agent", "rank %u: its stack cannot be saved: %s", worker->rank, err.message);
        }
    }
    if (stacks->running && !stacks_busy(stacks)) finish(stacks);
}

/* With what they have found so far. They lead groups of their own, in which their debuggers are; each is reaped
 * like any child. */
static void end_jobs(struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
        if (stacks->jobs[i].pid == 0) continue;
        take_found(stacks, &stacks->jobs[i]);
        (void)kill(-stacks->jobs[i].pid, SIGKILL);
    }
}

static void on_limit(void *context) {
    struct stacks *stacks = context;
    end_jobs(stacks);
    finish(stacks);
}

void stacks_start(struct stacks *stacks, const struct node_launch *launch, struct worker_process *workers,
                  size_t n) {
    if (stacks->running) return;
    stacks->launch = launch;
    stacks->workers = workers;
    stacks->n = n;
    stacks->next = 0;
    stacks->running = true;
    stacks->limit = (struct loop_timer){.callback = on_limit, .context = stacks};
    (void)loop_timer_start(stacks->loop, &stacks->limit, STACKS_LIMIT);
    go_on(stacks);
}

bool stacks_reaped(struct stacks *stacks, pid_t pid) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
        if (stacks->jobs[i].pid != pid) continue;
        take_found(stacks, &stacks->jobs[i]);
        stacks->jobs[i].pid = 0;
        go_on(stacks);
        return true;
    }
    return false;
}

void stacks_cancel(struct stacks *stacks) {
    if (!stacks->running) return;
    loop_timer_stop(stacks->loop, &stacks->limit);
    stacks->running = false;
    end_jobs(stacks);
    buffer_done(&stacks->frames);
}
