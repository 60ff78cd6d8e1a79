/* Removal of checkpoints and of what was half written. A directory is first renamed to a name that no reader
 * takes for a checkpoint, and then emptied: what is interrupted is finished by the next removal. Links are
 * removed and never followed; which checkpoints go is decided elsewhere (run/retention.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mark.h"
#include "checkpoint/tree.h"

struct tree_clearing {
    const char *spared; /* an entry of the top; or NULL */
    int result;         /* of the first thing that could not be removed */
};

/* Goes on past what cannot be removed; a directory is made writable first. */
static int remove_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    struct tree_clearing *clearing = context;
    int result = 0, skip = 0;
    (void)err;
    if (clearing->spared != NULL && entry->depth == 0 && str_equal(entry->name, clearing->spared))
        return TREE_SKIP;
    if (visit == TREE_LEAVE) {
        result = unlinkat(entry->directory, entry->name, AT_REMOVEDIR);
    } else if (!S_ISDIR(entry->status.st_mode)) {
        result = unlinkat(entry->directory, entry->name, 0);
    } else if ((entry->status.st_mode & S_IRWXU) != S_IRWXU) {
        result = fchmodat(entry->directory, entry->name, S_IRWXU, 0);
        skip = result < 0 ? TREE_SKIP : 0;
    }
    if (result < 0 && errno != ENOENT && clearing->result == 0) clearing->result = -errno;
    return skip;
}

int tree_clear(int at, const char *name, const char *spared) {
    struct tree_clearing clearing = {.spared = spared};
    CLEANUP_FD int top = tree_open(at, name, false, NULL);
    if (top < 0) return top;
    int result = tree_walk(top, name, remove_entry, &clearing, NULL);
    if (result == TY_EUSAGE) result = -ENOTEMPTY; /* nested too deep */
    return clearing.result < 0 ? clearing.result : result;
}

/* A rank that is being ended may still add a file behind the walk, hence the second one. */
int tree_remove(int at, const char *name) {
    enum { REMOVE_TRIES = 3 };
    int result = 0;
    for (int i = 0; i < REMOVE_TRIES; i++) {
        result = tree_clear(at, name, NULL);
        if (result == -ENOENT || unlinkat(at, name, AT_REMOVEDIR) == 0) return 0;
        if (result == 0) result = -errno;
    }
    return result;
}

void checkpoint_drop(const char *path) {
    (void)tree_remove(AT_FDCWD, path);
}

/* The manifest goes with the name, since what comes to have the name next is another. */
int tree_take_away(int run, const char *name, uint64_t number) {
    char trash[CHECKPOINT_NAME_SIZE + 16];
    mark_trash_name(number, trash);
    int result = tree_remove(run, trash); /* an earlier try */
    if (result == 0) manifest_put_back(run, name);
    if (result == 0 && renameat(run, name, run, trash) < 0) result = errno == ENOENT ? 0 : -errno;
    return result == 0 ? tree_remove(run, trash) : result;
}

/* What lies under the name by now is looked at first: the user may have put another directory there. One that
 * is gone has perhaps left its files under the name of what is removed, which go as well. */
int checkpoint_remove(const char *run_path, const struct checkpoint_mark *mark, ty_error *err) {
    struct stat status;
    if (checkpoint_is_place(mark->name)) return 0;
    CLEANUP_FD int run = tree_open(AT_FDCWD, run_path, true, err);
    if (run < 0) return run;
    bool there = fstatat(run, mark->name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && mark_find(run, mark->name, mark->run).number != mark->number)
        return ty_fail(err, TY_EUSAGE,
                       "%s/%s is no longer kept, but stays: it is not what this run made as checkpoint %llu",
                       run_path, mark->name, (unsigned long long)mark->number);
    int result = tree_take_away(run, mark->name, mark->number);
    if (result == 0) return 0;
    return ty_fail(err, result, "cannot remove the checkpoint %s/%s: %s", run_path, mark->name,
                   strerror(-result));
}
