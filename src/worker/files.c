/* The directory in memory for files of a node's workers (link.h). */
#include <fcntl.h>
#include <stdio.h>

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
