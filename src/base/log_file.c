/* A bounded log is a head, a mark and a tail. The tail grows from a quarter of the limit to three quarters;
 * then the file is written anew with the last quarter of it, which costs about as much as was written
 * meanwhile. */
#include "base/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"

enum { LINE_SOUGHT = 4096 }; /* how far from a cut the end of a line is looked for */
enum { REMOVED_MS = 1000 };

/* The number has a fixed width: how large a log may be does not depend on how much it leaves out. */
static const char BEFORE[] = "[trainyard: ", AFTER[] = " bytes are left out here, by --log-limit]\n";
enum { COUNT_WIDTH = 20 };

_Static_assert(sizeof BEFORE - 1 + COUNT_WIDTH + sizeof AFTER - 1 == LOG_MARK_SIZE, "the length of a mark");

bool log_mark_find(const char *text, size_t size, size_t *offset, uint64_t *left_out) {
    const char *end = text + size;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), BEFORE, sizeof BEFORE - 1)) != NULL;
         at++) {
        if (end - at < LOG_MARK_SIZE) return false;
        const char *digits = at + sizeof BEFORE - 1;
        if (memcmp(digits + COUNT_WIDTH, AFTER, sizeof AFTER - 1) != 0) continue;
        char number[COUNT_WIDTH + 1] = {0};
        memcpy(number, digits, COUNT_WIDTH);
        *left_out = strtoull(number, NULL, 10);
        *offset = (size_t)(at - text);
        return true;
    }
    return false;
}

/* All of `size` bytes from `at`, which are there: the file has no other writer. */
static int read_at(int fd, char *bytes, size_t size, int64_t at) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, bytes + done, size - done, at + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* Size, and what an earlier writer left out: his mark stands where the head ends, at most a quarter in. */
static int look(struct log_file *file) {
    struct stat status;
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t offset;
    if (fstat(file->fd, &status) < 0) return -errno;
    file->size = status.st_size;
    file->head = 0;
    file->left_out = 0;
    int64_t most = file->limit / 4 + LOG_MARK_SIZE;
    size_t size = (size_t)(file->size < most ? file->size : most);
    char *room = size == 0 ? NULL : buffer_reserve(&text, size);
    if (size == 0) return 0;
    if (room == NULL) return -ENOMEM;
    int result = read_at(file->fd, room, size, 0);
    if (result == 0 && log_mark_find(room, size, &offset, &file->left_out)) file->head = (int64_t)offset;
    return result;
}

/* A descriptor, or -errno. */
static int open_path(const struct log_file *file) {
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(file->path, flags, 0644);
    if (fd < 0 && errno == ENOENT && file->in_logs) {
        CLEANUP_FREE char *directory = strndup(file->path, (size_t)(strrchr(file->path, '/') - file->path));
        if (directory == NULL || (mkdir(directory, 0755) < 0 && errno != EEXIST)) return -errno;
        fd = open(file->path, flags, 0644);
    }
    return fd < 0 ? -errno : fd;
}

void log_file_close(struct log_file *file) {
    if (file->fd >= 0) (void)close(TAKE_FD(file->fd));
}

static int append(struct log_file *file, const char *bytes, size_t size) {
    int result = file_write_all(file->fd, bytes, size);
    if (result == 0) file->size += (int64_t)size;
    return result;
}

/* The end of the last line that ends before `at`, or `at` where none is near. */
static int64_t line_before(const struct log_file *file, int64_t at) {
    char near[LINE_SOUGHT];
    size_t size = (size_t)(at < LINE_SOUGHT ? at : LINE_SOUGHT);
    if (read_at(file->fd, near, size, at - (int64_t)size) < 0) return at;
    const char *end = memrchr(near, '\n', size);
    return end == NULL ? at : at - (int64_t)size + (end + 1 - near);
}

static int copy(const struct log_file *file, int64_t from, int64_t to, int target) {
    char chunk[64 * 1024];
    for (int result; from < to; from += (int64_t)sizeof chunk) {
        size_t size = (size_t)(to - from < (int64_t)sizeof chunk ? to - from : (int64_t)sizeof chunk);
        if ((result = read_at(file->fd, chunk, size, from)) < 0) return result;
        if ((result = file_write_all(target, chunk, size)) < 0) return result;
    }
    return 0;
}

