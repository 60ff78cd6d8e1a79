/* Starting the process that keeps the file, hearing it, and its end. The socket closes with a controller that
 * is killed, as children that the program forks do not have it: then the process writes once more, and ends.
 * What is written, and when, is that process's (view/exposition.c). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/module.h"
#include "base/program.h"
#include "controller/ty_run.h"

enum { PERIOD_MS = 15000, END_PATIENCE_MS = 5000 };

static void on_word(void *context, unsigned events) {
    struct ty_run *run = context;
    char text[512];
    (void)events;
    ssize_t size = recv(run->metrics_file.fd, text, sizeof text, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size > 0) {
        log_warning("controller", "metrics file: %.*s", (int)size, text);
        return;
    }
    loop_watch_stop(run->loop, &run->metrics_file.watch);
    log_warning("controller", "metrics file: the process that writes it has ended; the file is as it was");
}

/* In a session of its own, so that Ctrl-C leaves it the time to remove the file. */
static int start_writer(const struct ty_run *run, int socket, pid_t *pid) {
    char period[16];
    const char *command = module_command(NULL);
    const char *const argv[] = {command,   "agent",   "--metrics-file",
                                run->path, run->name, run->request->settings.metrics_file,
                                period,    NULL};
    const int fds[] = {socket, PROGRAM_NOTHING, PROGRAM_NOTHING};
    const struct program_start start = {
        .path = command, .argv = argv, .fds = fds, .n_fds = ARRAY_SIZE(fds), .place = PROGRAM_SESSION};
    if (command == NULL) return -ENOENT;
    (void)snprintf(period, sizeof period, "%d", PERIOD_MS);
    return program_start(&start, pid);
}

void metrics_file_open(struct ty_run *run) {
    struct metrics_file *file = &run->metrics_file;
    int pair[2];
    if (run->request->settings.metrics_file == NULL) return;
    int result = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
    if (result == 0) {
        result = start_writer(run, pair[1], &file->pid);
        (void)close(pair[1]);
        if (result < 0) (void)close(pair[0]);
    }
    if (result < 0) {
        file->pid = 0;
        log_warning("controller", "metrics file: the process that writes it cannot be started: %s",
                    strerror(-result));
        return;
    }
    file->fd = pair[0];
    file->held = kernel_hold(file->pid);
    descriptors_withhold(file->fd);
    descriptors_withhold(file->held);
    file->watch = (struct loop_watch){.callback = on_word, .context = run};
    (void)loop_watch_start(run->loop, &file->watch, file->fd, LOOP_READABLE);
}

void metrics_file_close(struct ty_run *run) {
    struct metrics_file *file = &run->metrics_file;
    if (file->pid <= 0) return;
    loop_watch_stop(run->loop, &file->watch);
    if (descriptors_intact(file->fd)) (void)send(file->fd, "end", 3, MSG_NOSIGNAL | MSG_DONTWAIT);
    int status = -1;
    (void)kernel_reap(descriptors_intact(file->held) ? file->held : -1, file->pid, END_PATIENCE_MS, &status);
    if (status != 0)
        log_warning("controller", "metrics file: %s may still be there, and say that the run goes on",
                    run->request->settings.metrics_file);
    descriptors_close(&file->fd);
    descriptors_close(&file->held);
    file->pid = 0;
}
