/* What /proc tells of where a process stands: of each thread its state, its name and where it waits in the
 * kernel, threads that stand alike told once; and the members of a process group. No process is stopped or
 * traced for it; what frames its program is in only a debugger or Python's own dump knows. */
#include "agent/stack_save.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"

enum { PROC_TEXT_MAX = 4096 };
enum { THREADS_MAX = 1024, PLACES_MAX = 64 }; /* that are read, that are told apart */

/* A whole small file, NUL-terminated; how many bytes, 0 when it cannot be read. */
static size_t read_small(const char *path, char text[PROC_TEXT_MAX]) {
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, PROC_TEXT_MAX - 1);
    text[size > 0 ? size : 0] = '\0';
    return size > 0 ? (size_t)size : 0;
}

static const char *state_name(char state) {
    static const char letters[] = "RSDTtZXI";
    static const char *const names[] = {"running",
                                        "sleeping",
                                        "waits in the kernel, not to be woken",
                                        "stopped",
                                        "stopped by a debugger",
                                        "ended, not reaped",
                                        "ended",
                                        "idle"};
    const char *found = state != '\0' ? strchr(letters, state) : NULL;
    return found != NULL ? names[found - letters] : "unknown";
}

/* Cuts the line end off; false for what tells nothing. */
static bool trim(char *text) {
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0' && strcmp(text, "0") != 0;
}

/* A thread, and those that stand where it does: all but the arguments of their system call are the same. */
struct thread {
    char id[24];
    struct buffer where;     /* "(comm): state, in what of the kernel, system call" */
    struct buffer arguments; /* of the system call */
    struct buffer kernel;    /* the kernel's stack, a line each */
    struct buffer others;    /* their ids, a space before each */
    int n_others;
};

static void thread_done(struct thread *thread) {
    buffer_done(&thread->where);
    buffer_done(&thread->arguments);
    buffer_done(&thread->kernel);
    buffer_done(&thread->others);
}

/* Some of these files ask for rights that this process need not have: what cannot be read is left out. */
static void read_thread(pid_t pid, const char *id, struct thread *thread) {
    char directory[64], path[128], text[PROC_TEXT_MAX];
    (void)snprintf(thread->id, sizeof thread->id, "%.20s", id);
    (void)snprintf(directory, sizeof directory, "/proc/%d/task/%.20s", pid, id);
    (void)snprintf(path, sizeof path, "%s/comm", directory);
    (void)read_small(path, text);
    (void)trim(text);
    buffer_printf(&thread->where, "(%s): ", text);
    (void)snprintf(path, sizeof path, "%s/stat", directory);
    struct process process;
    (void)read_small(path, text);
    char state = process_parse(text, &process) ? process.state : '\0';
    buffer_printf(&thread->where, "%s (%c)", state_name(state), state != '\0' ? state : '?');
    (void)snprintf(path, sizeof path, "%s/wchan", directory);
    if (read_small(path, text) > 0 && trim(text)) buffer_printf(&thread->where, ", in %s", text);
    (void)snprintf(path, sizeof path, "%s/syscall", directory);
    if (read_small(path, text) > 0 && trim(text)) {
        size_t number = strcspn(text, " ");
        buffer_printf(&thread->where, ", system call %.*s", (int)number, text);
        buffer_text(&thread->arguments, text + number);
    }
    (void)snprintf(path, sizeof path, "%s/stack", directory);
    (void)read_small(path, text);
    for (char *line = text, *end; *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n' ? (*end = '\0', 1) : 0;
        buffer_printf(&thread->kernel, "    kernel %s\n", line);
    }
}

static bool same_text(const struct buffer *one, const struct buffer *other) {
    return one->size == other->size && (one->size == 0 || memcmp(one->data, other->data, one->size) == 0);
}

/* Takes the thread over, as one more of those that stand where it does, or as the first there. False: there is
 * no room for another place. */
static bool take_thread(struct thread threads[PLACES_MAX], int *n, struct thread *thread) {
    for (int i = 0; i < *n; i++) {
        if (!same_text(&threads[i].where, &thread->where) || !same_text(&threads[i].kernel, &thread->kernel))
            continue;
        threads[i].n_others++;
        buffer_printf(&threads[i].others, " %s", thread->id);
        thread_done(thread);
        return true;
    }
    bool has_room = *n < PLACES_MAX;
    if (has_room)
        threads[(*n)++] = *thread;
    else
        thread_done(thread);
    return has_room;
}

static void add_thread(const struct thread *thread, struct buffer *out) {
    buffer_printf(out, "  thread %s ", thread->id);
    buffer_append(out, thread->where.data, thread->where.size);
    buffer_append(out, thread->arguments.data, thread->arguments.size);
    buffer_char(out, '\n');
    buffer_append(out, thread->kernel.data, thread->kernel.size);
    if (thread->n_others == 0) return;
    buffer_printf(out, "    %d more stand%s there:", thread->n_others, thread->n_others == 1 ? "s" : "");
    buffer_append(out, thread->others.data, thread->others.size);
    buffer_char(out, '\n');
}

void stack_facts(pid_t pid, struct buffer *out) {
    char path[64];
    struct process process;
    if (!process_read(pid, &process)) {
        buffer_printf(out, "process %d has ended\n", pid);
        return;
    }
    buffer_printf(out, "process %d: %s (%c)\n", pid, state_name(process.state), process.state);
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    struct thread threads[PLACES_MAX] = {0}; /* those that differ */
    int n = 0, n_read = 0, left_out = 0;
    for (const struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        struct thread thread = {0};
        bool reads = n_read++ < THREADS_MAX;
        if (reads) read_thread(pid, entry->d_name, &thread);
        if (!reads || !take_thread(threads, &n, &thread)) left_out++;
    }
    if (tasks != NULL) (void)closedir(tasks);
    for (int i = 0; i < n; i++) {
        add_thread(&threads[i], out);
        thread_done(&threads[i]);
    }
    if (left_out > 0) buffer_printf(out, "  and %d more threads\n", left_out);
}

void stack_facts_folded(pid_t pid, struct buffer *out) {
    char path[64], text[PROC_TEXT_MAX];
    struct process process;
    if (!process_read(pid, &process)) return;
    buffer_printf(out, "[%s]", state_name(process.state));
    (void)snprintf(path, sizeof path, "/proc/%d/wchan", pid);
    if (process.state != 'R' && read_small(path, text) > 0 && trim(text)) buffer_printf(out, ";[in %s]", text);
}

size_t stack_facts_group(pid_t group, pid_t *pids, size_t max) {
    size_t n = 0;
    DIR *all = opendir("/proc");
    if (n < max) pids[n++] = group;
    for (pid_t pid; all != NULL && n < max && (pid = process_next(all)) > 0;) {
        struct process process;
        if (pid != group && process_read(pid, &process) && process.group == group) pids[n++] = pid;
    }
    if (all != NULL) (void)closedir(all);
    return n;
}
