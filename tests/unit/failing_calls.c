/* Each call with the error that is usual for it. A child that shares its parent's memory may make them too:
 * what lies behind them is looked up once, before any. */
#include "failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "countdown.h"

static struct countdown countdown = COUNTDOWN;

long calls_fail_after(long n, bool for_good) {
    return countdown_set(&countdown, n, for_good);
}

int calls_fail_in_children(void) {
    return countdown_share(&countdown);
}

static bool fails(int error) {
    if (!countdown_strikes(&countdown)) return false;
    errno = error;
    return true;
}

/* X(name) */
#define CALLS(X)    \
    X(pipe2)        \
    X(socketpair)   \
    X(memfd_create) \
    X(epoll_ctl)    \
    X(clone)        \
    X(fork)         \
    X(posix_spawn)  \
    X(write)        \
    X(send)         \
    X(sendmsg)

static struct {
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
} real;

__attribute__((constructor)) static void look_up(void) {
#define X(name) real.name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);
    CALLS(X)
#undef X
}

#define INTERPOSED __attribute__((visibility("default")))

INTERPOSED int pipe2(int ends[2], int flags) {
    return fails(EMFILE) ? -1 : real.pipe2(ends, flags);
}

INTERPOSED int socketpair(int domain, int type, int protocol, int ends[2]) {
    return fails(EMFILE) ? -1 : real.socketpair(domain, type, protocol, ends);
}

INTERPOSED int memfd_create(const char *name, unsigned flags) {
    return fails(EMFILE) ? -1 : real.memfd_create(name, flags);
}

INTERPOSED int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && fails(ENOSPC)) return -1;
    return real.epoll_ctl(epoll, operation, fd, event);
}

INTERPOSED int clone(int (*run)(void *), void *stack, int flags, void *argument, ...) {
    return fails(EAGAIN) ? -1 : real.clone(run, stack, flags, argument);
}

INTERPOSED pid_t fork(void) {
    return fails(EAGAIN) ? -1 : real.fork();
}

INTERPOSED int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return fails(EAGAIN) ? EAGAIN : real.posix_spawn(pid, path, actions, attributes, argv, envp);
}

/* A pipe within the process takes what it is given. */
static bool is_file(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

INTERPOSED ssize_t write(int fd, const void *bytes, size_t size) {
    return is_file(fd) && fails(ENOSPC) ? -1 : real.write(fd, bytes, size);
}

INTERPOSED ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    return fails(ENOBUFS) ? -1 : real.send(fd, bytes, size, flags);
}

INTERPOSED ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return fails(ENOBUFS) ? -1 : real.sendmsg(fd, message, flags);
}
