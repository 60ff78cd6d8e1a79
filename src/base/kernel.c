/* Calls that a kernel may be too old for, or a container's filter may refuse: each call is tried first, and the
 * older way is gone only when the answer says that there is no such call. What processes do is read elsewhere
 * (process.c). */
#include "base/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"

/* Between two looks at a process that is not held. */
static const struct timespec look_interval = {.tv_nsec = 2 * NS_PER_MS};

/* The kernel's call and its flags; the C library has its own for both from 2.34 on. */
enum { CLOSE_UNSHARE = 1U << 1, CLOSE_ON_EXEC = 1U << 2 };

static bool close_from(unsigned first, unsigned flags) {
    return syscall(__NR_close_range, first, ~0U, flags) == 0;
}

int kernel_memory_file(const char *name) {
    static const char *const places[] = {"/dev/shm", "/tmp"};
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int code = errno;
    bool absent = code == ENOSYS || code == EPERM; /* the answer of filters differs */
    for (size_t i = 0; i < ARRAY_SIZE(places) && fd < 0 && absent; i++)
        fd = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) errno = code;
    return fd;
}

int kernel_seal(int fd) {
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0) return 0;
    return errno == EINVAL || errno == EPERM ? 0 : -1; /* a plain file has none */
}

/* A thread begins with the mask of the one that starts it: set before, no signal ever finds the new one open.
 */
int kernel_thread(pthread_t *thread, size_t stack, void *(*work)(void *context), void *context) {
    pthread_t unnamed;
    pthread_attr_t attributes;
    sigset_t all, before;
    int code = pthread_attr_init(&attributes);
    if (code != 0) return -code;
    if (stack > 0) (void)pthread_attr_setstacksize(&attributes, stack);
    if (thread == NULL) (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(thread != NULL ? thread : &unnamed, &attributes, work, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return -code;
}

void kernel_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

int kernel_random_digits(char *text, size_t n) {
    unsigned char bytes[32];
    text[0] = '\0';
    if (getrandom(bytes, n, 0) != (ssize_t)n) return errno > 0 ? -errno : -EIO;
    for (size_t i = 0; i < n; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

static void close_one(int fd, bool on_exec) {
    if (on_exec)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    else
        (void)close(fd);
}

/* The number that the name of an entry of /proc/self/fd is; -1 for "." and "..". */
static int number_of(const char *name) {
    int number = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        number = number * 10 + (*name - '0');
    return *name == '\0' ? number : -1;
}

/* Those that are open, by the kernel's list of them. opendir takes memory, which no child may before it
 * executes. */
static bool close_listed(int first, bool on_exec) {
    struct kernel_entry { /* linux_dirent64 */
        uint64_t inode, next;
        uint16_t size;
        uint8_t kind;
        char name[];
    };
    _Alignas(struct kernel_entry) char entries[1024];
    int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n = list < 0 ? -1 : 1;
    while (n > 0) {
        n = syscall(SYS_getdents64, list, entries, sizeof entries);
        for (long at = 0; at < n;) {
            const struct kernel_entry *entry = (const struct kernel_entry *)(entries + at);
            int fd = number_of(entry->name);
            if (fd >= first && fd != list) close_one(fd, on_exec);
            at += entry->size;
        }
    }
    if (list >= 0) (void)close(list);
    return n == 0;
}

/* Without close_range and without /proc, numbers beyond some that no program has reached are left: to ask of
 * each that is possible takes minutes where a billion are. */
void kernel_close_from(int first, bool on_exec) {
    enum { MOST = 1 << 20 };
    struct rlimit limit = {0};
    if (close_from((unsigned)first, on_exec ? CLOSE_ON_EXEC : 0)) return;
    if (close_listed(first, on_exec)) return;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = first; fd < MOST && (rlim_t)fd < limit.rlim_cur; fd++)
        close_one(fd, on_exec);
}

struct call {
    void (*work)(void *context);
    void *context;
    bool descriptors;
};

static int call_apart(void *context) {
    const struct call *call = context;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!call->descriptors) kernel_close_from(0, false);
    call->work(call->context);
    _exit(0);
}

/* What belongs to the thread, errno among it, is the child's meanwhile, and so is the stack below what the
 * thread itself may still use of it in the call. No signal is told of the end (the 0 among the flags). */
int kernel_call_apart(void (*work)(void *context), void *context, bool descriptors) {
    enum { GAP = 16 << 10, ALIGNED = 64 };
    char *stack = (char *)__builtin_frame_address(0) - GAP;
    struct call call = {work, context, descriptors};
    int flags = CLONE_VM | CLONE_VFORK | CLONE_FS | (descriptors ? CLONE_FILES : 0);
    int status = 0;
    stack -= (uintptr_t)stack % ALIGNED;
    pid_t pid = clone(call_apart, stack, flags | 0, &call);
    if (pid < 0) return -errno;
    while (waitpid(pid, &status, __WCLONE) < 0 && errno == EINTR) /* the child may have been reaped by others */
        continue;
    return status;
}

bool kernel_part_descriptors(void) {
    return close_from(~0U, CLOSE_UNSHARE) || unshare(CLONE_FILES) == 0;
}

int kernel_hold(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int kernel_signal(int held, pid_t pid, int signal_number) {
    if (pid <= 0) return -ESRCH; /* that would be more than one process */
    if (held >= 0 && syscall(SYS_pidfd_send_signal, held, signal_number, NULL, 0) == 0) return 0;
    if (held >= 0 && errno != ENOSYS) return -errno;
    return kill(pid, signal_number) == 0 ? 0 : -errno;
}

static bool has_ended(pid_t pid) {
    siginfo_t end = {.si_pid = 0};
    if (waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0) return end.si_pid == pid;
    return kill(pid, 0) < 0 && errno == ESRCH;
}

bool kernel_await(int held, pid_t pid, int limit_ms) {
    struct pollfd ended = {held, POLLIN, 0};
    const nanoseconds end = clock_monotonic() + limit_ms * NS_PER_MS;
    for (nanoseconds left = limit_ms * NS_PER_MS;; left = end - clock_monotonic()) {
        if (left < 0) left = 0;
        /* A signal that this process handles ends the call and not the wait. */
        int ready = held >= 0 ? poll(&ended, 1, (int)((left + NS_PER_MS - 1) / NS_PER_MS)) : has_ended(pid);
        if (ready > 0) return true;
        if (left == 0 || (held >= 0 && (ready == 0 || errno != EINTR))) return false;
        if (held < 0) (void)nanosleep(&look_interval, NULL);
    }
}

bool kernel_reap(int held, pid_t pid, int patience_ms, int *status) {
    const int killed_ms = 2000;
    bool ended = patience_ms > 0 && kernel_await(held, pid, patience_ms);
    if (!ended) (void)kill(pid, SIGKILL);
    if (!ended && !kernel_await(held, pid, killed_ms)) return false;
    while (waitpid(pid, status, WNOHANG) < 0 && errno == EINTR) {
    }
    return true;
}
