/* /proc is read, each process that matches is held by a pidfd before it is looked at again and killed, so that a pid that was
 * given to somebody else in between is never hit. */
#include "controller/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/str.h"
#include "worker/link.h"

enum { ENVIRONMENT_MAX = 8 << 20 };

static bool carries_token(int pid, const char *token) {
    char path[64];
    char wanted[128];
    CLEANUP(buffer_done)
    struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int size = snprintf(wanted, sizeof wanted, WORKER_TOKEN_VARIABLE "=%s", token);
    if (file_read(path, ENVIRONMENT_MAX, &text, NULL) < 0 || text.size == 0) return false;
    /* With its NUL: entries are NUL-terminated. */
    return memmem(text.data, text.size, wanted, (size_t)size + 1) != NULL;
}

static void kill_held(int pid, const char *token) {
    CLEANUP_FD int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0 || !carries_token(pid, token)) return;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    struct pollfd ended = {pidfd, POLLIN, 0};
    (void)poll(&ended, 1, 500);
    (void)waitpid(pid, NULL, WNOHANG);
}

static int sweep_once(const char *token) {
    int found = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        int64_t pid;
        if (!str_to_int64(entry->d_name, 1, INT_MAX, &pid)) continue;
        if (pid == getpid() || !carries_token((int)pid, token)) continue;
        kill_held((int)pid, token);
        found++;
    }
    (void)closedir(proc);
    return found;
}

int sweep_token(const char *token) {
    nanoseconds end = clock_monotonic() + 2 * NS_PER_S;
    int killed = 0;
    for (int found; (found = sweep_once(token)) > 0;) {
        killed += found;
        if (clock_monotonic() > end) return -1;
    }
    return killed;
}
