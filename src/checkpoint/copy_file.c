/* One regular file of a checkpoint, copied into the staging directory in which other ranks copy at the same
 * time.
 *
 * It is written under a name of its own and takes its real one when it is whole, without replacing: so what
 * stands there under a real name is complete and can be compared, whoever put it there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "checkpoint/copy.h"
#include "checkpoint/names.h"

/* Opens a new file beside `path`; its name goes to `part`. Descriptor or -errno. */
static int open_part(struct copy *copy, const char *path, char part[PATH_MAX]) {
    uint64_t *number = &copy->part;
    const char *slash = strrchr(path, '/');
    int directory = slash != NULL ? (int)(slash - path) + 1 : 0;
    if (*number == 0 && getrandom(number, sizeof *number, 0) != (ssize_t)sizeof *number) return -EIO;
    int size =
        snprintf(part, PATH_MAX, "%.*s" PART_PREFIX "%016llx", directory, path, (unsigned long long)++*number);
    if (size < 0 || size >= PATH_MAX) return -ENAMETOOLONG;
    int fd = openat(copy->to, part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

/* Gives the new file its name: 1, 0 when something stands there, -errno. Where the file system knows no rename
 * without replacing, a hard link does the same. */
static int place(const struct copy *copy, const char *part, const char *path) {
    if (renameat2(copy->to, part, copy->to, path, RENAME_NOREPLACE) == 0) return 1;
    if (errno == EINVAL && linkat(copy->to, part, copy->to, path, 0) == 0) {
        (void)unlinkat(copy->to, part, 0); /* what stays is passed over when the checkpoint is published */
        return 1;
    }
    return errno == EEXIST ? 0 : -errno;
}

/* Fills the new file, places it and syncs it if it is large: as place(). */
static int fill_and_place(struct copy *copy, int from, const struct tree_entry *entry, struct digest *digest) {
    char part[PATH_MAX];
    CLEANUP_FD int to = open_part(copy, entry->path, part);
    if (to < 0) return to;
    int result = bytes_copy(&copy->bytes, from, to, digest);
    if (result == 0 && fchmod(to, entry->status.st_mode & 0777) < 0) result = -errno;
    if (result == 0 && digest->size >= COPY_SYNC_AT_ONCE && fsync(to) < 0) result = -errno;
    if (result == 0) result = place(copy, part, entry->path);
    if (result <= 0) (void)unlinkat(copy->to, part, 0);
    return result;
}

/* As fill_and_place, without a byte copied; TRY_COPY where the file system cannot (another one, no links, too many). */
enum { TRY_COPY = 2 };
static int link_and_place(struct copy *copy, const struct tree_entry *entry, struct digest *digest) {
    struct stat status;
    if (linkat(entry->directory, entry->name, copy->to, entry->path, 0) < 0)
        return errno == EEXIST ? 0 : TRY_COPY;
    CLEANUP_FD int fd = tree_open_file(copy->to, entry->path);
    int result = fd < 0 ? fd : 0;
    if (result == 0 && (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))) result = -ESTALE;
    if (result == 0) result = bytes_digest(&copy->bytes, fd, digest);
    if (result == 0 && digest->size >= COPY_SYNC_AT_ONCE && fsync(fd) < 0) result = -errno;
    if (result == 0) return 1;
    (void)unlinkat(copy->to, entry->path, 0);
    return result;
}

static int compare(struct copy *copy, const char *path, const struct digest *mine, ty_error *err) {
    struct digest other = {0};
    CLEANUP_FD int fd = tree_open_file(copy->to, path);
    if (fd < 0 || bytes_digest(&copy->bytes, fd, &other) < 0 || !digest_equal(&other, mine))
        return copy_give_way(copy, path, err);
    return 0;
}

int copy_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest, ty_error *err) {
    struct stat status;
    CLEANUP_FD int from = tree_open_file(entry->directory, entry->name);
    if (from < 0) return copy_fail(copy, entry, -from, err);
    if (fstat(from, &status) < 0 || !S_ISREG(status.st_mode)) return copy_fail(copy, entry, ESTALE, err);
    int placed = copy->give ? link_and_place(copy, entry, digest) : TRY_COPY;
    if (placed == 0) placed = bytes_digest(&copy->bytes, from, digest);
    if (placed == TRY_COPY) placed = fill_and_place(copy, from, entry, digest);
    if (placed < 0) return copy_fail(copy, entry, -placed, err);
    return placed == 1 ? copy_note_made(copy, entry->path, err) : compare(copy, entry->path, digest, err);
}

int copy_text(struct copy *copy, const char *path, const struct buffer *text, ty_error *err) {
    char part[PATH_MAX];
    CLEANUP_FD int to = open_part(copy, path, part);
    int placed = to < 0 ? to : file_write_all(to, text->data, text->size);
    if (placed == 0) placed = place(copy, part, path);
    if (placed <= 0 && to >= 0) (void)unlinkat(copy->to, part, 0);
    if (placed < 0)
        return ty_fail(err, placed, "cannot write %s/%s (%zu bytes): %s", copy->staging, path, text->size,
                       strerror(-placed));
    return placed == 1 ? copy_note_made(copy, path, err) : 0;
}
