/* Small things done with files: reading whole, writing whole, a draft that is renamed into place, directories,
 * absolute paths. Every message names the path. Nothing here bounds the time that storage takes: whoever must
 * not wait calls from a thread of base/storage.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MAGIC_XFS 0x58465342
#define MAGIC_ZFS 0x2fc12fc1

/* Most files of /proc and /sys are small, and the kernel takes memory for what it is asked for. */
enum { FILE_FIRST = 4095, FILE_CHUNK = 64 * 1024 };

static int read_all(int fd, const char *path, size_t limit, struct buffer *out, ty_error *err) {
    size_t before = out->size;
    for (;;) {
        size_t chunk = out->size - before < FILE_FIRST ? FILE_FIRST : FILE_CHUNK;
        char *to = buffer_reserve(out, chunk);
        if (to == NULL) return ty_fail_memory(err);
        ssize_t n = read(fd, to, chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ty_fail(err, -errno, "cannot read %s: %s", path, strerror(errno));
        to[n] = '\0';
        if (n == 0) return 0;
        out->size += (size_t)n;
        if (out->size - before > limit)
            return ty_fail(err, TY_EUSAGE, "%s is too long: at most %zu bytes are read", path, limit);
    }
}

int file_read(const char *path, size_t limit, struct buffer *out, ty_error *err) {
    CLEANUP_FD int opened = -1;
    bool standard_input = strcmp(path, "-") == 0;
    if (!standard_input) {
        opened = open(path, O_RDONLY | O_CLOEXEC);
        if (opened < 0) return ty_fail(err, -errno, "cannot open %s: %s", path, strerror(errno));
    }
    size_t before = out->size;
    const char *name = standard_input ? "standard input" : path;
    int result = read_all(standard_input ? STDIN_FILENO : opened, name, limit, out, err);
    if (result < 0 && out->data != NULL) {
        out->size = before;
        out->data[before] = '\0';
    }
    return result;
}

void file_open_standard(void) {
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0) (void)close(fd);
}

int file_write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int file_draft_open(const char *path, mode_t mode, struct file_draft *draft) {
    *draft = (struct file_draft){.fd = -1, .path = path, .part = str_format("%s.part-%d", path, (int)getpid())};
    if (draft->part == NULL) return -ENOMEM;
    (void)unlink(draft->part); /* of a process that had this number before */
    draft->fd = open(draft->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (draft->fd >= 0) return 0;
    int result = -errno;
    free(TAKE(draft->part));
    return result;
}

bool file_is_foreign_link(const char *path) {
    struct stat named;
    return lstat(path, &named) == 0 && S_ISLNK(named.st_mode) && named.st_uid != geteuid() && named.st_uid != 0;
}

/* A link of somebody else's is replaced as any file. */
int file_draft_open_output(const char *path, mode_t mode, struct file_draft *draft) {
    struct stat named, there;
    bool exists = lstat(path, &named) == 0;
    bool follows = exists && S_ISLNK(named.st_mode) && !file_is_foreign_link(path) && stat(path, &there) == 0;
    bool special = exists && !S_ISLNK(named.st_mode) && !S_ISREG(named.st_mode);
    if (follows || special) {
        *draft = (struct file_draft){.fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY), .path = path};
        return draft->fd < 0 ? -errno : 0;
    }
    int result = file_draft_open(path, mode, draft);
    if (result < 0 || !exists || !S_ISREG(named.st_mode) || named.st_uid != geteuid()) return result;
    bool same_group = fchown(draft->fd, (uid_t)-1, named.st_gid) == 0;
    mode_t kept = named.st_mode & mode & (same_group ? 0777 : ~(mode_t)S_IRWXG);
    if (fchmod(draft->fd, kept) == 0) return 0;
    return file_draft_close(draft, -errno);
}

int file_draft_close(struct file_draft *draft, int result) {
    if (draft->fd >= 0 && fstat(draft->fd, &draft->status) < 0 && result >= 0) result = -errno;
    if (draft->fd >= 0 && close(TAKE_FD(draft->fd)) < 0 && result >= 0) result = -errno;
    if (draft->part != NULL && result >= 0 && rename(draft->part, draft->path) < 0) result = -errno;
    if (draft->part != NULL && result < 0) (void)unlink(draft->part);
    free(TAKE(draft->part));
    return result;
}

bool file_has_no_links(int code) {
    return code == EPERM || code == ENOSYS || code == EOPNOTSUPP;
}

