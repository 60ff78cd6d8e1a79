/* One regular file of a checkpoint, copied or linked into this rank's own directory. What fails may leave half
 * a file there: the directory goes as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "checkpoint/copy.h"

static int sync_large(int fd, const struct digest *digest) {
    return digest->size >= COPY_SYNC_AT_ONCE && fsync(fd) < 0 ? -errno : 0;
}

static int fill(struct copy *copy, int from, const struct stat *status, const char *path,
                struct digest *digest) {
    CLEANUP_FD int to = openat(copy->own, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0) return -errno;
    int result = bytes_copy(&copy->bytes, from, status, to, digest);
    if (result == 0 && fchmod(to, status->st_mode & 0777) < 0) result = -errno;
    return result < 0 ? result : sync_large(to, digest);
}

/* Without a byte copied; TRY_COPY where the file system cannot (another one, no links, too many). */
enum { TRY_COPY = 1 };
static int link_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest) {
    struct stat status;
    if (linkat(entry->directory, entry->name, copy->own, entry->path, 0) < 0) return TRY_COPY;
    CLEANUP_FD int fd = tree_open_file(copy->own, entry->path);
    if (fd < 0) return fd;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return -ESTALE;
    int result = bytes_digest(&copy->bytes, fd, digest);
    return result < 0 ? result : sync_large(fd, digest);
}

int copy_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest, ty_error *err) {
    struct stat status;
    CLEANUP_FD int from = tree_open_file(entry->directory, entry->name);
    if (from < 0) return copy_fail(copy, entry, -from, err);
    if (fstat(from, &status) < 0 || !S_ISREG(status.st_mode)) return copy_fail(copy, entry, ESTALE, err);
    int result = copy->give ? link_file(copy, entry, digest) : TRY_COPY;
    if (result == TRY_COPY) result = fill(copy, from, &status, entry->path, digest);
    return result < 0 ? copy_fail(copy, entry, -result, err) : 0;
}
