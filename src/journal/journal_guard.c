/* Whether a journal that was read without locks stayed the same meanwhile: two looks are compared by all that a
 * writer changes with the bytes of a file. It is for readers without the log's index, as of another user's run,
 * of storage that is another machine's, or of a run that was killed; where others have the index open SQLite
 * needs none of this. */
#include "journal/journal_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

/* A log without bytes is none. */
static int look_at_log(const char *path, struct journal_look *look) {
    CLEANUP_FREE char *name = str_format("%s-wal", path);
    if (name == NULL) return -ENOMEM;
    CLEANUP_FD int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &look->log) < 0) return -errno;
    if (!S_ISREG(look->log.st_mode)) return -EINVAL;
    if (pread(fd, look->head, sizeof look->head, 0) < 0) return -errno;
    return look->log.st_size > 0;
}

/* The index is used while a writer, or another reader that keeps it right, lives. From an index that was left
 * SQLite would read the log once more, to no avail where that is torn. */
static int look_at_index(const char *path, bool *used) {
    CLEANUP_FREE char *name = str_format("%s-shm", path);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = JOURNAL_INDEX_USED, .l_len = 1};
    if (name == NULL) return -ENOMEM;
    CLEANUP_FD int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *used = fd >= 0 && (fcntl(fd, F_OFD_GETLK, &lock) == 0 || fcntl(fd, F_GETLK, &lock) == 0) &&
            lock.l_type != F_UNLCK;
    return 0;
}

int journal_look(const char *path, struct journal_look *look, ty_error *err) {
    *look = (struct journal_look){0};
    CLEANUP_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &look->file) < 0)
        return ty_fail(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(look->file.st_mode))
        return ty_fail(err, TY_ECORRUPT, "cannot open %s: it is no regular file", path);
    bool used = false;
    int logged = look_at_log(path, look);
    if (logged > 0 && file_is_local(fd) && look_at_index(path, &used) < 0) logged = -ENOMEM;
    if (logged == -ENOMEM) return ty_fail_memory(err);
    if (logged == -EINVAL) return ty_fail(err, TY_ECORRUPT, "cannot open %s-wal: it is no regular file", path);
    if (logged < 0) return ty_fail(err, logged, "cannot open %s-wal: %s", path, strerror(-logged));
    look->way = logged == 0 ? JOURNAL_ALONE : used ? JOURNAL_INDEXED : JOURNAL_GUARDED;
    return 0;
}

bool journal_look_stays(const struct journal_look *look, const char *path) {
    struct journal_look now;
    if (journal_look(path, &now, NULL) < 0) return false;
    if (!file_is_unchanged(&look->file, &now.file)) return false;
    if (look->way == JOURNAL_ALONE || now.way == JOURNAL_ALONE) return look->way == now.way;
    return file_is_same(&look->log, &now.log) && memcmp(look->head, now.head, sizeof now.head) == 0;
}
