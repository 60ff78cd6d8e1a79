/* The walk of tree.h: recursion over descriptors, one open directory for each level; and what a checkpoint may
 * hold. What is done with an entry is the caller's. */
#include "checkpoint/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"

struct walk {
    const char *name;
    tree_visitor *visitor;
    void *context;
    struct buffer path; /* of the directory that is being read, then of its entry */
};

static int walk_directory(struct walk *walk, int fd, int depth, ty_error *err);

static int fail_at(const struct walk *walk, const char *what, int code, ty_error *err) {
    const char *path = walk->path.data != NULL ? walk->path.data : "";
    return ty_fail(err, -code, "cannot %s %s%s%s: %s", what, walk->name, *path != '\0' ? "/" : "", path,
                   strerror(code));
}

static int visit(struct walk *walk, int directory, const char *name, int depth, ty_error *err) {
    struct tree_entry entry = {.directory = directory, .name = name, .path = walk->path.data, .depth = depth};
    if (fstatat(directory, name, &entry.status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_at(walk, "read", errno, err);
    int result = walk->visitor(walk->context, TREE_FOUND, &entry, err);
    if (result < 0) return result;
    if (result == TREE_SKIP || !S_ISDIR(entry.status.st_mode)) return 0;
    if (depth + 1 >= TREE_DEPTH)
        return ty_fail(err, TY_EUSAGE,
                       "%s/%s is nested too deep: at most %d directories within each other are allowed",
                       walk->name, entry.path, TREE_DEPTH);
    /* A link that has come in its place meanwhile is not followed; what is gone by now was never there. */
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) return fail_at(walk, "open", errno, err);
    result = fd < 0 ? 0 : walk_directory(walk, fd, depth + 1, err);
    if (result < 0) return result;
    entry.path = walk->path.data; /* may have moved */
    return walk->visitor(walk->context, TREE_LEAVE, &entry, err);
}

/* The descriptor goes with the walk. One path is kept for all levels, which grows by a name and is cut again; a
 * visit may have made it move in memory. */
static int walk_directory(struct walk *walk, int fd, int depth, ty_error *err) {
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (stream == NULL) {
        int code = errno;
        if (fd >= 0) (void)close(fd);
        return fail_at(walk, "open", code, err);
    }
    size_t size = walk->path.size;
    int result = 0;
    while (result >= 0) {
        errno = 0;
        const struct dirent *next = readdir(stream);
        if (next == NULL) {
            result = errno == 0 ? 0 : fail_at(walk, "read", errno, err);
            break;
        }
        if (str_equal(next->d_name, ".") || str_equal(next->d_name, "..")) continue;
        if (size > 0) buffer_char(&walk->path, '/');
        buffer_text(&walk->path, next->d_name);
        result = walk->path.failed ? ty_fail_memory(err) : visit(walk, dirfd(stream), next->d_name, depth, err);
        if (result < 0) break;
        walk->path.size = size;
        walk->path.data[size] = '\0';
    }
    (void)closedir(stream);
    return result < 0 ? result : 0;
}

int tree_walk(int top, const char *name, tree_visitor *visitor, void *context, ty_error *err) {
    struct walk walk = {.name = name, .visitor = visitor, .context = context};
    buffer_text(&walk.path, "");
    int result = walk.path.failed ? ty_fail_memory(err) : 0;
    int fd = result < 0 ? -1 : openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an offset of its own */
    if (result == 0) result = walk_directory(&walk, fd, 0, err);
    buffer_done(&walk.path);
    return result;
}

int tree_open(int at, const char *path, bool follow, ty_error *err) {
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0) return ty_fail(err, -errno, "cannot open directory %s: %s", path, strerror(errno));
    return fd;
}

/* Nothing that takes the place of a file holds up its open: a FIFO waits for a writer. */
int tree_open_file(int at, const char *path) {
    int fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* EINVAL: a file system that cannot sync a directory, where nothing more can be done. */
int tree_sync(int directory) {
    return fsync(directory) < 0 && errno != EINVAL ? -errno : 0;
}

int tree_read_link(int at, const char *path, char target[PATH_MAX]) {
    ssize_t size = readlinkat(at, path, target, PATH_MAX - 1);
    if (size < 0) return -errno;
    target[size] = '\0';
    return 0;
}

/* -- what a checkpoint may hold */

int tree_check_entry(const char *name, const struct tree_entry *entry, ty_error *err) {
    mode_t mode = entry->status.st_mode;
    if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode))
        return ty_fail(err, TY_EUSAGE, "%s/%s is no file, directory or link: a checkpoint cannot hold it", name,
                       entry->path);
    if (!utf8_valid(entry->name, strlen(entry->name)))
        return ty_fail(err, TY_EUSAGE, "the name of %s/%s is not UTF-8: a checkpoint cannot hold it", name,
                       entry->path);
    if (str_prefix(entry->name, PART_PREFIX, NULL))
        return ty_fail(err, TY_EUSAGE,
                       "%s/%s has a name that Trainyard keeps for itself: a checkpoint cannot hold it", name,
                       entry->path);
    return 0;
}

/* ".." behind a name is refused: the name may be a link itself, and then leads up from elsewhere. */
static bool leads_inside(const char *target, int depth) {
    if (target[0] == '/') return false;
    bool named = false;
    for (const char *at = target; *at != '\0'; at += strspn(at, "/")) {
        size_t size = strcspn(at, "/");
        if (size == 2 && at[0] == '.' && at[1] == '.') {
            if (named || --depth < 0) return false;
        } else if (size != 1 || at[0] != '.') {
            named = true;
        }
        at += size;
    }
    return true;
}

int tree_check_link(const char *name, const struct tree_entry *entry, const char *target, ty_error *err) {
    if (!utf8_valid(target, strlen(target)))
        return ty_fail(err, TY_EUSAGE,
                       "the link %s/%s leads to a name that is not UTF-8: a checkpoint cannot hold it", name,
                       entry->path);
    if (leads_inside(target, entry->depth)) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "the link %s/%s leads to %s: in a checkpoint it must be relative and stay inside", name,
                   entry->path, target);
}
