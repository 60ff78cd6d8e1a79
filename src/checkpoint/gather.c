/* Several ranks bring their files into one staging directory. Each copies into a directory of its own; the
 * first one's becomes the staging directory by one rename, whatever is in it, and the others' entries are moved
 * there without replacing. So what stands there is complete and can be compared, whoever put it there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "checkpoint/copy.h"

static int fail_conflict(const struct copy *copy, const char *path, ty_error *err) {
    return ty_fail(
        err, TY_EUSAGE,
        "%s is in the checkpoint of another rank with other content (this rank's is %s/%s): give files that"
        " differ a name of their own in each rank",
        path, copy->source, path);
}

/* 1, 0 when something stands there, -errno. Where the file system knows no rename without replacing, a hard
 * link does the same. Where it knows neither, two ranks that bring other content at one moment are told apart
 * by their lists, when the checkpoint is published. */
static int move(const struct copy *copy, const char *path) {
    if (renameat2(copy->own, path, copy->to, path, RENAME_NOREPLACE) == 0) return 1;
    if (errno == EINVAL && linkat(copy->own, path, copy->to, path, 0) == 0)
        return 1; /* the other name goes with its directory */
    if (file_has_no_links(errno)) {
        if (faccessat(copy->to, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return 0;
        if (renameat(copy->own, path, copy->to, path) == 0) return 1;
    }
    return errno == EEXIST ? 0 : -errno;
}

static int fail_move(const struct copy *copy, const char *path, int code, ty_error *err) {
    return ty_fail(err, -code, "cannot move %s into %s: %s", path, copy->staging, strerror(code));
}

static int merge_directory(struct copy *copy, struct copied *copied, ty_error *err) {
    struct stat mine, there;
    if (fstatat(copy->own, copied->path, &mine, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_move(copy, copied->path, errno, err);
    if (mkdirat(copy->to, copied->path, mine.st_mode & 0777) == 0) {
        copied->state = COPIED_MINE;
        return 0;
    }
    if (errno != EEXIST) return fail_move(copy, copied->path, errno, err);
    bool equal = fstatat(copy->to, copied->path, &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(there.st_mode);
    return equal ? 0 : fail_conflict(copy, copied->path, err);
}

/* What stands there is whole, as it came by a rename: it can be compared, whichever rank brought it. */
static int merge(struct copy *copy, struct copied *copied, ty_error *err) {
    if (copied->directory) return merge_directory(copy, copied, err);
    int moved = move(copy, copied->path);
    if (moved < 0) return fail_move(copy, copied->path, -moved, err);
    if (moved == 1) {
        copied->state = COPIED_MINE;
        return 0;
    }
    bool equal;
    if (copied->target != NULL) {
        char target[PATH_MAX];
        equal = tree_read_link(copy->to, copied->path, target) == 0 && str_equal(target, copied->target);
    } else {
        struct digest there;
        CLEANUP_FD int fd = tree_open_file(copy->to, copied->path);
        equal = fd >= 0 && bytes_digest(&copy->bytes, fd, &there) == 0 && digest_equal(&there, &copied->digest);
    }
    if (equal) return 0;
    if (!copy->may_differ) return fail_conflict(copy, copied->path, err);
    copied->state = COPIED_GAVE_WAY;
    if (copy->kept.code == 0)
        (void)ty_fail(&copy->kept, TY_EUSAGE,
                      "%s differs between the ranks: the one that came first is kept; give files that differ a"
                      " name of their own in each rank",
                      copied->path);
    return 0;
}

/* The first rank costs one rename, however many files it has. Entries come in the order of the walk, a
 * directory before what is in it, so each finds its directory there. */
int copy_gather(struct copy *copy, const char *own, ty_error *err) {
    if (renameat2(AT_FDCWD, own, AT_FDCWD, copy->staging, RENAME_NOREPLACE) == 0) {
        copy->to = TAKE_FD(copy->own);
        return 0;
    }
    /* EINVAL: the file system knows no rename without replacing, and all ranks move their entries one by one.
     */
    bool exists = errno == EEXIST || (errno == EINVAL && (mkdir(copy->staging, 0755) == 0 || errno == EEXIST));
    if (!exists) return ty_fail(err, -errno, "cannot make directory %s: %s", copy->staging, strerror(errno));
    copy->to = tree_open(AT_FDCWD, copy->staging, false, err);
    if (copy->to < 0) return copy->to;
    for (size_t i = 0; i < copy->n; i++)
        copy->copied[i].state = COPIED_SHARED; /* until it turns out to be new */
    int result = 0;
    for (size_t i = 0; result == 0 && i < copy->n; i++)
        result = merge(copy, &copy->copied[i], err);
    return result;
}

void copy_withdraw(const struct copy *copy) {
    for (size_t i = copy->n; i-- > 0;)
        if (copy->copied[i].state == COPIED_MINE)
            (void)unlinkat(copy->to, copy->copied[i].path, copy->copied[i].directory ? AT_REMOVEDIR : 0);
}
