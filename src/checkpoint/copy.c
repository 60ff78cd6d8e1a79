/* The worker's side: a tree copied into the staging directory and synced, or everything that was made taken
 * back. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"
#include "checkpoint/names.h"

/* Up to so many new entries are synced one by one; more of them with one syncfs, since thousands of syncs would
 * cost a commit of the file system's journal each. */
enum { SYNC_EACH = 64 };

int copy_fail(const struct copy *copy, const struct tree_entry *entry, int code, ty_error *err) {
    struct statvfs fs;
    if ((code != ENOSPC && code != EDQUOT) || fstatvfs(copy->to, &fs) < 0)
        return ty_fail(err, -code, "cannot copy %s/%s to %s: %s", copy->source, entry->path, copy->staging,
                       strerror(code));
    return ty_fail(err, -code, "cannot copy %s/%s to %s: %s: it needs %lld bytes, %llu are free", copy->source,
                   entry->path, copy->staging, strerror(code), (long long)entry->status.st_size,
                   (unsigned long long)fs.f_bavail * fs.f_frsize);
}

int copy_fail_conflict(const struct copy *copy, const char *path, ty_error *err) {
    return ty_fail(
        err, TY_EUSAGE,
        "%s is in the checkpoint of another rank with other content (this rank's is %s/%s): give files that"
        " differ a name of their own in each rank",
        path, copy->source, path);
}

int copy_give_way(struct copy *copy, const char *path, ty_error *err) {
    if (!copy->may_differ) return copy_fail_conflict(copy, path, err);
    if (copy->kept.code == 0)
        (void)ty_fail(&copy->kept, TY_EUSAGE,
                      "%s differs between the ranks: the one that came first is kept; give files that differ a"
                      " name of their own in each rank",
                      path);
    return 1;
}

int copy_note_made(struct copy *copy, const char *path, ty_error *err) {
    buffer_append(&copy->made, path, strlen(path) + 1);
    copy->n_made++;
    return copy->made.failed ? ty_fail_memory(err) : 0;
}

/* Appends {"path": PATH to the list; the caller goes on. */
static int begin_listing(struct copy *copy, const char *path, ty_error *err) {
    struct buffer *files = copy->files;
    buffer_text(files, files->data[files->size - 1] == '[' ? "{\"path\": " : ", {\"path\": ");
    buffer_json_string(files, path, strlen(path));
    return files->failed ? ty_fail_memory(err) : 0;
}

static int list_file(struct copy *copy, const char *path, const struct digest *digest, ty_error *err) {
    if (str_equal(path, MANIFEST_NAME)) return 0; /* the user's metadata, which the manifest takes in */
    int result = begin_listing(copy, path, err);
    if (result < 0) return result;
    buffer_printf(copy->files, ", \"size\": %lld, \"xxh3\": \"%s\"}", (long long)digest->size, digest->xxh3);
    return copy->files->failed ? ty_fail_memory(err) : 0;
}

static int list_link(struct copy *copy, const char *path, const char *target, ty_error *err) {
    int result = begin_listing(copy, path, err);
    if (result < 0) return result;
    buffer_text(copy->files, ", \"link\": ");
    buffer_json_string(copy->files, target, strlen(target));
    buffer_char(copy->files, '}');
    return copy->files->failed ? ty_fail_memory(err) : 0;
}

static int copy_directory(struct copy *copy, const struct tree_entry *entry, ty_error *err) {
    struct stat there;
    if (entry->status.st_dev == copy->to_status.st_dev && entry->status.st_ino == copy->to_status.st_ino)
        return ty_fail(err, TY_EUSAGE, "the checkpoint %s holds the directory %s into which it is copied",
                       copy->source, copy->staging);
    if (mkdirat(copy->to, entry->path, (entry->status.st_mode & 0777) | 0700) == 0)
        return copy_note_made(copy, entry->path, err);
    if (errno != EEXIST) return copy_fail(copy, entry, errno, err);
    if (fstatat(copy->to, entry->path, &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(there.st_mode)) return 0;
    return copy_fail_conflict(copy, entry->path, err);
}

static int copy_link(struct copy *copy, const struct tree_entry *entry, ty_error *err) {
    char target[PATH_MAX], there[PATH_MAX];
    int result = tree_read_link(entry->directory, entry->name, target);
    if (result < 0) return copy_fail(copy, entry, -result, err);
    result = tree_check_link(copy->source, entry, target, err);
    if (result < 0) return result;
    if (symlinkat(target, copy->to, entry->path) == 0)
        result = copy_note_made(copy, entry->path, err);
    else if (errno != EEXIST)
        result = copy_fail(copy, entry, errno, err);
    else if (tree_read_link(copy->to, entry->path, there) < 0 || !str_equal(there, target))
        result = copy_give_way(copy, entry->path, err);
    return result < 0 ? result : result == 1 ? 0 : list_link(copy, entry->path, target, err);
}

static int copy_regular(struct copy *copy, const struct tree_entry *entry, ty_error *err) {
    struct digest digest = {0};
    int result = copy_file(copy, entry, &digest, err);
    return result < 0 ? result : result == 1 ? 0 : list_file(copy, entry->path, &digest, err);
}

static int copy_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    struct copy *copy = context;
    if (visit == TREE_LEAVE) return 0;
    int result = tree_check_entry(copy->source, entry, err);
    if (result < 0) return result;
    if (S_ISDIR(entry->status.st_mode)) return copy_directory(copy, entry, err);
    if (S_ISLNK(entry->status.st_mode)) return copy_link(copy, entry, err);
    return copy_regular(copy, entry, err);
}

