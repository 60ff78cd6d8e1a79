/* Python's own dump of its threads: asked for by a signal, whose handler (faulthandler's) writes in C, so that
 * an interpreter's lock holds nothing up. The process was looked at before: only one that registered a file of
 * ours (python/trainyard/stacks.py) and handles the signal is asked, as another would die of it. */
#include "agent/stack_save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/process.h"
#include "base/str.h"

enum { DUMP_MAX = 256 << 10 };

static off_t size_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_size : 0;
}

bool stack_python_open(struct stack_python *python) {
    char directory[64], path[128], target[64];
    python->held = kernel_hold(python->pid);
    python->fd = -1;
    (void)snprintf(directory, sizeof directory, "/proc/%d/fd", python->pid);
    DIR *fds = opendir(directory);
    for (const struct dirent *entry; fds != NULL && python->fd < 0 && (entry = readdir(fds)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%.20s", directory, entry->d_name);
        ssize_t size = readlink(path, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        if (!str_prefix(target, "/memfd:" STACK_FILE_NAME, NULL)) continue;
        python->fd = open(path, O_RDWR | O_CLOEXEC); /* to give memory back, where that may be */
        if (python->fd < 0) python->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fds != NULL) (void)closedir(fds);
    if (python->fd < 0) stack_python_close(python);
    return python->fd >= 0;
}

void stack_python_close(struct stack_python *python) {
    if (python->held >= 0) (void)close(TAKE_FD(python->held));
    if (python->fd >= 0) (void)close(TAKE_FD(python->fd));
}

int stack_python_ask(struct stack_python *python, ty_error *err) {
    struct process process;
    if (!process_read(python->pid, &process)) return ty_fail(err, -ESRCH, "the process has ended");
    if (process.state == 'T' || process.state == 't')
        return ty_fail(err, -EAGAIN, "the process is stopped (%c), and cannot tell", process.state);
    if (!process_catches(python->pid, STACK_SIGNAL)) /* it would end the process */
        return ty_fail(err, -EPERM, "the program took signal %d for itself", STACK_SIGNAL);
    python->from = python->seen = size_of(python->fd);
    python->quiet = 0;
    int result = kernel_signal(python->held, python->pid, STACK_SIGNAL);
    return result < 0 ? ty_fail(err, result, "the process cannot be asked: %s", strerror(-result)) : 0;
}

bool stack_python_take(struct stack_python *python, int looks, struct buffer *out) {
    off_t now = size_of(python->fd);
    python->quiet = now > python->from && now == python->seen ? python->quiet + 1 : 0;
    python->seen = now;
    if (python->quiet < looks) return false;
    size_t size = now - python->from < DUMP_MAX ? (size_t)(now - python->from) : DUMP_MAX;
    char *room = buffer_reserve(out, size);
    ssize_t n = room != NULL ? pread(python->fd, room, size, python->from) : -1;
    if (n > 0) out->size += (size_t)n;
    /* Another may be reading the newest one. */
    (void)fallocate(python->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, python->from);
    return true;
}