bool file_is_same(const struct stat *one, const struct stat *other) {
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

static bool is_of_one_time(const struct stat *one, const struct stat *other) {
    return one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

bool file_is_unchanged(const struct stat *one, const struct stat *other) {
    return file_is_same(one, other) && one->st_size == other->st_size && is_of_one_time(one, other);
}

/* By its time as well: its number may be another file's by now. */
int file_remove_own(const char *path, const struct stat *made) {
    struct stat now;
    if (lstat(path, &now) < 0) return errno == ENOENT ? 0 : -errno;
    bool own = file_is_same(&now, made) && is_of_one_time(&now, made);
    return own && unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* Looked at by lstat, as a link in its place may lead anywhere. */
int file_private_directory(char path[PATH_MAX], bool make, ty_error *err) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    int length = runtime != NULL && runtime[0] == '/'
                     ? snprintf(path, PATH_MAX, "%s/trainyard", runtime)
                     : snprintf(path, PATH_MAX, "/tmp/trainyard-%u", (unsigned)getuid());
    if (length >= PATH_MAX) return ty_fail(err, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long");
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return ty_fail(err, -errno, "cannot make %s: %s", path, strerror(errno));
    if (lstat(path, &status) < 0) return ty_fail(err, -errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISDIR(status.st_mode) || status.st_uid != getuid() || (status.st_mode & 077) != 0)
        return ty_fail(err, -EPERM,
                       "%s must be a directory of yours with mode 0700; remove it, or set XDG_RUNTIME_DIR",
                       path);
    return 0;
}

int file_make_directories(const char *path, mode_t mode, ty_error *err) {
    CLEANUP_FREE char *copy = strdup(path);
    if (copy == NULL) return ty_fail_memory(err);
    for (char *at = copy + strspn(copy, "/"); *at != '\0';) {
        at += strcspn(at, "/");
        char slash = *at;
        *at = '\0';
        /* A directory that another process makes at the same moment is as good as ours. */
        struct stat status;
        int code = mkdir(copy, mode) == 0 ? 0 : errno;
        if (code != 0 && stat(copy, &status) == 0) code = S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
        if (code != 0) return ty_fail(err, -code, "cannot make directory %s: %s", copy, strerror(code));
        *at = slash;
        at += strspn(at, "/");
    }
    return 0;
}

/* `base`/`path` without doubled slashes and "." steps; ".." stays, since only the file system knows where it
 * leads. */
static char *join(const char *base, const char *path) {
    struct buffer out = {0};
    const char *sources[] = {base, path};
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        for (const char *at = sources[i]; *at != '\0';) {
            size_t size = strcspn(at, "/");
            bool skipped = size == 0 || (size == 1 && *at == '.');
            if (!skipped) buffer_char(&out, '/');
            if (!skipped) buffer_append(&out, at, size);
            at += size + (at[size] == '/');
        }
    }
    if (out.size == 0) buffer_char(&out, '/');
    char *joined = buffer_take(&out);
    if (joined == NULL) errno = ENOMEM;
    return joined;
}

char *file_absolute(const char *path) {
    if (path[0] == '/') return join("", path);
    if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
        const char *home = getenv("HOME");
        if (home == NULL || home[0] != '/') {
            const struct passwd *user = getpwuid(getuid());
            home = user != NULL ? user->pw_dir : NULL;
        }
        errno = ENODATA;
        return home == NULL ? NULL : join(home, path + 1);
    }
    CLEANUP_FREE char *directory = getcwd(NULL, 0);
    return directory == NULL ? NULL : join(directory, path);
}

/* The kernel puts "(unreachable)" before a directory that is outside of the root. */
int file_working_directory(char *directory, size_t size, ty_error *err) {
    errno = 0;
    if (getcwd(directory, size) == NULL || directory[0] != '/')
        return ty_fail(err, TY_ESTART,
                       "workers begin in the working directory, and that %s: change to another one",
                       errno == ERANGE ? "has too long a name" : "was deleted");
    if (access(directory, X_OK) == 0) return 0;
    return ty_fail(err, TY_ESTART,
                   "workers begin in the working directory, but cannot enter %s: %s; change to another one",
                   directory, strerror(errno));
}

bool file_is_local(int fd) {
    static const uint32_t local[] = {EXT4_SUPER_MAGIC, MAGIC_XFS,   BTRFS_SUPER_MAGIC,    MAGIC_ZFS,
                                     F2FS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
    struct statfs status;
    if (fstatfs(fd, &status) < 0) return false;
    for (size_t i = 0; i < ARRAY_SIZE(local); i++)
        if ((uint32_t)status.f_type == local[i]) return true;
    return false;
}
