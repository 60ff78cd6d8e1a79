/* Loaded before everything else (LD_PRELOAD), it makes calls of the file system fail as a full or broken disk
 * makes them.
 *
 * TRAINYARD_FAIL is "CALL ERRNO PART": every call of this name ("write" stands for all that put bytes into a
 * file, "sync" for all that sync one) on a file whose path holds PART fails with this errno. ERRNO 0: a write
 * takes one byte at a time, and every second call is interrupted (EINTR) first. A read ("read"; "pread" where
 * a place is named) fails as well, and so do a sync of a directory alone ("sync_directory") and the making of
 * one ("mkdir", by its path). Locks ("lock") fail as on storage that knows none, and that other machines
 * mount.
 * ERRNO -1: it never returns; so may a rename ("rename"), a removal ("unlink") and a directory ("mkdir"), of
 * paths that hold PART. ERRNO -2, -3 ..: it takes 2, 3 .. tenths of a second. TRAINYARD_FAIL_WHEN names a file
 * without which nothing fails, TRAINYARD_FAIL_MARK one that is made when a call begins to hang, and
 * TRAINYARD_FAIL_UNTIL one with which what would never return does.
 * TRAINYARD_CLOCK_JUMPS makes the wall clock alternate between an hour too early and an hour too late,
 * TRAINYARD_CLOCK_AHEAD be so many seconds too late, TRAINYARD_CLOCK_SET as many as the file of this name says,
 * whenever it is there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char call_name[32], part[256];
static const char *when; /* NULL: from the beginning */
static const char *set;  /* the file that sets the wall clock, or NULL */
static int fault;
static bool jumps;
static long ahead;
static atomic_uint turn;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("TRAINYARD_FAIL");
    if (text == NULL || sscanf(text, "%31s %d %255s", call_name, &fault, part) != 3) call_name[0] = '\0';
    when = getenv("TRAINYARD_FAIL_WHEN");
    set = getenv("TRAINYARD_CLOCK_SET");
    jumps = getenv("TRAINYARD_CLOCK_JUMPS") != NULL;
    ahead = getenv("TRAINYARD_CLOCK_AHEAD") != NULL ? atol(getenv("TRAINYARD_CLOCK_AHEAD")) : 0;
}

static bool is_due(const char *name) {
    return strcmp(name, call_name) == 0 && (when == NULL || access(when, F_OK) == 0);
}

static void hang(void) {
    const char *mark = getenv("TRAINYARD_FAIL_MARK"), *until = getenv("TRAINYARD_FAIL_UNTIL");
    if (mark != NULL) (void)close(open(mark, O_CREAT | O_CLOEXEC, 0600));
    do
        (void)usleep(fault == -1 ? 100000 : -100000 * fault);
    while (fault == -1 && (until == NULL || access(until, F_OK) != 0));
}

static bool is_meant(const char *name, int fd) {
    char link[64], path[4096];
    if (!is_due(name)) return false;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return false;
    path[size] = '\0';
    return strstr(path, part) != NULL;
}

static bool fails(const char *name, int fd, size_t *size) {
    int saved = errno;
    bool meant = is_meant(name, fd);
    errno = saved;
    if (!meant) return false;
    if (fault < 0) return hang(), false;
    if (fault != 0) return errno = fault, true;
    if (*size > 1) *size = 1;
    return turn++ % 2 == 0 ? errno = EINTR, true : false;
}

/* The function of this name that would have been called. */
#define NEXT(type, name, ...)         \
    static type (*next)(__VA_ARGS__); \
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, #name)

EXPORT ssize_t write(int fd, const void *data, size_t size) {
    NEXT(ssize_t, write, int, const void *, size_t);
    return fails("write", fd, &size) ? -1 : next(fd, data, size);
}

EXPORT ssize_t read(int fd, void *data, size_t size) {
    NEXT(ssize_t, read, int, void *, size_t);
    int saved = errno;
    bool meant = is_meant("read", fd);
    if (meant && fault < 0) hang();
    errno = saved;
    if (meant && fault > 0) return errno = fault, -1;
    return next(fd, data, size);
}

EXPORT ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    NEXT(ssize_t, pread64, int, void *, size_t, off64_t);
    return fails("pread", fd, &size) ? -1 : next(fd, data, size, at);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return fails("write", fd, &size) ? -1 : next(fd, data, size, at);
}

EXPORT ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags) {
    NEXT(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    return fails("write", out, &size) ? -1 : next(in, in_at, out, out_at, size, flags);
}

EXPORT int fsync(int fd) {
    NEXT(int, fsync, int);
    size_t none = 0;
    struct stat status;
    bool directory = is_due("sync_directory") && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    return (directory && fails("sync_directory", fd, &none)) || fails("sync", fd, &none) ? -1 : next(fd);
}

EXPORT int fdatasync(int fd) {
    NEXT(int, fdatasync, int);
    size_t none = 0;
    return fails("sync", fd, &none) ? -1 : next(fd);
}

EXPORT int syncfs(int fd) {
    NEXT(int, syncfs, int);
    size_t none = 0;
    return fails("sync", fd, &none) ? -1 : next(fd);
}

EXPORT int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    NEXT(int, renameat2, int, const char *, int, const char *, unsigned);
    if (fault < 0 && is_due("rename") && strstr(from, part) != NULL) hang();
    return next(from_at, from, to_at, to, flags);
}

EXPORT int mkdir(const char *path, mode_t mode) {
    NEXT(int, mkdir, const char *, mode_t);
    bool meant = is_due("mkdir") && strstr(path, part) != NULL;
    if (meant && fault > 0) return errno = fault, -1;
    if (meant) hang();
    return next(path, mode);
}

EXPORT int unlinkat(int at, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    if (fault < 0 && is_due("unlink") && strstr(path, part) != NULL) hang();
    return next(at, path, flags);
}

/* No blocks are shared where writes are to fail: that would be a way around. */
EXPORT int ioctl(int fd, unsigned long request, ...) {
    NEXT(int, ioctl, int, unsigned long, ...);
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (request == FICLONE && is_meant("write", fd)) return errno = EOPNOTSUPP, -1;
    return next(fd, request, argument);
}

EXPORT int fcntl64(int fd, int call, ...) {
    NEXT(int, fcntl64, int, int, ...);
    va_list arguments;
    va_start(arguments, call);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    bool locks = call == F_OFD_SETLK || call == F_OFD_GETLK || call == F_SETLK || call == F_GETLK;
    if (locks && is_meant("lock", fd)) return errno = fault, -1;
    return next(fd, call, argument);
}

EXPORT int fstatfs64(int fd, struct statfs64 *status) {
    NEXT(int, fstatfs64, int, struct statfs64 *);
    int result = next(fd, status);
    if (result == 0 && is_meant("lock", fd)) status->f_type = NFS_SUPER_MAGIC;
    return result;
}

/* Seconds that the file says, 0 without one. */
static long read_set(void) {
    char text[24];
    int saved = errno, fd = set == NULL ? -1 : open(set, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    if (fd >= 0) (void)close(fd);
    text[size > 0 ? size : 0] = '\0';
    errno = saved;
    return atol(text);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time) {
    NEXT(int, clock_gettime, clockid_t, struct timespec *);
    int result = next(clock, time);
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (wall && result == 0) time->tv_sec += ahead + read_set();
    if (jumps && wall && result == 0) time->tv_sec += turn++ % 2 == 0 ? 3600 : -3600;
    return result;
}
