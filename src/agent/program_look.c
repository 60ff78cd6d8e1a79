/* Is a program on this node what it is where the controller runs? Its size and bytes tell, of a large one those
 * at its two ends: the head of an executable has its build id. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

enum { END_SIZE = 512 * 1024 };

/* One that may be executed and not be read has no sum. */
static int sum(const char *path, struct digest *digest, ty_error *err) {
    struct stat status;
    CLEANUP_FREE char *bytes = malloc(2 * END_SIZE);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (bytes == NULL) return ty_fail_memory(err);
    if (fd < 0 && errno == EACCES) return 0;
    if (fd < 0 || fstat(fd, &status) < 0) return program_refuse(path, NULL, errno, err);
    ssize_t head = pread(fd, bytes, END_SIZE, 0), tail = 0;
    if (head == END_SIZE && status.st_size > END_SIZE)
        tail = pread(fd, bytes + END_SIZE, END_SIZE,
                     status.st_size > 2 * END_SIZE ? status.st_size - END_SIZE : END_SIZE);
    if (head < 0 || tail < 0) return program_refuse(path, NULL, errno, err);
    bytes_digest_memory(bytes, (size_t)(head + tail), digest);
    digest->size = status.st_size;
    return 0;
}

int program_look(const struct program_whereabouts *place, const char *name, struct digest *digest,
                 ty_error *err) {
    CLEANUP(buffer_done) struct buffer path = {0};
    bool relative = strchr(name, '/') != NULL || place->script;
    CLEANUP_FREE char *found = relative ? strdup(name) : spawn_find(name, place->search, place->directory, err);
    if (found == NULL) return err->code < 0 ? err->code : ty_fail_memory(err);
    if (found[0] != '/') buffer_printf(&path, "%s/", place->directory);
    buffer_text(&path, found);
    if (path.failed) return ty_fail_memory(err);
    *digest = (struct digest){0};
    if (access(path.data, place->script ? R_OK : X_OK) < 0) return program_refuse(path.data, NULL, errno, err);
    return sum(path.data, digest, err);
}
