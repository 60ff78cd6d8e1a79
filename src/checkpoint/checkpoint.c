/* Names of checkpoints, and their removal. */
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/tree.h"

#define NAME_PREFIX "checkpoint_"
#define STAGING_MARK ".attempt-"

void checkpoint_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE]) {
    (void)snprintf(name, CHECKPOINT_NAME_SIZE, NAME_PREFIX "%06" PRIu64, number);
}

void checkpoint_staging_path(const char *run_path, uint64_t number, int attempt, struct buffer *out) {
    char name[CHECKPOINT_NAME_SIZE];
    checkpoint_name(number, name);
    buffer_printf(out, "%s/.%s" STAGING_MARK "%d", run_path, name, attempt);
}

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
static int remove_tree(int at, const char *name) {
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
    if (!staging.failed) (void)remove_tree(AT_FDCWD, staging.data);
}

struct sweep {
    const char *run_path;
    uint64_t last;
};

/* Of the two kinds of names, only such as this file makes. */
static bool is_left_over(const char *name, uint64_t last) {
    int64_t number;
    const char *digits = NULL;
    if (str_prefix(name, "." NAME_PREFIX, &digits)) return strstr(digits, STAGING_MARK) != NULL;
    if (!str_prefix(name, NAME_PREFIX, &digits)) return false;
    char made[CHECKPOINT_NAME_SIZE];
    if (!str_to_int64(digits, 0, INT64_MAX, &number)) return false;
    checkpoint_name((uint64_t)number, made);
    return str_equal(made, name) && (uint64_t)number > last;
}

static int sweep_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    const struct sweep *sweep = context;
    (void)visit;
    if (!S_ISDIR(entry->status.st_mode) || !is_left_over(entry->name, sweep->last)) return TREE_SKIP;
    int result = remove_tree(entry->directory, entry->name);
    if (result < 0)
        return ty_fail(err, result, "cannot remove %s/%s, which a killed run left: %s", sweep->run_path,
                       entry->name, strerror(-result));
    return 0;
}

int checkpoint_sweep(const char *run_path, uint64_t last, ty_error *err) {
    struct sweep sweep = {run_path, last};
    CLEANUP_FD int top = tree_open(AT_FDCWD, run_path, true, err);
    if (top < 0) return top;
    return tree_walk(top, run_path, sweep_entry, &sweep, err);
}
