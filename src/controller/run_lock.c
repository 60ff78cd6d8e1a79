/* The lock of a run, its holder, and the thread that shows that the holder lives; who may take over, and how
 * one that was taken from finds out. Three ways to tell stand side by side, as file systems differ: the
 * kernel's lock, the holder's process, the time of the file. Each call says which of them it trusts. */
#include "controller/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/document.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/process.h"
#include "base/str.h"

/* How often the lock is tried: its file comes and goes, or a process of a dead controller is on its way out,
 * for which each try waits. */
enum { TAKING_TRIES = 50, TAKING_PAUSE_MS = 100 };
enum { BEAT_S = 5, SILENT_S = 30, TEXT_MAX = 4096 };

/* All that tells one process from any other. */
struct holder {
    long long pid, start;         /* start: ticks since the machine did; pid 0: nobody wrote anything */
    char boot[64], processes[64]; /* ids of the machine's boot and of the namespace that the pid counts in */
    char clock[64];               /* and of the one that the start is told in */
    char host[256];
    double since;
    bool removes; /* it drives no run: it is about to remove this one, in a moment */
};

struct run_lock {
    pid_t owner; /* of this memory: a child that was forked has no part in it */
    int fd;
    int directory; /* -1; else its lock tells those who may not open the file */
    char path[PATH_MAX], text[TEXT_MAX];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool beats, over, left; /* left: the file stays */
    bool lost;              /* another file has its name */
};

/* -- holders */

/* Where this process is, as a holder's place: everything but who it is. */
static struct holder here(void) {
    struct holder holder = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    if (file_read("/proc/sys/kernel/random/boot_id", 64, &text, NULL) >= 0) {
        buffer_char(&text, '\0');
        if (!text.failed)
            (void)snprintf(holder.boot, sizeof holder.boot, "%.*s", (int)strcspn(text.data, "\n"), text.data);
    }
    ssize_t size = readlink("/proc/self/ns/pid", holder.processes, sizeof holder.processes - 1);
    holder.processes[size > 0 ? size : 0] = '\0';
    size = readlink("/proc/self/ns/time", holder.clock, sizeof holder.clock - 1);
    holder.clock[size > 0 ? size : 0] = '\0';
    (void)gethostname(holder.host, sizeof holder.host - 1);
    return holder;
}

static int write_holder(int fd, bool removes) {
    struct holder me = here();
    struct process process;
    me.pid = getpid();
    me.start = process_read(getpid(), &process) ? (long long)process.started : 0;
    me.since = duration_seconds(clock_wall());
    json_t *data =
        json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:b}", "pid", (json_int_t)me.pid, "start",
                  (json_int_t)me.start, "boot", me.boot, "processes", me.processes, "clock", me.clock, "host",
                  utf8_valid(me.host, strlen(me.host)) ? me.host : "?", "since", me.since, "removes", removes);
    CLEANUP_FREE char *text = data == NULL ? NULL : json_format(data, JSON_COMPACT);
    json_decref(data);
    struct stat status;
    if (text == NULL) return -ENOMEM;
    /* What was cut, an empty file as well, some file systems write to the disk as soon as it is closed. */
    if (fstat(fd, &status) < 0 || (status.st_size > 0 && ftruncate(fd, 0) < 0)) return -errno;
    return file_write_all(fd, text, strlen(text));
}

static void copy_member(const json_t *data, const char *key, char *to, size_t size) {
    const char *text = json_string_value(json_object_get(data, key));
    (void)snprintf(to, size, "%s", text == NULL ? "" : text);
}

/* A file that cannot be read, or is not whole yet, names nobody. */
static struct holder read_holder(int fd) {
    struct holder holder = {0};
    char text[TEXT_MAX];
    ssize_t size = pread(fd, text, sizeof text, 0);
    json_t *data = size > 0 ? json_loadb(text, (size_t)size, 0, NULL) : NULL;
    holder.pid = json_integer_value(json_object_get(data, "pid"));
    if (holder.pid < 0 || holder.pid > INT32_MAX) holder.pid = 0;
    holder.start = json_integer_value(json_object_get(data, "start"));
    holder.since = json_real_value(json_object_get(data, "since"));
    holder.removes = json_is_true(json_object_get(data, "removes"));
    copy_member(data, "boot", holder.boot, sizeof holder.boot);
    copy_member(data, "processes", holder.processes, sizeof holder.processes);
    copy_member(data, "clock", holder.clock, sizeof holder.clock);
    copy_member(data, "host", holder.host, sizeof holder.host);
    json_decref(data);
    return holder;
}

