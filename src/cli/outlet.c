/* Standard output and error of a command that drives a run, where they are files. Who writes to a file on
 * storage that hangs hears no signal any more, and does not even end by SIGKILL. So the command writes into a
 * pipe, which never holds it, and what comes out is copied by a process of its own: nobody's child, with no
 * descriptor but these, which goes on until all is in the file, whatever becomes of the command. Where no such
 * process can be had the command writes itself. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"
#include "cli/terminal.h"
#include "controller/sink.h"

/* How long the end of the command waits for its files; that of one that was stopped, or failed by a signal. */
#define PATIENCE_MS (30 * 1000)
#define HURRIED_MS (5 * 1000)

/* The command's ends of the channels to the two processes. The command shuts its side when it ends, the other
 * process closes its own when all is written; before that it may say, by an errno, that it could not write. */
static int channels[] = {-1, -1};

/* -- the process that copies */

enum { PIPE, FILE_ITSELF, CHANNEL };

/* Signals are held: the command alone hears them, and tells how it ends. */
static void serve(int pipe_end, int file, int channel) {
    static char bytes[64 << 10];
    struct pollfd ready[] = {{PIPE, POLLIN, 0}, {CHANNEL, POLLIN, 0}};
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "trainyard-out");
    if (dup2(file, FILE_ITSELF) < 0 || dup2(pipe_end, PIPE) < 0 || dup2(channel, CHANNEL) < 0) return;
    kernel_close_from(CHANNEL + 1, false);
    (void)fcntl(PIPE, F_SETFL, O_NONBLOCK);
    if (chdir("/") < 0) return;
    for (ssize_t n; (n = read(PIPE, bytes, sizeof bytes)) != 0;) {
        int result = n < 0 ? 0 : file_write_all(FILE_ITSELF, bytes, (size_t)n);
        unsigned char error = (unsigned char)-result;
        if (result < 0) {
            (void)file_write_all(CHANNEL, &error, 1);
            return;
        }
        if (n > 0) continue;
        if (ready[1].revents != 0) { /* the command had ended before nothing was left: agents may go on */
            (void)close(CHANNEL);
            ready[1] = (struct pollfd){.fd = -1};
        }
        (void)poll(ready, 2, -1);
    }
}

/* -- the command */

/* The channel, or -1. */
static int put_before(int file) {
    int ends[2], pair[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        (void)close(ends[0]), (void)close(ends[1]);
        return -1;
    }
    /* Forked twice, so that nobody who waits for any child, or clears up behind an agent, meets it. */
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        pid = fork();
        if (pid == 0) serve(ends[0], file, pair[1]);
        _exit(pid < 0);
    }
    bool started = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && dup2(ends[1], file) >= 0;
    (void)close(ends[0]), (void)close(ends[1]), (void)close(pair[1]);
    if (started) return pair[0];
    (void)close(pair[0]);
    return -1;
}

/* Output and error that are one file share a pipe, so that what comes on the two stays in order. */
void outlets_open(void) {
    struct stat files[2] = {0};
    bool one = fstat(STDOUT_FILENO, &files[0]) == 0 && fstat(STDERR_FILENO, &files[1]) == 0 &&
               file_is_same(&files[0], &files[1]);
    for (int i = 0; i < 2; i++) {
        if (i == 1 && one && channels[0] >= 0)
            (void)dup2(STDOUT_FILENO, STDERR_FILENO);
        else if (S_ISREG(files[i].st_mode))
            channels[i] = put_before(STDOUT_FILENO + i);
    }
}

static void tell(int i, const char *before, const char *behind) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "%sstandard %s: %s", before, i == 0 ? "output" : "error", behind);
    if (!text.failed) terminal_warning(NULL, text.data);
}

void outlets_close(bool hurried) {
    sink_hurry(true);
    for (int i = 0; i < 2; i++) {
        unsigned char error = 0;
        struct pollfd ready = {channels[i], POLLIN, 0};
        if (channels[i] < 0) continue;
        (void)shutdown(channels[i], SHUT_WR);
        int n = poll(&ready, 1, hurried ? HURRIED_MS : PATIENCE_MS);
        if (n == 0) tell(i, "the storage hangs under ", "the rest is written when it answers");
        if (n > 0 && read(channels[i], &error, 1) == 1) tell(i, "cannot write ", strerror(error));
        (void)close(channels[i]);
        channels[i] = -1;
    }
}
