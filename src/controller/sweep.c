/* /proc is read, each process that matches is held before it is looked at again and killed, so that
 * a pid that was given to somebody else in between is never hit. */
#include "controller/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"
#include "worker/link.h"

enum { ENVIRONMENT_MAX = 8 << 20, STAT_MAX = 4096, END_LIMIT_MS = 500 };

static bool carries_token(int pid, const char *token) {
    char path[64];
    char wanted[128];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int size = snprintf(wanted, sizeof wanted, WORKER_TOKEN_VARIABLE "=%s", token);
    if (file_read(path, ENVIRONMENT_MAX, &text, NULL) < 0 || text.size == 0) return false;
    /* With its NUL: entries are NUL-terminated. */
    return memmem(text.data, text.size, wanted, (size_t)size + 1) != NULL;
}

struct family {
    int parent, session;
    uint64_t began;
};

/* The fields 4, 6 and 22 of its stat; they are counted from the last ")", as the name in field 2 may hold
 * anything. */
static bool read_family(int pid, struct family *family) {
    char path[64];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (file_read(path, STAT_MAX, &text, NULL) < 0 || text.size == 0) return false;
    const char *end = memrchr(text.data, ')', text.size);
    return end != NULL &&
           sscanf(end + 1,
                  " %*c %d %*d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                  &family->parent, &family->session, &family->began) == 3;
}

static bool has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

uint64_t sweep_clock(void) {
    struct timespec now;
    if (!has_children()) return 0;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK);
    return (uint64_t)now.tv_sec * ticks + (uint64_t)now.tv_nsec * ticks / NS_PER_S;
}

static bool is_orphan(int pid, const struct sweep_scope *scope) {
    struct family family;
    if (!read_family(pid, &family) || family.parent != getpid() || family.began <= scope->since) return false;
    for (size_t i = 0; i < scope->n_agents; i++)
        if (scope->agents[i] == pid) return false;
    return scope->alone || family.session == scope->agent;
}

static bool is_leftover(int pid, const struct sweep_scope *scope) {
    return carries_token(pid, scope->token) || is_orphan(pid, scope);
}

static void kill_held(int pid, const struct sweep_scope *scope) {
    CLEANUP_FD int held = kernel_hold(pid);
    if (!is_leftover(pid, scope)) return;
    kernel_kill(held, pid);
    (void)kernel_await(held, pid, END_LIMIT_MS);
    (void)waitpid(pid, NULL, WNOHANG);
}

/* True when it found any, which are then in `found`. */
static bool sweep_once(const struct sweep_scope *scope, struct idset *found) {
    bool any = false;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return false;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        int64_t pid;
        if (!str_to_int64(entry->d_name, 1, INT_MAX, &pid)) continue;
        if (pid == getpid() || !is_leftover((int)pid, scope)) continue;
        kill_held((int)pid, scope);
        (void)idset_add(found, pid);
        any = true;
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