/* How a holder stands. Unseen: its process cannot be looked up here, or the file names none. */
enum holder_standing { HOLDER_UNSEEN, HOLDER_LIVES, HOLDER_DEAD };

/* A process that is hidden from us lives. One that was killed does not, though on a busy machine it may take
 * its time to go, nor one that its parent has not reaped; one whose main thread alone has ended does. Where
 * /proc tells of processes alone, the boot has no id: then the name of the host is that of the machine. */
static enum holder_standing standing_of(const struct holder *holder) {
    struct process process;
    struct holder us = here();
    bool seen = holder->pid > 0 && str_equal(us.boot, holder->boot) &&
                (us.boot[0] != '\0' || str_equal(us.host, holder->host)) &&
                str_equal(us.processes, holder->processes);
    if (!seen) return HOLDER_UNSEEN;
    pid_t pid = (pid_t)holder->pid;
    if (kill(pid, 0) < 0 && errno == ESRCH) return HOLDER_DEAD;
    /* Starts are compared where both are told by one clock: a time namespace shifts them. */
    bool comparable = holder->clock[0] == '\0' || str_equal(us.clock, holder->clock);
    if (!process_read(pid, &process)) return HOLDER_LIVES;
    if (comparable && process.started != 0 && (long long)process.started != holder->start) return HOLDER_DEAD;
    bool goes_on = process.state == 'Z' ? process.threads > 1 : !process.ending;
    return goes_on && !process_is_killed(pid) ? HOLDER_LIVES : HOLDER_DEAD;
}

/* Seconds since the file was touched. With `exactly` by the clock of who keeps it: a file that is made
 * beside it tells the time there; a reader makes none. */
static double age_of(int fd, const char *path, bool exactly) {
    CLEANUP_FREE char *beside = NULL;
    struct stat touched, now;
    struct timespec here;
    if (fstat(fd, &touched) < 0) return 0;
    (void)clock_gettime(CLOCK_REALTIME, &here);
    now.st_mtim = here;
    if (!exactly || asprintf(&beside, "%s.%d", path, getpid()) < 0) beside = NULL;
    int probe = beside == NULL ? -1 : open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (probe >= 0) {
        (void)fstat(probe, &now);
        (void)close(probe);
        (void)unlink(beside);
    }
    return (double)(now.st_mtim.tv_sec - touched.st_mtim.tv_sec) +
           duration_seconds(now.st_mtim.tv_nsec - touched.st_mtim.tv_nsec);
}

static int name_of(const char *run_path, char path[PATH_MAX]) {
    return snprintf(path, PATH_MAX, "%s/" LOCK_NAME, run_path) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int refuse(const char *run_path, const struct holder *holder, enum holder_standing standing, double age,
                  ty_error *err) {
    char when[CLOCK_TEXT];
    if (holder->pid == 0)
        return ty_fail(err, TY_EEXISTS, "the run %s goes on: its controller lives, and is only just beginning",
                       run_path);
    if (!clock_format((time_t)holder->since, when)) strcpy(when, "?");
    if (standing == HOLDER_DEAD)
        return ty_fail(err, TY_EEXISTS,
                       "the run %s is held: its controller, process %lld on %s, is dead, but a process that it "
                       "left has %s/" LOCK_NAME " open; end that one (fuser tells which)",
                       run_path, holder->pid, holder->host, run_path);
    if (holder->removes)
        return ty_fail(err, TY_EEXISTS, "the run %s is being removed by process %lld on %s, since %s", run_path,
                       holder->pid, holder->host, when);
    if (standing == HOLDER_LIVES)
        return ty_fail(err, TY_EEXISTS,
                       "the run %s goes on: its controller is process %lld on %s, since %s; stop that one, or "
                       "wait for its end",
                       run_path, holder->pid, holder->host, when);
    return ty_fail(err, TY_EEXISTS,
                   "the run %s goes on: its controller is process %lld on %s, since %s, heard of %.0f s ago; "
                   "stop that one there; one that was not heard of for %d s is taken for dead",
                   run_path, holder->pid, holder->host, when, age < 0 ? 0 : age, SILENT_S);
}

int run_lock_refuse(const char *run_path, ty_error *err) {
    char path[PATH_MAX];
    struct holder holder = {0};
    struct stat status;
    double age = 0;
    CLEANUP_FD int fd =
        name_of(run_path, path) < 0 ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && lstat(path, &status) == 0)
        return ty_fail(err, TY_EEXISTS,
                       "the run %s goes on: a process of another user, uid %u, drives it, and only that user "
                       "or root can stop it",
                       run_path, (unsigned)status.st_uid);
    if (fd >= 0) holder = read_holder(fd);
    enum holder_standing standing = standing_of(&holder);
    if (fd >= 0 && holder.pid != 0 && standing == HOLDER_UNSEEN) age = age_of(fd, path, true);
    return refuse(run_path, &holder, standing, age, err);
}

