/* Removal of what is no longer wanted. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "checkpoint/tree.h"

/* Goes on past what cannot be removed; a directory is made writable first. */
static int remove_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    (void)context, (void)err;
    bool directory = S_ISDIR(entry->status.st_mode);
    if (visit == TREE_LEAVE)
        (void)unlinkat(entry->directory, entry->name, AT_REMOVEDIR);
    else if (!directory)
        (void)unlinkat(entry->directory, entry->name, 0);
    else if ((entry->status.st_mode & S_IRWXU) != S_IRWXU &&
             fchmodat(entry->directory, entry->name, S_IRWXU, 0) < 0)
        return TREE_SKIP;
    return 0;
}

/* A rank that is being ended may still add a file behind the walk, hence the second one. 0 or -errno. */
int tree_remove(int at, const char *name) {
    enum { TRIES = 3 };
    for (int i = 0; i < TRIES; i++) {
        CLEANUP_FD int top = tree_open(at, name, false, NULL);
        if (top < 0) return top == -ENOENT ? 0 : top;
        (void)tree_walk(top, name, remove_entry, NULL, NULL);
        if (unlinkat(at, name, AT_REMOVEDIR) == 0) return 0;
    }
    return -errno;
}

void checkpoint_discard(const char *run_path, uint64_t number, int attempt) {
    CLEANUP(buffer_done) struct buffer staging = {0};
    checkpoint_staging_path(run_path, number, attempt, &staging);
    if (!staging.failed) (void)tree_remove(AT_FDCWD, staging.data);
}

void checkpoint_drop(const char *path) {
    (void)tree_remove(AT_FDCWD, path);
}

/* A name that is gone leaves nothing that looks like a checkpoint, however far the removal of its files gets. */
int checkpoint_remove(const char *run_path, const char *name, ty_error *err) {
    CLEANUP(buffer_done) struct buffer trash = {0};
    if (checkpoint_is_outside(name)) return 0;
    CLEANUP_FD int run = tree_open(AT_FDCWD, run_path, true, err);
    if (run < 0) return run;
    buffer_printf(&trash, ".%s" TRASH_MARK, name);
    if (trash.failed) return ty_fail_memory(err);
    int result = tree_remove(run, trash.data); /* of an earlier one of that name */
    if (result == 0 && renameat(run, name, run, trash.data) < 0) result = errno == ENOENT ? 0 : -errno;
    if (result == 0) result = tree_remove(run, trash.data);
    if (result == 0) return 0;
    return ty_fail(err, result, "cannot remove the checkpoint %s/%s: %s", run_path, name, strerror(-result));
}
