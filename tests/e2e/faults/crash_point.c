/* Loaded before everything else (LD_PRELOAD), it kills one process of a run at its k-th call that others can
 * see.
 *
 * TRAINYARD_CRASH is "ROLE K HALF": the first word that the command was called with (run, agent), the number of
 * the call, and whether a write is done by half before. In any other process, and when K is 0, it only counts;
 * at exit it leaves the count in the file that TRAINYARD_CRASH_COUNT names. The counter is shared by the
 * threads of the process. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_long calls;
static long last_call; /* 0: never */
static bool half, counted;
static pid_t owner; /* forked children do not count */

__attribute__((constructor)) static void begin(int argc, char **argv) {
    char role[32] = "";
    int by_half = 0;
    long k = 0;
    const char *text = getenv("TRAINYARD_CRASH");
    if (text == NULL || sscanf(text, "%31s %ld %d", role, &k, &by_half) != 3) return;
    if (argc < 2 || strcmp(argv[1], role) != 0) return;
    owner = getpid();
    counted = true;
    last_call = k;
    half = by_half != 0;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("TRAINYARD_CRASH_COUNT");
    if (!counted || path == NULL || getpid() != owner) return;
    counted = false;
    FILE *file = fopen(path, "we");
    if (file == NULL) return;
    (void)fprintf(file, "%ld\n", (long)calls);
    (void)fclose(file);
}

static bool is_last(void) {
    return counted && getpid() == owner && atomic_fetch_add(&calls, 1) + 1 == last_call;
}

static void die(void) {
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

/* The function of this name that would have been called. */
#define NEXT(type, name, ...)         \
    static type (*next)(__VA_ARGS__); \
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, #name)

#define WATCH(type, name, parameters, ...)       \
    EXPORT type name parameters {                \
        NEXT(type, name, PARAMETERS parameters); \
        if (is_last()) die();                    \
        return next(__VA_ARGS__);                \
    }
#define PARAMETERS(...) __VA_ARGS__

WATCH(int, fsync, (int fd), fd)
WATCH(int, fdatasync, (int fd), fd)
WATCH(int, rename, (const char *from, const char *to), from, to)
WATCH(int, renameat, (int from_at, const char *from, int to_at, const char *to), from_at, from, to_at, to)
WATCH(int, renameat2, (int from_at, const char *from, int to_at, const char *to, unsigned flags), from_at, from,
      to_at, to, flags)
WATCH(int, linkat, (int from_at, const char *from, int to_at, const char *to, int flags), from_at, from, to_at,
      to, flags)
WATCH(int, unlink, (const char *path), path)
WATCH(int, unlinkat, (int at, const char *path, int flags), at, path, flags)
WATCH(int, mkdir, (const char *path, mode_t mode), path, mode)
WATCH(int, mkdirat, (int at, const char *path, mode_t mode), at, path, mode)
WATCH(int, ftruncate64, (int fd, off64_t size), fd, size)
WATCH(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
WATCH(ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
WATCH(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)
WATCH(ssize_t, writev, (int fd, const struct iovec *parts, int n), fd, parts, n)
WATCH(ssize_t, copy_file_range, (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags),
      in, in_at, out, out_at, size, flags)

EXPORT ssize_t write(int fd, const void *data, size_t size) {
    NEXT(ssize_t, write, int, const void *, size_t);
    if (is_last()) {
        if (half) (void)next(fd, data, size / 2);
        die();
    }
    return next(fd, data, size);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    if (is_last()) {
        if (half) (void)next(fd, data, size / 2, at);
        die();
    }
    return next(fd, data, size, at);
}
