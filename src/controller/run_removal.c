/* Removal of a whole run. It holds the run's lock, so that no controller takes the run meanwhile, and renames
 * before it removes. The lock's file stays in the grave until the next run needs it: to rename it costs a tenth
 * of making one. Which runs may go is decided in cli/remove.c. */
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
#include "engine/rendezvous.h"

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

int run_remove_check(const char *run_path, ty_error *err) {
    /* Without O_NOATIME's power over the directory a superuser is one of another place: of a container, or of
     * a client whose server does not know it. */
    CLEANUP_FD int powerful = open(run_path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    if (powerful >= 0 && faccessat(AT_FDCWD, run_path, R_OK | W_OK | X_OK, AT_EACCESS) == 0) return 0;
    CLEANUP_FD int directory = open(run_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return fail(run_path, -errno, err);
    return run_directory_check_owner(directory, run_path, "only its owner or root can remove it", err);
}

/* -- graves: the names that directories have while their files go */

/* One step, within the file system: whoever lists the runs sees the whole run, or none. */
static int take_away(const char *run_path, char **grave, ty_error *err) {
    const char *name = strrchr(run_path, '/');
    if (asprintf(grave, "%.*s/" REMOVED_PREFIX "%d-%s", (int)(name - run_path), run_path, getpid(), name + 1) <
        0) {
        *grave = NULL;
        return ty_fail_memory(err);
    }
    int result = rename(run_path, *grave) < 0 ? -errno : 0;
    if (result == -ENOTEMPTY || result == -EEXIST) { /* an earlier process of this number left it */
        result = tree_remove(AT_FDCWD, *grave);
        if (result == 0 && rename(run_path, *grave) < 0) result = -errno;
    }
    return result < 0 ? fail(run_path, result, err) : 0;
}

/* Nothing should lie in it any longer. */
static void drop_grave(struct run_remover *remover) {
    if (remover->grave != NULL && rmdir(remover->grave) < 0) (void)tree_remove(AT_FDCWD, remover->grave);
    free(TAKE(remover->grave));
}

/* The lock of the run before, or one of its own where a file of the name lies there already, of a controller
 * that goes on or was killed. */
static int lock_run(struct run_remover *remover, const char *run_path, ty_error *err) {
    struct run_lock *fresh = NULL;
    if (remover->lock != NULL && run_lock_move(remover->lock, run_path) == 0) {
        drop_grave(remover);
        return 0;
    }
    int result = run_lock_take_to_remove(run_path, &fresh, err);
    if (result < 0) return result;
    run_remover_done(remover);
    remover->lock = fresh;
    return 0;
}

/* The lock's file goes to the grave with the run, and stays there as `remover->lock`; the descriptor is that of
 * the same file. */
int run_remover_remove(struct run_remover *remover, const char *run_path, ty_error *err) {
    char *grave = NULL;
    struct stat status;
    if (lstat(run_path, &status) < 0) return fail(run_path, -errno, err);
    if (S_ISLNK(status.st_mode))
        return ty_fail(err, TY_EUSAGE, "%s is a link: remove what it leads to and the link by hand", run_path);
    int result = run_remove_check(run_path, err);
    if (result >= 0) result = lock_run(remover, run_path, err);
    if (result < 0) return result;
    rendezvous_forget(run_path);
    result = take_away(run_path, &grave, err);
    if (result < 0) {
        run_lock_release(TAKE(remover->lock), false);
        free(grave);
        return result;
    }
    remover->grave = grave;
    (void)run_lock_follow(remover->lock, grave);
    result = tree_clear(AT_FDCWD, grave, LOCK_NAME);
    return result < 0 ? fail(grave, result, err) : 0;
}

void run_remover_done(struct run_remover *remover) {
    drop_grave(remover); /* held to the end, so that nobody takes it for one that was left */
    run_lock_release(TAKE(remover->lock), true);
}

int run_remove(const char *run_path, ty_error *err) {
    struct run_remover remover = {0};
    int result = run_remover_remove(&remover, run_path, err);
    run_remover_done(&remover);
    return result;
}

int run_removals_finish(const char *storage_path, struct buffer *names, ty_error *err) {
    int result = 0;
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    if (directory == NULL) return err->code;
    DIR *stream = opendir(directory);
    if (stream == NULL) return 0;
    for (struct dirent *entry = readdir(stream); entry != NULL && result == 0; entry = readdir(stream)) {
        /* ".removed-PID-NAME", as take_away gives it: what a user named else is not ours. */
        const char *digits;
        if (!str_prefix(entry->d_name, REMOVED_PREFIX, &digits)) continue;
        size_t n = strspn(digits, "0123456789");
        if (n == 0 || digits[n] != '-' || digits[n + 1] == '\0') continue;
        /* One that is at work, and may end at any time, leaves nothing, but for a moment an empty directory. */
        CLEANUP_FREE char *grave = str_format("%s/%s", directory, entry->d_name);
        if (grave == NULL || rmdir(grave) == 0 || errno == ENOENT || run_lock_is_removing(grave)) continue;
        int removed = tree_remove(dirfd(stream), entry->d_name);
        if (removed == -EACCES || removed == -EPERM) continue; /* it is for its own user to finish */
        if (removed < 0) result = fail(entry->d_name, removed, err);
        if (names->size > 0) buffer_text(names, ", ");
        utf8_escape(entry->d_name, strlen(entry->d_name), names);
    }
    (void)closedir(stream);
    return result;
}