static const char *next_made(const struct copy *copy, size_t *at) {
    if (*at >= copy->made.size) return NULL;
    const char *path = copy->made.data + *at;
    *at += strlen(path) + 1;
    return path;
}

/* Directories, and with them the names of files and links, are synced when the checkpoint is published; a large file was synced when
 * it was written. */
static int sync_path(int at, const char *path) {
    struct stat status;
    CLEANUP_FD int fd = tree_open_file(at, path);
    if (fd == -ELOOP) return 0;
    if (fd < 0) return fd;
    if (fstat(fd, &status) < 0) return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size >= COPY_SYNC_AT_ONCE) return 0;
    return fsync(fd) < 0 ? -errno : 0;
}

static int sync_each(const struct copy *copy) {
    size_t at = 0;
    int result = 0;
    for (const char *path; result == 0 && (path = next_made(copy, &at)) != NULL;)
        result = sync_path(copy->to, path);
    return result;
}

static int sync_made(const struct copy *copy, ty_error *err) {
    int result = 0;
    if (copy->n_made <= SYNC_EACH)
        result = sync_each(copy);
    else if (syncfs(copy->to) < 0)
        result = -errno;
    if (result < 0) return ty_fail(err, result, "cannot sync %s: %s", copy->staging, strerror(-result));
    return 0;
}

/* A list too long for a message stays beside the files, and the message names it. */
static int set_down_list(struct copy *copy, size_t begin, ty_error *err) {
    struct buffer *files = copy->files;
    const struct buffer list = {.data = files->data + begin, .size = files->size - begin};
    struct digest digest;
    char name[sizeof LIST_PREFIX + DIGEST_SIZE];
    if (list.size <= LIST_MAX) return 0;
    bytes_digest_memory(list.data, list.size, &digest);
    (void)snprintf(name, sizeof name, LIST_PREFIX "%s", digest.xxh3);
    int result = copy_text(copy, name, &list, err);
    if (result < 0) return result;
    files->size = begin;
    buffer_printf(files, "[{\"list\": \"%s\"}]", name);
    return 0;
}

/* What was listed from `begin` on. */
static int end_list(struct copy *copy, size_t begin, ty_error *err) {
    buffer_char(copy->files, ']');
    return copy->files->failed ? ty_fail_memory(err) : set_down_list(copy, begin, err);
}

/* Directories that hold files of other ranks stay. */
static void undo(const struct copy *copy) {
    CLEANUP_FREE const char **paths = calloc(copy->n_made + 1, sizeof *paths);
    size_t n = 0, at = 0;
    for (const char *path; paths != NULL && (path = next_made(copy, &at)) != NULL;)
        paths[n++] = path;
    while (n-- > 0)
        if (unlinkat(copy->to, paths[n], 0) < 0 && errno == EISDIR)
            (void)unlinkat(copy->to, paths[n], AT_REMOVEDIR);
}

static int copy_tree(struct copy *copy, int from, ty_error *err) {
    struct stat status;
    if (fstat(copy->to, &copy->to_status) < 0 || fstat(from, &status) < 0)
        return ty_fail(err, -errno, "cannot read %s: %s", copy->source, strerror(errno));
    if (status.st_dev == copy->to_status.st_dev && status.st_ino == copy->to_status.st_ino)
        return ty_fail(err, TY_EUSAGE, "the checkpoint %s is the directory into which it is to be copied",
                       copy->source);
    if (bytes_init(&copy->bytes) < 0) return ty_fail_memory(err);
    size_t before = copy->files->size;
    buffer_char(copy->files, '[');
    int result =
        copy->files->failed ? ty_fail_memory(err) : tree_walk(from, copy->source, copy_entry, copy, err);
    if (result == 0) result = end_list(copy, before, err);
    if (result == 0) result = sync_made(copy, err);
    if (result < 0) {
        undo(copy);
        if (copy->files->data != NULL) copy->files->data[copy->files->size = before] = '\0';
    }
    bytes_done(&copy->bytes);
    return result;
}

/* Another rank may make it at the same moment; it stays when this one fails, since others may be using it. */
static int open_staging(const char *staging, ty_error *err) {
    if (mkdir(staging, 0755) < 0 && errno != EEXIST)
        return ty_fail(err, -errno, "cannot make directory %s: %s", staging, strerror(errno));
    return tree_open(AT_FDCWD, staging, false, err);
}

int checkpoint_copy(const char *source, const char *staging, const struct checkpoint_copying *how,
                    struct buffer *files, ty_error *err) {
    struct copy copy = {
        .source = source,
        .staging = staging,
        .give = how->hand == CHECKPOINT_GIVE,
        .may_differ = how->may_differ,
        .files = files,
    };
    CLEANUP_FD int from = tree_open(AT_FDCWD, source, true, err);
    if (from < 0) return ty_wrap(err, "checkpoint");
    CLEANUP_FD int to = copy.to = open_staging(staging, err);
    int result = to < 0 ? to : copy_tree(&copy, from, err);
    buffer_done(&copy.made);
    if (result < 0 || copy.kept.code == 0) return result;
    if (err != NULL) *err = copy.kept;
    return 1;
}