/* -- locks */

enum lock_state { LOCK_FREE, LOCK_HELD, LOCK_UNKNOWN };

/* A file system, or a kernel, that has no such locks knows nothing. */
static enum lock_state call_lock(int fd, int call) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, call, &lock) == 0)
        return call == F_OFD_SETLK || lock.l_type == F_UNLCK ? LOCK_FREE : LOCK_HELD;
    return errno == EAGAIN || errno == EACCES ? LOCK_HELD : LOCK_UNKNOWN;
}

/* Whether a holder that stands so lives, where the lock does not tell: one that is not seen must have touched
 * the file lately, which is `*age` old. */
static bool seems_alive(int fd, const char *path, enum holder_standing standing, bool exactly, double *age) {
    if (standing != HOLDER_UNSEEN) return standing == HOLDER_LIVES;
    *age = age_of(fd, path, exactly);
    return *age < SILENT_S;
}

/* Whether the run is held, and how its holder stands then; `*removes` tells a holder that is no controller. */
static bool look(const char *run_path, enum holder_standing *standing, bool *removes) {
    char path[PATH_MAX];
    struct stat status;
    *standing = HOLDER_UNSEEN;
    *removes = false;
    if (name_of(run_path, path) < 0) return false;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        enum lock_state state = call_lock(fd, F_OFD_GETLK);
        double age;
        if (state == LOCK_FREE && file_is_local(fd)) return false;
        struct holder holder = read_holder(fd);
        *standing = standing_of(&holder);
        *removes = holder.removes;
        return state == LOCK_HELD || seems_alive(fd, path, *standing, false, &age);
    }
    if (errno != EACCES) return error_may_pass(-errno); /* where nobody can tell now it counts as held */
    /* Somebody else's: the lock of the directory is to be seen, or that the file was touched lately. */
    CLEANUP_FD int directory = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && call_lock(directory, F_OFD_GETLK) == LOCK_HELD) return true;
    return lstat(path, &status) == 0 && status.st_mtim.tv_sec > time(NULL) - SILENT_S;
}

bool run_lock_is_held(const char *run_path) {
    enum holder_standing standing;
    bool removes;
    return look(run_path, &standing, &removes) && !removes;
}

bool run_lock_is_driven(const char *run_path) {
    enum holder_standing standing;
    bool removes;
    return look(run_path, &standing, &removes) && !removes && standing != HOLDER_DEAD;
}

bool run_lock_is_removing(const char *run_path) {
    enum holder_standing standing;
    bool removes;
    return look(run_path, &standing, &removes) && removes && standing != HOLDER_DEAD;
}

static int wait_a_moment(void) {
    const struct timespec moment = {.tv_nsec = TAKING_PAUSE_MS * NS_PER_MS};
    (void)nanosleep(&moment, NULL);
    return 0;
}

/* Whether somebody holds the run once what a dead controller left has had its moment to go. */
static bool is_held_on(const char *run_path) {
    enum holder_standing standing;
    bool removes, held = look(run_path, &standing, &removes);
    for (int tries = 0; held && standing == HOLDER_DEAD && tries < TAKING_TRIES; tries++) {
        (void)wait_a_moment();
        held = look(run_path, &standing, &removes);
    }
    return held && !removes;
}

