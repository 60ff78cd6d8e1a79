/* The place where all users of a machine meet: one in which nobody but root could remove or replace the files
 * of another user, and that nobody can have taken beforehand. /tmp is such a place on every machine. What the
 * files in it say is lease.c's. */
#include "cluster/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { SHARED_MODE = 01777 };

#define CURE                                                                                  \
    "have one made that is root's (sudo install -d -m 1777 -o root /run/trainyard), and set " \
    "TRAINYARD_LEASE_DIR "                                                                    \
    "to it for all users"

const char *lease_directory_path(void) {
    const char *path = getenv("TRAINYARD_LEASE_DIR");
    return path != NULL && path[0] != '\0' ? path : "/tmp";
}

/* The owner of a directory may remove what lies in it, sticky or not; who may write to it, too, unless it is
 * sticky. */
static int check_directory(int fd, const char *path, ty_error *err) {
    struct stat status, root;
    if (fstat(fd, &status) < 0) return ty_fail(err, -errno, "cannot look at %s: %s", path, strerror(errno));
    /* In a user namespace root may be called otherwise: there too the root directory is root's. */
    bool trusted = status.st_uid == geteuid() || status.st_uid == 0 ||
                   (stat("/", &root) == 0 && status.st_uid == root.st_uid);
    if (!trusted) {
        const struct passwd *owner = getpwuid(status.st_uid);
        return ty_fail(
            err, -EPERM,
            "lease directory %s is not safe: it belongs to user %s (%u), who could remove your leases; " CURE,
            path, owner != NULL ? owner->pw_name : "?", (unsigned)status.st_uid);
    }
    if ((status.st_mode & (S_IWOTH | S_IWGRP)) != 0 && (status.st_mode & S_ISVTX) == 0)
        return ty_fail(
            err, -EPERM,
            "lease directory %s is not safe: others may write to it (mode %03o), who could remove your "
            "leases; make it sticky (chmod 1777 %s), or " CURE,
            path, (unsigned)status.st_mode & 07777, path);
    return 0;
}

/* Checked by its descriptor, which is used from here on: what the path leads to may be another directory by
 * then. One that is there under a read-only file system may still hold leases of others. */
int lease_directory_open(ty_error *err) {
    const char *path = lease_directory_path();
    if (path[0] != '/') /* two that begin in two directories would not meet */
        return ty_fail(err, TY_EUSAGE,
                       "TRAINYARD_LEASE_DIR=%s must be an absolute path, the same for all users", path);
    bool made = mkdir(path, SHARED_MODE) == 0;
    if (!made && errno != EEXIST && errno != EROFS)
        return ty_fail(err, -errno, "cannot make the lease directory %s: %s; " CURE, path, strerror(errno));
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return ty_fail(err, -EPERM,
                       "lease directory %s is a symbolic link or no directory; remove it, or " CURE, path);
    if (fd < 0)
        return ty_fail(err, -errno, "cannot open the lease directory %s: %s; " CURE, path, strerror(errno));
    int rc = check_directory(fd, path, err);
    if (rc == 0 && made && fchmod(fd, SHARED_MODE) < 0) /* mkdir heeded the umask */
        rc = ty_fail(err, -errno, "cannot open %s to all users: %s", path, strerror(errno));
    return rc < 0 ? rc : TAKE_FD(fd);
}

int lease_file_open(int directory, const char *name) {
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

/* Of the open file, not of the process: the lock of a process would go with any of its descriptors of the file
 * that is closed, and would not pass to agents. */
int lease_file_lock(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole);
}

bool lease_file_held(int fd) {
    struct flock other = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &other) == 0 && other.l_type == F_WRLCK;
}
