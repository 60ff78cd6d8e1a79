/* The agent's side: who is next, and the end of it. */
#include "agent/stacks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "base/cleanup.h"
#include "base/log.h"

/* All stacks of a node; less than what the controller waits. */
#define STACKS_LIMIT (25 * NS_PER_S)

static void format_path(const struct stacks *stacks, const struct worker_process *worker, struct buffer *path) {
    buffer_printf(path, "%s/logs/rank-%u.stack", stacks->launch->body->run_path, worker->rank);
}

/* Those that hang, then the others: in two rounds through the same list. NULL behind the last one. */
static struct worker_process *next_worker(struct stacks *stacks) {
    while (stacks->next < 2 * stacks->n) {
        bool hung = stacks->next < stacks->n;
        struct worker_process *worker = &stacks->workers[stacks->next++ % stacks->n];
        if (worker->stage == PROCESS_RUNNING && worker->hung == hung) return worker;
    }
    return NULL;
}

static int start_job(const struct stacks *stacks, const struct worker_process *worker, pid_t *pid,
                     ty_error *err) {
    CLEANUP(buffer_done) struct buffer path = {0};
    char process[16], rank[16], attempt[16];
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return ty_fail(err, -errno, "cannot open /dev/null: %s", strerror(errno));
    format_path(stacks, worker, &path);
    if (path.failed) return ty_fail_memory(err);
    (void)snprintf(process, sizeof process, "%d", worker->pid);
    (void)snprintf(rank, sizeof rank, "%u", worker->rank);
    (void)snprintf(attempt, sizeof attempt, "%u", stacks->launch->body->attempt);
    char *argv[] = {"trainyard", "agent", "--stacks", process,
                    path.data,   rank,    attempt,    worker->hung ? "hung" : "other",
                    NULL};
    struct spawn spawn = {
        .path = "/proc/self/exe", .argv = argv, .envp = environ, .fds = {null, null, null, -1, -1}};
    return spawn_start(&spawn, pid, err);
}

static struct errand *read_saved(const struct stacks *stacks, const struct worker_process *worker,
                                 int64_t from) {
    CLEANUP(buffer_done) struct buffer path = {0};
    format_path(stacks, worker, &path);
    if (path.failed) return NULL;
    return logs_do(stacks->logs,
                   (struct errand){.act = errand_read, .what = "reading", .path = path.data, .from = from});
}

static struct worker_process *first_hung(const struct stacks *stacks) {
    for (size_t i = 0; i < stacks->n; i++)
        if (stacks->workers[i].hung) return &stacks->workers[i];
    return NULL;
}

static void read_frames(const struct stacks *stacks, struct buffer *frames) {
    const struct worker_process *worker = first_hung(stacks);
    const struct errand *saved = worker != NULL ? read_saved(stacks, worker, stacks->offset) : NULL;
    if (saved != NULL && saved->text.size > 0 && !saved->text.failed)
        stack_text_frames(saved->text.data, saved->text.size, frames);
}

static void finish(struct stacks *stacks) {
    CLEANUP(buffer_done) struct buffer frames = {0};
    loop_timer_stop(stacks->loop, &stacks->limit);
    stacks->running = false;
    read_frames(stacks, &frames);
    stacks->done(stacks->context, &frames);
}

bool stacks_busy(const struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->jobs[i].pid > 0) return true;
    return false;
}

/* The next that can be started; none: its pid stays 0. */
static void start_next(struct stacks *stacks, pid_t *pid) {
    for (struct worker_process *worker; (worker = next_worker(stacks)) != NULL;) {
        ty_error err = {0};
        if (start_job(stacks, worker, pid, &err) == 0) return;
        *pid = 0;
        log_warning("agent", "rank %u: its stack cannot be saved: %s", worker->rank, err.message);
    }
}

/* Starts what there is room for. */
static void go_on(struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE && stacks->running; i++)
        if (stacks->jobs[i].pid == 0) start_next(stacks, &stacks->jobs[i].pid);
    if (stacks->running && !stacks_busy(stacks)) finish(stacks);
}

static void end_jobs(struct stacks *stacks) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->jobs[i].pid > 0) (void)kill(-stacks->jobs[i].pid, SIGKILL);
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
    const struct worker_process *hung = first_hung(stacks);
    const struct errand *before = hung != NULL ? read_saved(stacks, hung, INT64_MAX) : NULL;
    stacks->offset = before != NULL ? before->size : 0; /* the news in its file begin there */
    go_on(stacks);
}

bool stacks_reaped(struct stacks *stacks, pid_t pid) {
    for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
        if (stacks->jobs[i].pid != pid) continue;
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
}
