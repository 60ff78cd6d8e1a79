/* The start of one process. spawn_start prepares everything, run_child (in the child) only makes system
 * calls, and what they failed with is read from the shared memory after the child is gone: no pipe is
 * needed. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"

enum { STACK_SIZE = 16 << 10, SCRIPT_HEAD = 256 };

enum step { STEP_NONE, STEP_GROUP, STEP_DESCRIPTORS, STEP_LIMIT, STEP_DIRECTORY, STEP_CPUS, STEP_EXECUTE };

/* One start, in memory that the child shares. */
struct spawning {
    const struct spawn *spawn;
    int fds[SPAWN_FDS]; /* all above the places where they go */
    pid_t parent;
    volatile enum step step; /* at which it failed */
    volatile int error;
};

static bool gives_way; /* spawn_give_way has changed the policy of this process */

/* The sanitizers must not see the child: it runs on another stack in memory that is not its own. */
#define IN_CHILD __attribute__((no_sanitize("address", "undefined", "thread")))

IN_CHILD static void write_pid(char *to, long pid) {
    char digits[SPAWN_PID_SIZE];
    int n = 0;
    do {
        digits[n++] = (char)('0' + pid % 10);
        pid /= 10;
    } while (pid > 0);
    while (n > 0)
        *to++ = digits[--n];
    *to = '\0';
}

/* A signal that this process ignores would stay ignored; one that it catches must not reach its handler
 * here. */
IN_CHILD static void reset_signals(void) {
    static const int changed[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM,
                                  SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2, SIGXFSZ};
    struct sigaction action;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        (void)sigaction(changed[i], &action, NULL);
    (void)sigprocmask(SIG_SETMASK, &action.sa_mask, NULL);
}

IN_CHILD static bool place_descriptors(const int *fds) {
    for (int i = 0; i < SPAWN_FDS; i++)
        if (fds[i] < 0)
            (void)close(i);
        else if (dup2(fds[i], i) < 0)
            return false;
    return true;
}