int run_lock_interrupt(const char *run_path, ty_error *err) {
    char path[PATH_MAX];
    if (!is_held_on(run_path)) return 0;
    CLEANUP_FD int fd =
        name_of(run_path, path) < 0 ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return run_lock_refuse(run_path, err);
    if (fd < 0)
        return errno == ENOENT ? 0 : ty_fail(err, TY_EUSAGE, "cannot read %s: %s", path, strerror(errno));
    struct holder holder = read_holder(fd);
    struct stat status;
    uid_t user;
    if (standing_of(&holder) == HOLDER_UNSEEN) return run_lock_refuse(run_path, err);
    CLEANUP_FD int held = kernel_hold((pid_t)holder.pid);
    /* Looked at while it is held: from here on its number cannot become another's. */
    if (standing_of(&holder) != HOLDER_LIVES) return run_lock_refuse(run_path, err);
    /* Whoever owns the file may name any process in it, and a superuser can signal all of them. */
    if (fstat(fd, &status) < 0 || !process_user((pid_t)holder.pid, &user) || user != status.st_uid)
        return ty_fail(err, TY_EUSAGE,
                       "%s, a file of user %u, names process %lld, which is not that user's: it is left alone "
                       "(if it drives the run all the same: kill -INT %lld)",
                       path, (unsigned)status.st_uid, holder.pid, holder.pid);
    int number = process_ignores((pid_t)holder.pid, SIGINT) ? SIGTERM : SIGINT;
    int result = kernel_signal(held, (pid_t)holder.pid, number);
    if (result == 0) return 1;
    return ty_fail(err, result, "cannot signal process %lld, the controller of %s: %s", holder.pid, run_path,
                   strerror(-result));
}

/* -- beat */

static bool is_named(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && file_is_same(&held, &named);
}

/* Removes the file where nothing holds it on: a thread that storage hangs on may have a copy of the descriptor.
 * The lock is taken anew for that, over a descriptor of its own, so that whoever is taking the run meanwhile
 * keeps it. Also the whole work of a thread: NULL. */
