/* Makes a journal that holds no rows yet. It is built in memory and written to a file without a name, which
 * then gets one, so that a reader, or whoever comes after a killed writer, finds a whole journal or none;
 * nothing is synced here, since the first durable commit does that. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "journal/journal_sqlite.h"

/* Bytes 18 and 19 of a database are 2 when it is written ahead (sqlite.org/fileformat2.html, 1.3.3); SQLite
 * would spend a transaction of its own on them. */
enum { WRITE_VERSION = 18, READ_VERSION = 19, WRITTEN_AHEAD = 2 };

unsigned char *journal_image(const struct journal_form *form, size_t *size) {
    sqlite3 *db = NULL;
    sqlite3_int64 bytes = 0;
    unsigned char *image = NULL;
    int rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, form->schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK) image = sqlite3_serialize(db, "main", &bytes, 0);
    (void)sqlite3_close(db);
    if (image != NULL) image[WRITE_VERSION] = image[READ_VERSION] = WRITTEN_AHEAD;
    *size = (size_t)bytes;
    return image;
}

/* A killed writer leaves nothing behind. -EOPNOTSUPP where the file system has no files without a name. */
static int publish_nameless(const char *path, const void *image, size_t size) {
    CLEANUP_FREE char *directory = strdup(path);
    char link[64];
    if (directory == NULL) return -ENOMEM;
    *strrchr(directory, '/') = '\0';
    CLEANUP_FD int fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return errno == EISDIR ? -EOPNOTSUPP : -errno;
    int result = file_write_all(fd, image, size);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (result == 0 && linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
        result = errno == ENOENT || file_has_no_links(errno) ? -EOPNOTSUPP : -errno; /* ENOENT: no /proc */
    return result;
}

static int write_new(const char *path, const void *image, size_t size) {
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return -errno;
    return file_write_all(fd, image, size);
}

/* The run's directory is locked by its controller, so nobody else makes a journal between the look and the
 * rename. */
static int publish_beside(const char *path, const void *image, size_t size) {
    CLEANUP_FREE char *beside = str_format("%s.new", path);
    if (beside == NULL) return -ENOMEM;
    if (access(path, F_OK) == 0) return -EEXIST;
    int result = write_new(beside, image, size);
    if (result == 0 && rename(beside, path) < 0) result = -errno;
    if (result < 0) (void)unlink(beside);
    return result;
}

int journal_create(const struct journal_form *form, const char *path, ty_error *err) {
    size_t size;
    unsigned char *image = journal_image(form, &size);
    if (image == NULL) return ty_fail_memory(err);
    int result = publish_nameless(path, image, size);
    if (result == -EOPNOTSUPP) result = publish_beside(path, image, size);
    sqlite3_free(image);
    if (result < 0) return ty_fail(err, result, "cannot create %s: %s", path, strerror(-result));
    return 0;
}
