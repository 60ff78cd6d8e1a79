/* The directory in memory for files of a node's workers (link.h): its name, made of the run's token, its
 * removal, and the marks of ranks whose program has begun MPI. What else lies in it is made, and named, by
 * those who use it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "checkpoint/tree.h"
#include "worker/link.h"

void worker_files_path(const char *token, char path[WORKER_FILES_SIZE]) {
    (void)snprintf(path, WORKER_FILES_SIZE, "/dev/shm/trainyard-%.64s", token);
}

void worker_files_remove(const char *token) {
    char path[WORKER_FILES_SIZE];
    worker_files_path(token, path);
    (void)tree_remove(AT_FDCWD, path);
}

enum { MARK_SIZE = WORKER_FILES_SIZE + 16 };

static void name_mark(const char *token, uint32_t rank, char path[MARK_SIZE]) {
    worker_files_path(token, path);
    size_t size = strlen(path);
    (void)snprintf(path + size, MARK_SIZE - size, "/mpi.%" PRIu32, rank);
}

int worker_files_mark(const char *token, uint32_t rank, bool begun) {
    char directory[WORKER_FILES_SIZE], path[MARK_SIZE];
    worker_files_path(token, directory);
    name_mark(token, rank, path);
    if (!begun) return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    if (mkdir(directory, 0700) < 0 && errno != EEXIST) return -errno;
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : 0;
}

bool worker_files_is_marked(const char *token, uint32_t rank) {
    char path[MARK_SIZE];
    struct stat status;
    name_mark(token, rank, path);
    return lstat(path, &status) == 0;
}