static void *remove_file(void *context) {
    struct run_lock *lock = context;
    bool ours = is_named(lock->fd, lock->path);
    bool known = call_lock(lock->fd, F_OFD_GETLK) != LOCK_UNKNOWN;
    descriptors_close(&lock->fd);
    if (!ours) return NULL;
    CLEANUP_FD int fd = open(lock->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool free_again = fd >= 0 && (!known || call_lock(fd, F_OFD_SETLK) == LOCK_FREE);
    if (free_again && is_named(fd, lock->path)) (void)unlink(lock->path);
    return NULL;
}

static void destroy(struct run_lock *lock) {
    descriptors_close(&lock->fd);
    descriptors_close(&lock->directory);
    (void)pthread_cond_destroy(&lock->changed);
    (void)pthread_mutex_destroy(&lock->lock);
    free(lock);
}

/* Whoever took the run over has put a file of his own in the place of ours, and may have ended and removed it
 * since. Where locks are seen by everybody nobody does: a file that was removed there is nobody's, nor is one
 * whose directory is gone. */
static bool is_replaced(int fd, const char *run_path, const char *path) {
    struct stat held;
    char own[TEXT_MAX], text[TEXT_MAX];
    CLEANUP_FD int there = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (there < 0 && errno != ENOENT) return false; /* nobody can tell */
    if (there < 0) return !file_is_local(fd) && access(run_path, F_OK) == 0;
    if (fstat(fd, &held) < 0) return errno == ESTALE; /* another machine has removed it */
    if (!is_named(fd, path)) return true;
    if (file_is_local(there)) return false;
    /* Which of the two is read the file system says: an inode may have the number of one that is gone. */
    ssize_t size = pread(fd, own, sizeof own, 0);
    return size < 0 || pread(there, text, sizeof text, 0) != size || memcmp(own, text, (size_t)size) != 0;
}

int run_lock_check(int fd, const char *run_path, ty_error *err) {
    char path[PATH_MAX];
    if (!descriptors_intact(fd))
        return ty_fail(err, -EBADF, "the descriptors of the run %s were closed", run_path);
    if (name_of(run_path, path) < 0 || !is_replaced(fd, run_path, path)) return 0;
    return ty_fail(err, TY_EEXISTS, "another controller has taken the run over, see %s", path);
}

/* Storage that hangs keeps the thread, and nobody waits for it. */
static void *beat(void *context) {
    struct run_lock *lock = context;
    struct timespec next;
    (void)pthread_mutex_lock(&lock->lock);
    while (!lock->over) {
        (void)clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec += BEAT_S;
        if (pthread_cond_timedwait(&lock->changed, &lock->lock, &next) != ETIMEDOUT) continue;
        int fd = lock->fd;
        char run_path[PATH_MAX];
        strcpy(run_path, lock->path);
        *strrchr(run_path, '/') = '\0';
        (void)pthread_mutex_unlock(&lock->lock);
        if (descriptors_intact(fd)) (void)futimens(fd, NULL);
        bool lost = run_lock_check(fd, run_path, NULL) == TY_EEXISTS;
        (void)pthread_mutex_lock(&lock->lock);
        lock->lost |= lost;
    }
    bool left = lock->left;
    (void)pthread_mutex_unlock(&lock->lock);
    return left ? NULL : remove_file(lock);
}

/* On a local file system everybody sees the locks, and nothing need be written. */
static bool is_seen(struct run_lock *lock, const char *run_path) {
    struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (!file_is_local(lock->fd) || call_lock(lock->fd, F_OFD_GETLK) == LOCK_UNKNOWN) return false;
    lock->directory = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    descriptors_withhold(lock->directory);
    return lock->directory >= 0 && fcntl(lock->directory, F_OFD_SETLK, &shared) == 0;
}

/* To remove a file may hang with its storage: a thread does it, for which nobody waits longer than two
 * seconds. */
void run_lock_release(struct run_lock *lock, bool leave) {
    struct timespec limit;
    if (lock == NULL || lock->owner != getpid()) return; /* a child's copy goes with the child */
    (void)pthread_mutex_lock(&lock->lock);
    lock->over = true;
    lock->left = leave;
    (void)pthread_cond_broadcast(&lock->changed);
    (void)pthread_mutex_unlock(&lock->lock);
    if (!lock->beats && (leave || kernel_thread(&lock->thread, 0, remove_file, lock) < 0)) {
        if (!leave) (void)remove_file(lock);
        destroy(lock);
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += 2;
    if (pthread_clockjoin_np(lock->thread, NULL, CLOCK_MONOTONIC, &limit) == 0)
        destroy(lock);
    else
        (void)pthread_detach(lock->thread); /* with its memory */
}

int run_lock_move(struct run_lock *lock, const char *path) {
    char name[PATH_MAX];
    int result = name_of(path, name);
    if (result == 0 && renameat2(AT_FDCWD, lock->path, AT_FDCWD, name, RENAME_NOREPLACE) < 0) result = -errno;
    return result < 0 ? result : run_lock_follow(lock, path);
}

int run_lock_follow(struct run_lock *lock, const char *path) {
    (void)pthread_mutex_lock(&lock->lock);
    int result = name_of(path, lock->path);
    (void)pthread_mutex_unlock(&lock->lock);
    return result;
}

bool run_lock_is_lost(struct run_lock *lock) {
    (void)pthread_mutex_lock(&lock->lock);
    bool lost = lock->lost;
    (void)pthread_mutex_unlock(&lock->lock);
    return lost;
}

const char *run_lock_text(const struct run_lock *lock) {
    return lock->text;
}

int run_lock_fd(const struct run_lock *lock) {
    return lock->fd;
}

/* -- take */

static int fail_open(const char *path, ty_error *err) {
    if (errno == ENOENT) return ty_fail(err, -ENOENT, "cannot lock the run: %s: its directory is gone", path);
    return ty_fail(err, TY_EUSAGE, "cannot lock the run: %s: %s", path, strerror(errno));
}

/* A file that another user put there would be held by that one. */
static int check_file(int fd, const char *path, ty_error *err) {
    struct stat status, directory;
    CLEANUP_FREE char *parent = strdup(path);
    if (parent == NULL) return ty_fail_memory(err);
    *strrchr(parent, '/') = '\0';
    if (fstat(fd, &status) < 0 || stat(parent, &directory) < 0) return fail_open(path, err);
    if (!S_ISREG(status.st_mode) || status.st_uid != directory.st_uid)
        return ty_fail(err, TY_EUSAGE,
                       "cannot lock the run: %s is no file of the owner of the run (uid %u): remove it", path,
                       (unsigned)status.st_uid);
    if ((status.st_mode & 0077) != 0) (void)fchmod(fd, 0600);
    return 0;
}

/* Puts a file of ours in the place of one whose holder is taken for dead, where no lock tells two that do so
 * apart: the later one has it, and the earlier one sees that a second later. A holder that only stood still
 * sees that the file is another one (is_replaced). */
static int replace(const char *path, bool removes, int *fd, ty_error *err) {
    const struct timespec moment = {.tv_sec = 1};
    CLEANUP_FREE char *beside = NULL;
    if (asprintf(&beside, "%s.%d", path, getpid()) < 0) {
        beside = NULL;
        return ty_fail_memory(err);
    }
    CLEANUP_FD int made = open(beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = made < 0 ? -errno : write_holder(made, removes);
    if (result == 0) (void)call_lock(made, F_OFD_SETLK); /* where this machine alone sees it as well */
    if (result == 0 && rename(beside, path) < 0) result = -errno;
    if (result < 0) {
        if (made >= 0) (void)unlink(beside);
        return ty_fail(err, TY_EUSAGE, "cannot lock the run: %s: %s", path, strerror(-result));
    }
    (void)nanosleep(&moment, NULL);
    if (!is_named(made, path)) return -EAGAIN;
    (void)close(*fd);
    *fd = TAKE_FD(made);
    return 0;
}

/* Whether the holder may be gone in a moment, with its run or without: what a dead controller left may be on
 * its way out, as a process that was killed on a busy machine; one that removes the run is about to rename it;
 * one that has written nothing yet may be either. */
static bool may_pass(const struct holder *holder) {
    return holder->removes || holder->pid == 0 || standing_of(holder) == HOLDER_DEAD;
}

/* 1: taken. 0: look again: the file went meanwhile, or the last of its holders may.
 *
 * What a free lock means depends on the file system: where all see locks the run is free; elsewhere the holder
 * that the file names must be dead, or silent for long, and then a file of ours takes the place of its one. */
static int take_once(const char *run_path, const char *path, bool removes, int *out, ty_error *err) {
    bool made = true;
    double age = 0;
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) {
        made = false;
        fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) return 0;
    }
    if (fd < 0) return fail_open(path, err);
    int result = made ? 0 : check_file(fd, path, err);
    if (result < 0) return result;
    enum lock_state state = call_lock(fd, F_OFD_SETLK);
    if (state == LOCK_HELD) {
        struct holder holder = read_holder(fd);
        return may_pass(&holder) ? wait_a_moment() : run_lock_refuse(run_path, err);
    }
    if (!is_named(fd, path)) return 0;
    bool sure = made || (state == LOCK_FREE && file_is_local(fd));
    if (!sure) {
        struct holder holder = read_holder(fd);
        enum holder_standing standing = standing_of(&holder);
        bool alive = seems_alive(fd, path, standing, true, &age);
        if (alive && !holder.removes) return refuse(run_path, &holder, standing, age, err);
        if (alive) return wait_a_moment();
        result = replace(path, removes, &fd, err);
        if (result == -EAGAIN) return run_lock_refuse(run_path, err);
    } else {
        result = write_holder(fd, removes);
        if (result < 0) (void)ty_fail(err, result, "cannot write %s: %s", path, strerror(-result));
        if (result < 0 && made) (void)unlink(path);
    }
    if (result < 0) return result;
    *out = TAKE_FD(fd);
    return 1;
}

static int take(const char *run_path, bool removes, struct run_lock **out, ty_error *err) {
    struct run_lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL) return ty_fail_memory(err);
    lock->owner = getpid();
    lock->fd = lock->directory = -1;
    int result = name_of(run_path, lock->path);
    if (result < 0) (void)ty_fail(err, TY_EUSAGE, "cannot lock the run %s: its path is too long", run_path);
    for (int tries = 0; result == 0 && tries < TAKING_TRIES; tries++)
        result = take_once(run_path, lock->path, removes, &lock->fd, err);
    if (result == 0) result = run_lock_refuse(run_path, err); /* others come and go, or one stays */
    if (result < 0) {
        free(lock);
        return err != NULL ? err->code : result;
    }
    descriptors_withhold(lock->fd);
    ssize_t size = pread(lock->fd, lock->text, sizeof lock->text - 1, 0);
    lock->text[size > 0 ? size : 0] = '\0';
    (void)pthread_mutex_init(&lock->lock, NULL);
    kernel_condition(&lock->changed);
    lock->beats = !is_seen(lock, run_path) && kernel_thread(&lock->thread, 0, beat, lock) == 0;
    *out = lock;
    return 0;
}

int run_lock_take(const char *run_path, struct run_lock **out, ty_error *err) {
    return take(run_path, false, out, err);
}

int run_lock_take_to_remove(const char *run_path, struct run_lock **out, ty_error *err) {
    return take(run_path, true, out, err);
}
