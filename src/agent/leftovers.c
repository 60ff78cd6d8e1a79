/* What a worker's exit left in its group, told by name, and the programs that a wrapping shell waits for, which
 * a stop is for. The words of processes are read from /proc, and cut: a line is to be read by a person. A
 * wrapper is known by its program, when that is a shell, or by the system call in which it waits. */
#include "agent/worker_process.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"

/* -- what is left behind */

enum { NAMED_MAX = 4, WORDS_SHOWN = 60 };

void leftovers_of_group(pid_t group, struct idset *pids) {
    DIR *proc = opendir("/proc");
    for (pid_t pid; proc != NULL && (pid = process_next(proc)) > 0;) {
        struct process process;
        if (process_read(pid, &process) && process.group == group && process.state != 'Z' && !process.ending)
            (void)idset_add(pids, pid);
    }
    if (proc != NULL) (void)closedir(proc);
}

void leftovers_tell(struct outbox *outbox, const char *who, const struct idset *pids, nanoseconds linger,
                    enum face face) {
    CLEANUP(buffer_done) struct buffer names = {0}, time = {0};
    size_t n = 0;
    for (int64_t pid = idset_next(pids, -1); pid != IDSET_END; pid = idset_next(pids, pid)) {
        CLEANUP(buffer_done) struct buffer words = {0};
        if (n++ >= NAMED_MAX) continue;
        if (n > 1) buffer_text(&names, ", ");
        process_words((pid_t)pid, &words);
        if (words.failed || words.size == 0)
            buffer_printf(&names, "process %d", (pid_t)pid);
        else
            buffer_append(&names, words.data, words.size < WORDS_SHOWN ? words.size : WORDS_SHOWN);
        if (words.size > WORDS_SHOWN) buffer_text(&names, "...");
    }
    if (n > NAMED_MAX) buffer_text(&names, ", ...");
    duration_format(linger, &time);
    if (n == 0 || names.failed || time.failed) return;
    if (linger > 0)
        outbox_log(outbox, LOG_LEVEL_WARNING, "%s ended and left %zu process%s: %s: they have %s to end", who,
                   n, n == 1 ? "" : "es", names.data, time.data);
    else
        outbox_log(outbox, LOG_LEVEL_WARNING,
                   "%s ended and left %zu process%s: %s: they are told to end; %s gives them time", who, n,
                   n == 1 ? "" : "es", names.data, face == FACE_COMMAND ? "--linger DURATION" : "`linger_s`");
}

/* -- who hears a stop */

enum { CHILDREN_MAX = 64, DEPTH_MAX = 16 };

struct listeners {
    pid_t *pids; /* LISTENERS_MAX at most */
    size_t n;
};

static bool is_shell(pid_t pid) {
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox", "fish"};
    char program[PROCESS_PROGRAM];
    return process_program(pid, program) && str_find(program, shells, ARRAY_SIZE(shells)) >= 0;
}

/* A shell comes to its own handler only when the command that it waits for has ended: its children are told as
 * well. True: it is a wrapper. */
static bool look_at(struct listeners *listeners, pid_t pid, int depth) {
    pid_t children[CHILDREN_MAX];
    bool handles = process_catches(pid, SIGTERM);
    bool wraps = is_shell(pid) || (!handles && process_waits_for_child(pid));
    if (handles && listeners->n < LISTENERS_MAX) listeners->pids[listeners->n++] = pid;
    int n = wraps && depth < DEPTH_MAX ? process_children(pid, children, CHILDREN_MAX) : 0;
    for (int i = 0; i < n; i++)
        (void)look_at(listeners, children[i], depth + 1);
    return wraps;
}

bool listeners_take_term_alone(pid_t worker) {
    pid_t pids[LISTENERS_MAX];
    size_t n = listeners_find(worker, pids), n_handle = 0;
    for (size_t i = 0; i < n; i++) {
        /* Not the worker alone, nor what a shell had just begun, which has its handlers until it executes. */
        if (!process_catches(pids[i], SIGTERM)) continue;
        /* A shell handles SIGINT for itself while it waits, whatever its script does. */
        if (process_catches(pids[i], SIGINT) && !is_shell(pids[i])) return false;
        n_handle++;
    }
    return n_handle > 0;
}

size_t listeners_find(pid_t worker, pid_t pids[LISTENERS_MAX]) {
    struct listeners listeners = {.pids = pids};
    bool wraps = look_at(&listeners, worker, 0);
    if (listeners.n == 0 && !wraps) pids[listeners.n++] = worker;
    return listeners.n;
}
