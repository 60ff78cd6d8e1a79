/* Taking over a directory that its owner gives away: by a rename, which costs the same whatever is in it. On
 * another file system it stays beside where it lay, and a link in the run's directory leads there, so that it
 * does not stay for ever when everybody dies. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mark.h"
#include "checkpoint/tree.h"

/* A directory above with a journal in it is a run's. Without memory for a path the answer is yes: that costs a
 * copy, and loses nothing. */
bool checkpoint_is_of_run(const char *path) {
    CLEANUP_FREE char *above = realpath(path, NULL);
    for (char *slash; above != NULL && (slash = strrchr(above, '/')) != NULL;) {
        CLEANUP(buffer_done) struct buffer journal = {0};
        *slash = '\0';
        buffer_printf(&journal, "%s/" JOURNAL_NAME, above);
        if (journal.failed || access(journal.data, F_OK) == 0) return true;
    }
    return false;
}

static bool move(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0;
}

/* The link is there first: whoever clears up finds by it what lies elsewhere. */
static bool move_here(const char *from, const char *here, const char *near) {
    if (symlink(here, near) < 0) return false;
    if (move(from, here)) return true;
    (void)unlink(near);
    return false;
}

/* The random part is the same in both names: a link that leads to a directory with other digits is not ours to
 * follow (locate). */
int checkpoint_take(const char *source, const char *staging, char **taken, ty_error *err) {
    CLEANUP_FREE char *resolved = realpath(source, NULL);
    /* The directory that holds the staging directory, which need not exist, without links. */
    CLEANUP_FREE char *above = strdup(staging);
    char *slash = above != NULL ? strrchr(above, '/') : NULL;
    if (slash != NULL) *slash = '\0';
    CLEANUP_FREE char *run = slash != NULL ? realpath(above, NULL) : NULL;
    *taken = NULL;
    if (resolved == NULL || run == NULL)
        return ty_fail(err, -errno, "cannot reach %s: %s", resolved == NULL ? source : staging,
                       strerror(errno));
    const char *rest;
    bool holds_run =
        str_prefix(run, resolved, &rest) && (*rest == '/' || *rest == '\0' || str_equal(resolved, "/"));
    if (holds_run)
        return ty_fail(err, TY_EUSAGE, "the checkpoint %s holds the directory %s into which it is copied",
                       source, staging);
    /* What others still rely on is not moved: a directory that is reached through a link, or one of a run,
     * such as a committed checkpoint. */
    struct stat status;
    if (!(lstat(source, &status) == 0 && S_ISDIR(status.st_mode) && !checkpoint_is_of_run(source))) return 0;
    /* New names for it: beside the staging directory, and beside itself. */
    unsigned number = 0;
    bool drawn = getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number;
    int length = (int)(strrchr(resolved, '/') + 1 - resolved);
    CLEANUP_FREE char *near = drawn ? str_format("%s" GIVEN_MARK "%08x", staging, number) : NULL;
    CLEANUP_FREE char *here = drawn ? str_format("%.*s" GIVEN_PREFIX "%08x", length, resolved, number) : NULL;
    if (near == NULL || here == NULL) return ty_fail_memory(err);
    if (move(resolved, near) || (errno == EXDEV && move_here(resolved, here, near))) *taken = TAKE(near);
    return 0;
}

/* The directory lies at its name, or where a link of that name leads, when that has the same random part;
 * NULL where it leads elsewhere. */
static char *locate(const char *taken) {
    char target[PATH_MAX];
    const char *random, *number = strrchr(taken, '-') + 1;
    if (tree_read_link(AT_FDCWD, taken, target) < 0) return strdup(taken);
    const char *name = strrchr(target, '/');
    bool is_given =
        target[0] == '/' && str_prefix(name + 1, GIVEN_PREFIX, &random) && str_equal(random, number);
    return is_given ? strdup(target) : NULL;
}

int checkpoint_drop_given(const char *taken) {
    CLEANUP_FREE char *path = locate(taken);
    int result = path == NULL ? 0 : tree_remove(AT_FDCWD, path);
    return result < 0 || unlink(taken) == 0 || errno == ENOENT ? result : -errno;
}

void checkpoint_give_back(const char *taken, const char *original) {
    CLEANUP_FREE char *path = locate(taken);
    if (path != NULL) (void)move(path, original);
    (void)checkpoint_drop_given(taken);
}
