/* A removal holds the run's lock, so that no controller takes the run meanwhile, and renames before it
 * removes. */
#include "controller/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/tree.h"
#include "controller/run_lock.h"

#define REMOVED_PREFIX ".removed-"

static int count_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    struct run_disk *disk = context;
    uint64_t bytes = (uint64_t)entry->status.st_blocks * 512;
    (void)err;
    if (visit == TREE_LEAVE) return 0;
    disk->bytes += bytes;
    if (str_prefix(entry->path, "logs/", NULL))
        disk->logs += bytes;
    else if (entry->depth > 0) /* the run's own files lie in its directory itself, all else is checkpoints */
        disk->checkpoints += bytes;
    return 0;
}

int run_disk_read(const char *run_path, struct run_disk *disk, ty_error *err) {
    *disk = (struct run_disk){0};
    CLEANUP_FD int top = tree_open(AT_FDCWD, run_path, true, err); /* a run may be moved and linked */
    if (top < 0) return top;
    return tree_walk(top, run_path, count_entry, disk, err);
}

static int fail(const char *path, int result, ty_error *err) {
    return ty_fail(err, result, "cannot remove %s: %s", path, strerror(-result));
}

static int check(const char *run_path, ty_error *err) {
    struct stat status;
    if (lstat(run_path, &status) < 0) return fail(run_path, -errno, err);
    if (S_ISLNK(status.st_mode))
        return ty_fail(err, TY_EUSAGE, "%s is a link: remove what it leads to and the link by hand", run_path);
    return 0;
}

/* The name that the directory has while its files go. */
static int take_away(const char *run_path, char **removed, ty_error *err) {
    const char *name = strrchr(run_path, '/');
    if (asprintf(removed, "%.*s/" REMOVED_PREFIX "%d-%.200s", (int)(name - run_path), run_path, getpid(),
                 name + 1) < 0) {
        *removed = NULL;
        return ty_fail_memory(err);
    }
    int result = tree_remove(AT_FDCWD, *removed); /* that an earlier process of this number left */
    if (result == 0 && rename(run_path, *removed) < 0) result = -errno;
    return result < 0 ? fail(run_path, result, err) : 0;
}

int run_remove(const char *run_path, ty_error *err) {
    struct run_lock *lock = NULL;
    CLEANUP_FREE char *removed = NULL;
    int result = check(run_path, err);
    if (result >= 0) result = run_lock_take(run_path, &lock, err);
    if (result < 0) return result;
    result = take_away(run_path, &removed, err);
    bool renamed = result >= 0;
    if (renamed) result = tree_remove(AT_FDCWD, removed);
    if (renamed && result < 0) (void)fail(removed, result, err);
    run_lock_release(lock, renamed); /* its file went with the rest */
    return result;
}

/* ".removed-PID-NAME", as take_away gives it: what a user named else is not ours. */
static bool is_removed(const char *name) {
    const char *digits;
    if (!str_prefix(name, REMOVED_PREFIX, &digits)) return false;
    size_t n = strspn(digits, "0123456789");
    return n > 0 && digits[n] == '-' && digits[n + 1] != '\0';
}

int run_removals_finish(const char *storage_path, struct buffer *names, ty_error *err) {
    int result = 0;
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    if (directory == NULL) return err->code;
    DIR *stream = opendir(directory);
    if (stream == NULL) return 0;
    for (struct dirent *entry = readdir(stream); entry != NULL && result == 0; entry = readdir(stream)) {
        if (!is_removed(entry->d_name)) continue;
        result = tree_remove(dirfd(stream), entry->d_name);
        if (result < 0) (void)fail(entry->d_name, result, err);
        if (names->size > 0) buffer_text(names, ", ");
        utf8_escape(entry->d_name, strlen(entry->d_name), names);
    }
    (void)closedir(stream);
    return result;
}