/* Head, mark and the last lines of the file and of `bytes`, which come behind it, in another file. */
static int write_anew(struct log_file *file, const char *bytes, size_t size, int target) {
    const int64_t tail = file->limit / 4;
    char mark[LOG_MARK_SIZE + 1];
    int64_t head = file->head, begin = head + LOG_MARK_SIZE; /* of the tail that is there */
    if (head == 0) head = begin = line_before(file, tail);
    int64_t keep = file->size; /* of the file, from here on */
    if ((int64_t)size < tail) {
        keep = file->size + (int64_t)size - tail;
        keep = line_before(file, keep < begin ? begin : keep);
        if (keep < begin) keep = begin;
    } else {
        const char *from = bytes + (size - (size_t)tail);
        const char *end = memchr(from, '\n', (size_t)(tail < LINE_SOUGHT ? tail : LINE_SOUGHT));
        from = end == NULL || end + 1 == bytes + size ? from : end + 1;
        file->left_out += (uint64_t)(from - bytes);
        size -= (size_t)(from - bytes);
        bytes = from;
    }
    file->left_out += (uint64_t)(keep - begin);
    (void)snprintf(mark, sizeof mark, "%s%*llu%s", BEFORE, COUNT_WIDTH, (unsigned long long)file->left_out,
                   AFTER);
    int result = copy(file, 0, head, target);
    if (result == 0) result = file_write_all(target, mark, LOG_MARK_SIZE);
    if (result == 0) result = copy(file, keep, file->size, target);
    if (result == 0) result = file_write_all(target, bytes, size);
    if (result < 0) return result;
    file->size = head + LOG_MARK_SIZE + (file->size - keep) + (int64_t)size;
    file->head = head;
    return 0;
}

/* The members are put back where it fails: what could not be written is then all that is missing. */
static int shorten(struct log_file *file, const char *bytes, size_t size) {
    const struct log_file before = *file;
    CLEANUP(buffer_done) struct buffer path = {0};
    const char *name = strrchr(file->path, '/') + 1;
    buffer_printf(&path, "%.*s.%s.new", (int)(name - file->path), file->path, name);
    if (path.failed) return -ENOMEM;
    (void)unlink(path.data); /* of a writer that was killed */
    int fd = open(path.data, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return -errno;
    int result = write_anew(file, bytes, size, fd);
    if (result == 0 && rename(path.data, file->path) < 0) result = -errno;
    if (result == 0) {
        (void)close(file->fd);
        file->fd = fd;
        return 0;
    }
    (void)close(fd);
    (void)unlink(path.data);
    *file = before;
    return result;
}

/* What is written to a file without a name is lost with the descriptor: another one begins with what was
 * written since. Not at once: whoever removes the whole run removes its directories next, which must be empty
 * then. */
static int keep_name(struct log_file *file) {
    struct stat status;
    nanoseconds now = clock_monotonic();
    if (fstat(file->fd, &status) < 0 || status.st_nlink > 0) {
        file->removed = 0;
        return 0;
    }
    if (file->removed == 0) {
        file->removed = now;
        file->removed_size = status.st_size;
    }
    CLEANUP_FD int fd = now - file->removed < REMOVED_MS * NS_PER_MS ? -1 : open_path(file);
    if (fd < 0) return 0;
    int result = copy(file, file->removed_size, status.st_size, fd);
    if (result < 0) return result;
    log_file_close(file);
    file->fd = TAKE_FD(fd);
    file->removed = 0;
    file->anew = true;
    return file->limit > 0 ? look(file) : 0;
}

int log_file_write(struct log_file *file, const char *bytes, size_t size) {
    struct stat status;
    int result = 0;
    file->anew = false;
    if (file->fd >= 0) {
        result = keep_name(file);
    } else {
        int fd = open_path(file);
        if (fd < 0) return fd;
        file->fd = fd;
        if (file->limit > 0) result = look(file);
        if (result < 0) log_file_close(file);
    }
    /* Whoever wants the room of a log may cut it: what comes then stands behind what is left. */
    if (result == 0 && file->limit > 0) {
        if (fstat(file->fd, &status) < 0) return -errno;
        if (status.st_size != file->size) result = look(file);
    }
    if (result < 0 || size == 0) return result;
    if (file->limit == 0) return file_write_all(file->fd, bytes, size);
    if (file->size + (int64_t)size <= file->limit) return append(file, bytes, size);
    int64_t missing = file->limit / 4 - file->size; /* of the head */
    if (file->head == 0 && missing > 0) {
        result = append(file, bytes, (size_t)missing);
        if (result < 0) return result;
        bytes += missing;
        size -= (size_t)missing;
    }
    return shorten(file, bytes, size);
}
