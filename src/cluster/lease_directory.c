/* The place where all users of a machine meet: sticky and open to all like /tmp, never a symbolic link, never a directory in
 * which another user could remove or replace our files. */
#include "cluster/lease_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { SHARED_MODE = 01777 };

static const char default_path[] = "/tmp/trainyard-leases";

const char *lease_directory_path(void) {
    const char *path = getenv("TRAINYARD_LEASE_DIR");
    return path != NULL && path[0] != '\0' ? path : default_path;
}

/* Sticky, whoever owns it, or one that only its owner can write to: us or root. */
static bool is_safe(const struct stat *status) {
    bool trusted = status->st_uid == geteuid() || status->st_uid == 0;
    return (status->st_mode & S_ISVTX) != 0 || (trusted && (status->st_mode & S_IWOTH) == 0);
}

static int check_directory(int fd, const char *path, bool made, ty_error *err) {
    struct stat status;
    if (fstat(fd, &status) < 0) return ty_fail(err, -errno, "cannot look at %s: %s", path, strerror(errno));
    if (!is_safe(&status))
        return ty_fail(
            err, -EPERM,
            "lease directory %s is not safe: it must be sticky (mode 1777) or writable by you only; remove it "
            "or set TRAINYARD_LEASE_DIR",
            path);
    /* mkdir heeded the umask, and the maker of the default one may have been killed before it got here. */
    bool half_made =
        status.st_uid == geteuid() && (status.st_mode & S_ISVTX) != 0 && strcmp(path, default_path) == 0;
    if ((made || half_made) && (status.st_mode & 07777) != SHARED_MODE && fchmod(fd, SHARED_MODE) < 0)
        return ty_fail(err, -errno, "cannot open %s to all users: %s", path, strerror(errno));
    return 0;
}

int lease_directory_open(ty_error *err) {
    const char *path = lease_directory_path();
    bool made = mkdir(path, SHARED_MODE) == 0;
    if (!made && errno != EEXIST)
        return ty_fail(err, -errno, "cannot make the lease directory %s: %s", path, strerror(errno));
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return ty_fail(
            err, -EPERM,
            "lease directory %s is a symbolic link or no directory; remove it or set TRAINYARD_LEASE_DIR",
            path);
    if (fd < 0) return ty_fail(err, -errno, "cannot open the lease directory %s: %s", path, strerror(errno));
    int rc = check_directory(fd, path, made, err);
    return rc < 0 ? rc : TAKE_FD(fd);
}

int lease_file_open(int directory, const char *name) {
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

bool lease_file_held(int fd) {
    return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}
