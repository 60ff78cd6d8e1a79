/* Programs started and waited for, and programs that are called for what they print. A child's input is a file
 * in memory, so that nothing has to be written while it runs; its output is two pipes, read until it has ended
 * (what its own children do later is not waited for). Workers are not started here (agent/spawn.c). */
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"

struct child {
    pid_t pid;
    int pidfd;          /* -1 where the kernel has none: then it has ended when it has closed both */
    int out, complaint; /* the ends that are read; -1 */
};

static int make_input(const char *text) {
    int fd = text == NULL ? open("/dev/null", O_RDONLY | O_CLOEXEC) : kernel_memory_file("input");
    if (fd < 0 || text == NULL) return fd;
    if (file_write_all(fd, text, strlen(text)) == 0 && lseek(fd, 0, SEEK_SET) == 0) return fd;
    (void)close(fd);
    return -1;
}

static int set_attributes(posix_spawnattr_t *attributes, enum program_place place) {
    static const short places[] = {0, POSIX_SPAWN_SETPGROUP, POSIX_SPAWN_SETSID};
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int result = posix_spawnattr_setsigmask(attributes, &none);
    if (result == 0) result = posix_spawnattr_setsigdefault(attributes, &all);
    if (result == 0) result = posix_spawnattr_setpgroup(attributes, 0);
    return result != 0 ? result
                       : posix_spawnattr_setflags(attributes, (short)(POSIX_SPAWN_SETSIGMASK |
                                                                      POSIX_SPAWN_SETSIGDEF | places[place]));
}

int program_start(const struct program_start *start, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *const *argv = (char *const *)(uintptr_t)start->argv;
    char *const *envp = start->envp != NULL ? start->envp : environ;
    int result = posix_spawn_file_actions_init(&actions);
    if (result != 0) return -result;
    result = posix_spawnattr_init(&attributes);
    if (result == 0) {
        /* dup2 of a descriptor to itself would leave it close-on-exec in older libraries: all are above. */
        for (int i = 0; (size_t)i < start->n_fds && result == 0; i++) {
            if (start->fds[i] == PROGRAM_NOTHING)
                result = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
            else if (start->fds[i] != PROGRAM_OURS)
                result = posix_spawn_file_actions_adddup2(&actions, start->fds[i], i);
        }
        if (result == 0) result = set_attributes(&attributes, start->place);
        if (result == 0 && start->path != NULL)
            result = posix_spawn(pid, start->path, &actions, &attributes, argv, envp);
        else if (result == 0)
            result = posix_spawnp(pid, argv[0], &actions, &attributes, argv, envp);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return -result;
}

static int start_child(const struct program_call *call, struct child *child) {
    CLEANUP_FD int input = make_input(call->input);
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    *child = (struct child){.pid = -1, .pidfd = -1, .out = -1, .complaint = -1};
    if (input < 0) return errno;
    int result = 0;
    if (call->out != NULL && (pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0)) result = errno;
    const int ours[] = {input, PROGRAM_OURS, PROGRAM_OURS}, taken[] = {input, pipes[0][1], pipes[1][1]};
    /* A group of its own where its output is taken, else this process's terminal. */
    const struct program_start start = {.argv = call->argv,
                                        .fds = call->out != NULL ? taken : ours,
                                        .n_fds = 3,
                                        .place = call->out != NULL ? PROGRAM_GROUP : PROGRAM_BESIDE};
    if (result == 0) result = -program_start(&start, &child->pid);
    cleanup_fd(&pipes[0][1]);
    cleanup_fd(&pipes[1][1]);
    child->out = pipes[0][0];
    child->complaint = pipes[1][0];
    if (result != 0) return result;
    child->pidfd = kernel_hold(child->pid);
    return 0;
}

/* What can be read now; the descriptor becomes -1 at its end. False when it is too much. */
static bool take(int *fd, struct buffer *into) {
    char bytes[65536];
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) cleanup_fd(fd);
    if (n > 0 && into != NULL) buffer_append(into, bytes, (size_t)n);
    return into == NULL || (!into->failed && into->size <= PROGRAM_OUTPUT_MAX);
}

/* Reads until it has ended: 0, or TY_ETIMEOUT, or -ENOMEM for too much. */
static int listen_to(const struct program_call *call, struct child *child) {
    nanoseconds end = call->limit > 0 ? clock_monotonic() + call->limit : 0;
    bool ended = false;
    while (!ended) {
        struct pollfd polled[] = {
            {child->pidfd, POLLIN, 0}, {child->out, POLLIN, 0}, {child->complaint, POLLIN, 0}};
        nanoseconds left = end - clock_monotonic();
        int left_ms = end == 0 ? -1 : left <= 0 ? 0 : (int)(left / NS_PER_MS) + 1;
        int ready = poll(polled, ARRAY_SIZE(polled), left_ms);
        if (ready == 0) return TY_ETIMEOUT;
        if (ready < 0) continue;
        bool more = (polled[1].revents | polled[2].revents) != 0;
        if (polled[1].revents != 0 && !take(&child->out, call->out)) return -ENOMEM;
        if (polled[2].revents != 0 && !take(&child->complaint, call->complaint)) return -ENOMEM;
        ended = child->pidfd >= 0 ? polled[0].revents != 0 && !more : child->out < 0 && child->complaint < 0;
    }
    return 0;
}

int program_run(const struct program_call *call, ty_error *err) {
    struct child child;
    int status = 0, result = start_child(call, &child);
    if (result != 0) {
        cleanup_fd(&child.out);
        cleanup_fd(&child.complaint);
        if (result == ENOENT)
            return ty_fail(err, TY_EUNSUPPORTED, "there is no %.80s here (in PATH)", call->argv[0]);
        return ty_fail(err, TY_ESTART, "cannot run %.80s: %s", call->argv[0], strerror(result));
    }
    result = child.pidfd < 0 && call->out == NULL ? 0 : listen_to(call, &child);
    if (result < 0) (void)kill(call->out != NULL ? -child.pid : child.pid, SIGKILL);
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
        ;
    cleanup_fd(&child.pidfd);
    cleanup_fd(&child.out);
    cleanup_fd(&child.complaint);
    if (result == TY_ETIMEOUT)
        return ty_fail(err, TY_ETIMEOUT, "%.80s did not answer in %lld s", call->argv[0],
                       (long long)(call->limit / NS_PER_S));
    if (result < 0)
        return ty_fail(err, TY_ESTART, "cannot listen to %.80s: %s", call->argv[0], strerror(-result));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int program_ask(const struct program_call *call, ty_error *err) {
    CLEANUP(buffer_done) struct buffer own = {0};
    struct program_call asked = *call;
    if (asked.complaint == NULL) asked.complaint = &own;
    int status = program_run(&asked, err);
    if (status <= 0) return status;
    const char *said = asked.complaint->size > 0 ? asked.complaint->data : "";
    int size = (int)strcspn(said, "\n");
    if (size == 0) return ty_fail(err, TY_ESTART, "%.80s ended with status %d", call->argv[0], status);
    return ty_fail(err, TY_ESTART, "%.*s", size > 600 ? 600 : size, said);
}