IN_CHILD static enum step set_up_and_execute(struct spawning *child) {
    const struct spawn *spawn = child->spawn;
    /* The parent stands still until this process executes, or ends: when it goes on the group is there, and
     * what it sends to the group misses nobody. */
    if ((spawn->session ? setsid() : setpgid(0, 0)) < 0) return STEP_GROUP;
    /* The parent may have died before the kernel was told. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return STEP_GROUP;
    if (getppid() != child->parent) _exit(127);
    if (!place_descriptors(child->fds)) return STEP_DESCRIPTORS;
    if (spawn->terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0) return STEP_DESCRIPTORS;
    if (spawn->nofile != NULL && setrlimit(RLIMIT_NOFILE, spawn->nofile) < 0) return STEP_LIMIT;
    if (spawn->directory != NULL && chdir(spawn->directory) < 0) return STEP_DIRECTORY;
    if (spawn->cpus != NULL && sched_setaffinity(0, sizeof *spawn->cpus, spawn->cpus) < 0) return STEP_CPUS;
    if (spawn->pid_text != NULL) write_pid(spawn->pid_text, getpid());
    /* A policy is inherited, and it is the agent that gives way, not its workers. */
    if (gives_way) (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    /* Last: until here all signals are held. */
    reset_signals();
    (void)execve(spawn->path, spawn->argv, spawn->envp);
    return STEP_EXECUTE;
}

IN_CHILD static int run_child(void *context) {
    struct spawning *child = context;
    child->step = set_up_and_execute(child);
    child->error = errno;
    _exit(127);
}

/* `err` says what the child could not do. */
static int fail_step(const struct spawning *child, ty_error *err) {
    const char *why = strerror(child->error);
    switch (child->step) {
    case STEP_EXECUTE:
        return program_refuse(child->spawn->path, child->spawn->directory, child->error, err);
    case STEP_DIRECTORY:
        return ty_fail(err, TY_ESTART, "cannot enter directory %s: %s", child->spawn->directory, why);
    case STEP_CPUS:
        return ty_fail(err, TY_ESTART, "cannot bind a worker to its cores: %s", why);
    default:
        return ty_fail(err, TY_ESTART, "cannot set up a process: %s", why);
    }
}

/* Signals stay out while the child runs in our memory: a handler of ours must not run there. */
static int start_once(struct spawning *child, pid_t *pid, ty_error *err) {
    static _Alignas(16) char stack[STACK_SIZE]; /* one child at a time uses it: we wait for it */
    sigset_t all, before;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    child->parent = getpid();
    child->step = STEP_NONE;
    pid_t started = clone(run_child, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    int code = errno;
    /* A child that could not execute is reaped at once: nobody else knows of it. */
    if (started > 0 && child->step != STEP_NONE)
        while (waitpid(started, NULL, 0) < 0 && errno == EINTR) {
        }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (started > 0 && child->step != STEP_NONE) return fail_step(child, err);
    if (started > 0) {
        *pid = started;
        return 0;
    }
    struct rlimit limit;
    if (code == EAGAIN && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return ty_fail(err, -code,
                       "cannot start another process: the limit of processes is reached "
                       "(ulimit -u: %llu, or the limit of the container)",
                       (unsigned long long)limit.rlim_cur);
    return ty_fail(err, -code, "cannot start another process: %s", strerror(code));
}

/* The first bytes of an executable that the kernel refused, as text; false when it is none. */
static bool read_script_head(const struct spawn *spawn, char head[SCRIPT_HEAD]) {
    CLEANUP_FD int directory = AT_FDCWD;
    if (spawn->directory != NULL) directory = open(spawn->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int fd = openat(directory, spawn->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t size = read(fd, head, SCRIPT_HEAD - 1);
    if (size < 0 || memchr(head, '\0', (size_t)size) != NULL) return false;
    head[size] = '\0';
    return true;
}

/* A text file without "#!", which the kernel does not execute: a shell does, as with execvp. */
static int start_script(struct spawning *child, pid_t *pid, ty_error *err) {
    const struct spawn *original = child->spawn;
    size_t n = 0;
    while (original->argv[n] != NULL)
        n++;
    CLEANUP_FREE char **argv = calloc(n + 3, sizeof *argv);
    if (argv == NULL) return ty_fail_memory(err);
    static char shell[] = "/bin/sh";
    argv[0] = shell;
    argv[1] = (char *)original->path;
    for (size_t i = 1; i < n; i++)
        argv[i + 1] = original->argv[i];
    struct spawn script = *original;
    script.path = shell;
    script.argv = argv;
    child->spawn = &script;
    int result = start_once(child, pid, err);
    child->spawn = original;
    return result;
}

void spawn_give_way(void) {
    const struct sched_param none = {0};
    gives_way = sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_BATCH, &none) == 0;
}

int spawn_start(const struct spawn *spawn, pid_t *pid, ty_error *err) {
    struct spawning child = {.spawn = spawn};
    bool lifted[SPAWN_FDS] = {false};
    int result = 0;
    /* Descriptors that lie where others are to go are moved up first, so that no order of placing loses one. */
    for (int i = 0; i < SPAWN_FDS && result == 0; i++) {
        child.fds[i] = spawn->fds[i];
        if (spawn->fds[i] < 0 || spawn->fds[i] >= SPAWN_FDS) continue;
        child.fds[i] = fcntl(spawn->fds[i], F_DUPFD_CLOEXEC, SPAWN_FDS);
        lifted[i] = child.fds[i] >= 0;
        if (!lifted[i]) result = ty_fail(err, -errno, "cannot start a process: %s", strerror(errno));
    }
    if (result == 0) result = start_once(&child, pid, err);
    char head[SCRIPT_HEAD];
    if (child.step == STEP_EXECUTE && (child.error == ENOENT || child.error == ENOEXEC) &&
        read_script_head(spawn, head)) {
        if (child.error == ENOEXEC) {
            result = start_script(&child, pid, err);
        } else if (strncmp(head, "#!", 2) == 0) { /* the file is there: its interpreter is not */
            char *name = head + 2 + strspn(head + 2, " \t");
            name[strcspn(name, " \t\r\n")] = '\0';
            result = ty_fail(err, result, "cannot execute %s: No such file or directory (its interpreter %s)",
                             spawn->path, name);
        }
    }
    for (int i = 0; i < SPAWN_FDS; i++)
        if (lifted[i]) (void)close(child.fds[i]);
    return result;
}

int spawn_own(char *const *argv, int input, int output, pid_t *pid, ty_error *err) {
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct spawn spawn = {.path = "/proc/self/exe",
                                .argv = argv,
                                .envp = environ,
                                .fds = {input >= 0 ? input : null, output >= 0 ? output : null, null, -1, -1}};
    int result = null < 0 ? ty_fail(err, -errno, "cannot open /dev/null: %s", strerror(errno))
                          : spawn_start(&spawn, pid, err);
    if (result < 0) *pid = 0;
    return result;
}

/* As execvp: the first entry of the PATH that may be executed; where there is none, one that is there but may
 * not be is what the message is about. */
static char *search_path(const char *name, const char *search, const char *directory, ty_error *err) {
    CLEANUP_FREE char *refused = NULL;
    for (const char *at = search;; at++) {
        size_t size = strcspn(at, ":");
        struct buffer joined = {0};
        struct stat status;
        if (size == 0 || at[0] != '/') buffer_printf(&joined, "%s/", directory);
        buffer_append(&joined, at, size);
        if (size > 0) buffer_char(&joined, '/');
        buffer_text(&joined, name);
        char *path = buffer_take(&joined);
        if (path == NULL) {
            (void)ty_fail_memory(err);
            return NULL;
        }
        if (access(path, X_OK) == 0 && stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) return path;
        if (refused == NULL && access(path, F_OK) == 0)
            refused = path;
        else
            free(path);
        at += size;
        if (*at == '\0') break;
    }
    if (refused != NULL)
        (void)program_refuse(refused, NULL, EACCES, err);
    else
        (void)program_refuse_unfound(name, search, directory, err);
    return NULL;
}

char *spawn_find(const char *name, const char *search, const char *directory, ty_error *err) {
    if (name[0] == '\0') {
        (void)ty_fail(err, TY_ESTART, "cannot execute a program without a name");
        return NULL;
    }
    if (strchr(name, '/') == NULL)
        return search_path(name, search != NULL ? search : "/usr/local/bin:/usr/bin:/bin", directory, err);
    char *path = strdup(name);
    if (path == NULL) (void)ty_fail_memory(err);
    return path;
}
