/* Reads /proc. */
#include "agent/stack_save.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"

enum { PROC_TEXT_MAX = 4096, THREADS_MAX = 64 };

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

static void add_thread(pid_t pid, const char *thread, struct buffer *out) {
    char directory[64], path[128], text[PROC_TEXT_MAX];
    (void)snprintf(directory, sizeof directory, "/proc/%d/task/%.20s", pid, thread);
    (void)snprintf(path, sizeof path, "%s/comm", directory);
    (void)read_small(path, text);
    (void)trim(text);
    buffer_printf(out, "  thread %s (%s): ", thread, text);
    (void)snprintf(path, sizeof path, "%s/stat", directory);
    struct process process;
    (void)read_small(path, text);
    char state = process_parse(text, &process) ? process.state : '\0';
    buffer_printf(out, "%s (%c)", state_name(state), state != '\0' ? state : '?');
    (void)snprintf(path, sizeof path, "%s/wchan", directory);
    if (read_small(path, text) > 0 && trim(text)) buffer_printf(out, ", in %s", text);
    (void)snprintf(path, sizeof path, "%s/syscall", directory);
    if (read_small(path, text) > 0 && trim(text)) buffer_printf(out, ", system call %s", text);
    buffer_char(out, '\n');
    (void)snprintf(path, sizeof path, "%s/stack", directory);
    (void)read_small(path, text);
    for (char *line = text, *end; *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n' ? (*end = '\0', 1) : 0;
        buffer_printf(out, "    kernel %s\n", line);
    }
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
    int n = 0;
    for (const struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;)
        if (entry->d_name[0] != '.' && n++ < THREADS_MAX) add_thread(pid, entry->d_name, out);
    if (n > THREADS_MAX) buffer_printf(out, "  and %d more threads\n", n - THREADS_MAX);
    if (tasks != NULL) (void)closedir(tasks);
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
