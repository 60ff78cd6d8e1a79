/* Files of /proc. Small ones are read at once into a buffer of their size: the kernel makes their text anew for
 * each read, so that a second one could belong to another moment. Nothing is kept from one call to the next. */
#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/str.h"

enum { PROC_TEXT = 4096, ENVIRONMENT_LIMIT = 8 << 20, STATUS_LIMIT = 2 << 20 };

/* NUL-terminated; false when nothing can be read. */
static bool read_text(const char *path, char text[PROC_TEXT]) {
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, PROC_TEXT - 1);
    text[size > 0 ? size : 0] = '\0';
    return size >= 0;
}

/* The name, which is the second field, may hold anything, ")" included: what is told is counted from the
 * last one. */
bool process_parse(const char *stat, struct process *process) {
    enum { EXITING = 0x4, SIGNALED = 0x400 }; /* linux/sched.h; the second one while it dumps its core */
    const char *end = strrchr(stat, ')');
    unsigned flags;
    uint64_t used[4]; /* by itself and by children, in their own code and in the kernel */
    struct process read = {.pid = (pid_t)strtol(stat, NULL, 10), .end_signal = SIGCHLD};
    *process = (struct process){0};
    if (end == NULL ||
        sscanf(end + 1,
               " %c %d %d %d %*s %*s %u %*s %*s %*s %*s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %*s %*s %d %*s %" SCNu64 " %*s %" SCNu64 " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
               " %*s %*s %d",
               &read.state, &read.parent, &read.group, &read.session, &flags, &used[0], &used[1], &used[2],
               &used[3], &read.threads, &read.started, &read.resident, &read.end_signal) < 11)
        return false;
    read.ticks = used[0] + used[1] + used[2] + used[3];
    read.ending = (flags & (EXITING | SIGNALED)) != 0;
    *process = read;
    return true;
}

bool process_read(pid_t pid, struct process *process) {
    char path[64], text[PROC_TEXT];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    (void)read_text(path, text);
    return process_parse(text, process);
}

pid_t process_next(DIR *proc) {
    int64_t pid;
    for (const struct dirent *entry; (entry = readdir(proc)) != NULL;)
        if (str_to_int64(entry->d_name, 1, INT32_MAX, &pid)) return (pid_t)pid;
    return 0;
}

bool process_has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int process_children(pid_t pid, pid_t *pids, size_t max) {
    char path[64], text[PROC_TEXT];
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    if (!read_text(path, text)) return -1;
    for (char *at = text, *end; n < max; at = end) {
        pid_t child = (pid_t)strtol(at, &end, 10);
        if (end == at) break;
        pids[n++] = child;
    }
    return (int)n;
}

bool process_carries(pid_t pid, const char *entry) {
    char path[64];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/environ", pid);
    if (file_read(path, ENVIRONMENT_LIMIT, &text, NULL) < 0) return false;
    buffer_char(&text, '\0'); /* the last entry may have been cut by the process itself */
    if (text.failed) return false;
    for (size_t at = 0; at + 1 < text.size; at += strlen(text.data + at) + 1)
        if (str_equal(text.data + at, entry)) return true;
    return false;
}

void process_words(pid_t pid, struct buffer *out) {
    char path[64], text[PROC_TEXT];
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text);
    while (size > 0 && text[size - 1] == '\0')
        size--;
    for (ssize_t i = 0; i < size; i++)
        buffer_char(out, text[i] == '\0' ? ' ' : text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?');
}

/* The groups of its user, of which there may be thousands, come before the signals. */
static bool has_signal(pid_t pid, const char *set, int signal_number) {
    char path[64];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (file_read(path, STATUS_LIMIT, &text, NULL) < 0) return false;
    buffer_char(&text, '\0');
    const char *found = text.failed ? NULL : strstr(text.data, set);
    return found != NULL && (strtoull(found + strlen(set), NULL, 16) >> (signal_number - 1) & 1) != 0;
}

bool process_catches(pid_t pid, int signal_number) {
    return has_signal(pid, "\nSigCgt:", signal_number);
}

bool process_ignores(pid_t pid, int signal_number) {
    return has_signal(pid, "\nSigIgn:", signal_number);
}

bool process_is_killed(pid_t pid) {
    return has_signal(pid, "\nSigPnd:", SIGKILL) || has_signal(pid, "\nShdPnd:", SIGKILL);
}

bool process_user(pid_t pid, uid_t *user) {
    char path[64], text[PROC_TEXT];
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    const char *users = read_text(path, text) ? strstr(text, "\nUid:") : NULL;
    if (users != NULL) *user = (uid_t)strtoul(users + 5, NULL, 10);
    return users != NULL;
}

bool process_is_trusted(int socket, pid_t *pid, uid_t *user) {
    struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (pid != NULL) *pid = peer.pid;
    if (user != NULL) *user = peer.uid;
    return known && (peer.uid == geteuid() || peer.uid == 0);
}

/* The kernel's function in which it waits is told to whoever may read its state, the number of the system call
 * to whoever may trace it. */
bool process_waits_for_child(pid_t pid) {
    char path[64], text[PROC_TEXT];
    (void)snprintf(path, sizeof path, "/proc/%d/wchan", pid);
    if (read_text(path, text) && str_prefix(text, "do_wait", NULL)) return true;
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", pid);
    if (!read_text(path, text)) return false;
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && *end == ' ' && (number == SYS_wait4 || number == SYS_waitid);
}

bool process_program(pid_t pid, char name[PROCESS_PROGRAM]) {
    char path[64], target[PROC_TEXT];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t size = readlink(path, target, sizeof target - 1);
    if (size <= 0) return false;
    target[size] = '\0';
    target[strcspn(target, " ")] = '\0'; /* " (deleted)" */
    const char *slash = strrchr(target, '/');
    (void)snprintf(name, PROCESS_PROGRAM, "%.*s", PROCESS_PROGRAM - 1, slash != NULL ? slash + 1 : target);
    return true;
}

uint64_t process_clock(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK);
    return (uint64_t)now.tv_sec * ticks + (uint64_t)now.tv_nsec * ticks / NS_PER_S;
}

static bool has_controller(const char *list, size_t size, const char *controller) {
    size_t length = strlen(controller);
    if (length == 0) return size == 0;
    for (const char *at = list; at < list + size; at += strcspn(at, ",:") + 1)
        if (strcspn(at, ",:") == length && memcmp(at, controller, length) == 0) return true;
    return false;
}

bool process_cgroup(const char *text, const char *controller, char *group, size_t size) {
    (void)snprintf(group, size, "/");
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *list = strchr(line, ':');
        const char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL) return false;
        if (!has_controller(list + 1, (size_t)(path - list - 1), controller)) continue;
        (void)snprintf(group, size, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
        return true;
    }
    return false;
}
