/* Zygote, run's template and worker in turn, each a child in which `serve` returns. */
#include "stand_in_template.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FDS_MAX = 8, WORDS_MAX = 1 << 16 };

static char words[WORDS_MAX];
static size_t words_size;
static int fds[FDS_MAX];
static int n_fds;
static int heard_by; /* the socket that a zygote hears no more after SIGUSR1 */

static void go_deaf(int number) {
    (void)number;
    (void)shutdown(heard_by, SHUT_RD);
    (void)prctl(PR_SET_NAME, "deaf"); /* for who waits for it */
}

static void say(int control, const char *line) {
    if (write(control, line, strlen(line)) < 0) _exit(9);
}

/* How it behaves at one of its stages, or as what it forks. */
static void misbehave(int control, const char *mode, const char *stage) {
    size_t size = strlen(stage);
    const char *how = strncmp(mode, stage, size) == 0 ? mode + size : "";
    if (strcmp(how, "die") == 0) {
        fprintf(stderr, "first line\nits last words\n");
        abort();
    }
    if (strcmp(how, "silent") == 0) pause();
    if (strcmp(how, "unsafe") == 0) say(control, "unsafe a thread runs in it\n");
    if (strcmp(how, "error") == 0) say(control, "error ModuleNotFoundError: No module named 'x'\n");
}

/* False at the end. */
static bool receive(int control) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } rights;
    char kind;
    struct iovec part = {.iov_base = &kind, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.bytes, .msg_controllen = sizeof rights.bytes};
    if (recvmsg(control, &message, MSG_CMSG_CLOEXEC) != 1) return false;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    n_fds = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(header), (size_t)n_fds * sizeof(int));
    words_size = (size_t)pread(fds[0], words, sizeof words, 0);
    return true;
}

static bool is_rank_one(void) {
    return memmem(words, words_size, "RANK=1", 7) != NULL;
}

/* Returns in the child. */
static void serve(int control, const char *mode, bool forks_workers) {
    while (receive(control)) {
        if (forks_workers && is_rank_one() && strncmp(mode, "fork-", 5) == 0) {
            misbehave(control, mode, "fork-");
            continue;
        }
        struct clone_args args = {.flags = CLONE_PARENT};
        long pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0) {
            signal(SIGUSR1, SIG_DFL);
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(control);
            return;
        }
        if (!forks_workers && strncmp(mode, "pid-", 4) == 0) {
            usleep(50000); /* so that the template of the run is ready first */
            misbehave(control, mode, "pid-");
            continue;
        }
        char line[32];
        snprintf(line, sizeof line, "pid %ld\n", pid);
        say(control, line);
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
    }
    char name[16] = "";
    (void)prctl(PR_GET_NAME, name);
    if (strcmp(name, "deaf") == 0) pause();
    _exit(0);
}

static void become_worker(const char *worker_mode) {
    static char self[256];
    char *environment[200];
    size_t n = 0, word = 0;
    for (char *at = words; at < words + words_size; at += strlen(at) + 1, word++) {
        if (word == 3 && chdir(at) < 0) _exit(6);
        if (word >= 4 && n < 198) environment[n++] = at;
    }
    char pid[32];
    snprintf(pid, sizeof pid, "TRAINYARD_PID=%d", getpid());
    environment[n++] = pid;
    environment[n] = NULL;
    for (int i = 1; i < n_fds; i++)
        dup2(fds[i], i - 1);
    if (n_fds < 6) close(4);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) _exit(8);
    char *argv[] = {self, "worker", (char *)worker_mode, NULL};
    execve(self, argv, environment);
    _exit(7);
}

void stand_in_template(const char *mode, const char *worker_mode) {
    int control = fcntl(3, F_DUPFD_CLOEXEC, 10);
    close(3);
    misbehave(control, mode, "");
    heard_by = control;
    signal(SIGUSR1, go_deaf);
    say(control, "ready\n");
    serve(control, mode, false);
    control = fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
    dup2(fds[2], 2);
    misbehave(control, mode, "run-");
    say(control, "ready\n");
    serve(control, mode, true);
    become_worker(worker_mode);
}
