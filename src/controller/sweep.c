/* /proc is read, each process that matches is held (pidfd) before it is looked at again and killed, so that
 * a pid that was given to another process in between is never hit. One look is not enough: a process may
 * fork while the directory is read, so /proc is read until nothing is found. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/kernel.h"
#include "base/process.h"
#include "controller/ty_run.h"
#include "worker/link.h"

enum { END_LIMIT_MS = 500 };

uint64_t sweep_clock(void) {
    return process_has_children() ? process_clock() : 0;
}

/* Known by the token in its environment; or it is our child by now, began with the run, and is of a session of
 * the dead agent's or, where this process has no other children, of any. */
static bool is_leftover(int pid, const struct sweep_scope *scope) {
    char entry[128];
    struct process process;
    (void)snprintf(entry, sizeof entry, WORKER_TOKEN_VARIABLE "=%s", scope->token);
    if (process_carries(pid, entry)) return true;
    /* Else it may be an orphan. A child that gives no signal at its end is of our own storage. */
    if (!process_read(pid, &process) || process.parent != getpid() || process.started <= scope->since ||
        process.end_signal == 0)
        return false;
    for (size_t i = 0; i < scope->n_agents; i++)
        if (scope->agents[i] == pid) return false;
    for (size_t i = 0; i < scope->n_sessions; i++)
        if (scope->sessions[i] == process.session) return true;
    return scope->alone;
}

/* True when it found any, which are then in `found`. */
static bool sweep_once(const struct sweep_scope *scope, struct idset *found) {
    bool any = false;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return false;
    for (pid_t pid; (pid = process_next(proc)) > 0;) {
        if (pid == getpid() || !is_leftover(pid, scope)) continue;
        CLEANUP_FD int held = kernel_hold(pid);
        (void)idset_add(found, pid);
        any = true;
        if (!is_leftover(pid, scope)) continue; /* the number was given to another process meanwhile */
        (void)kernel_signal(held, pid, SIGKILL);
        (void)kernel_await(held, pid, END_LIMIT_MS);
        (void)waitpid(pid, NULL, WNOHANG);
    }
    (void)closedir(proc);
    return any;
}

bool sweep_node(const struct sweep_scope *scope, struct idset *left) {
    nanoseconds end = clock_monotonic() + 2 * NS_PER_S;
    while (sweep_once(scope, left)) {
        if (clock_monotonic() > end) return false;
        idset_done(left);
    }
    return true;
}
