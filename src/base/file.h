/* Small things done with files. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"

/* The whole file appended to `out`; more than `limit` bytes is TY_EUSAGE, naming the limit. "-" is standard
 * input. */
int file_read(const char *path, size_t limit, struct buffer *out, ty_error *err);

/* Those of descriptors 0 to 2 that are closed become /dev/null, so that nothing which is opened later stands in
 * their place. */
void file_open_standard(void);

/* All bytes, through EINTR and short writes. 0, or -errno. Blocking descriptors only. */
int file_write_all(int fd, const void *bytes, size_t size);

/* A file that takes its name when it is whole. */
struct file_draft {
    int fd;             /* -1: closed, or given away */
    const char *path;   /* the caller's; outlives the draft */
    char *part;         /* "{path}.part-{pid}", owned; NULL: written in place */
    struct stat status; /* of the file that was closed: what file_remove_own knows it by */
};

/* Opens the draft beside `path`. Nothing that lies there is written into or followed, whoever planted it. 0, or
 * -errno. */
int file_draft_open(const char *path, mode_t mode, struct file_draft *draft);

/* Whether a link is there that neither the user nor root has made: it may have been put there for us to write
 * through. */
bool file_is_foreign_link(const char *path);

/* The same for a path that a user names for output: what is there and no regular file (a device, a pipe, a
 * link, as /dev/stdout is one) is written in place, since a rename would put a file where it was. Who may read
 * and write a file of the user's that is there stays the same, as far as `mode` goes. */
int file_draft_open_output(const char *path, mode_t mode, struct file_draft *draft);

/* Closes the draft: with `result` >= 0 it takes its name, otherwise nothing is left of it. `result`, or -errno
 * of what failed here. */
int file_draft_close(struct file_draft *draft, int result);

/* What a call for a hard link fails with where the file system has none, as object stores and shares of other
 * systems when they are mounted. */
bool file_has_no_links(int code);

/* Whether both tell of one file. The number of a file that is gone may be another's by now, unless somebody has
 * that file open. */
bool file_is_same(const struct stat *one, const struct stat *other);
/* And nobody has written to it in between: it is as large and as old. */
bool file_is_unchanged(const struct stat *one, const struct stat *other);

/* Removes what has this name, where that is still the file of which `made` was told: what somebody else has put
 * there since stays. 0, or -errno. */
int file_remove_own(const char *path, const struct stat *made);

/* Makes every missing directory of `path`. */
int file_make_directories(const char *path, mode_t mode, ty_error *err);

/* Where this user keeps what is of this machine alone: $XDG_RUNTIME_DIR/trainyard or /tmp/trainyard-UID, which
 * is made if asked for. -ENOENT; -EPERM where it is not safe. */
int file_private_directory(char path[PATH_MAX], bool make, ty_error *err);

/* The working directory of this process, in which its children begin. TY_ESTART, with what to do, when it was
 * deleted, may not be entered, or has a longer name than there is room for. */
int file_working_directory(char *directory, size_t size, ty_error *err);

/* Whether the file lies on a file system of this machine alone, where locks and mappings are the same for all
 * who have it open. One that is not known may be anything. */
bool file_is_local(int fd);

/* Absolute form of `path` (a leading ~/ is the home), which need not exist; the caller frees. NULL: see
 * errno. */
char *file_absolute(const char *path);

#endif
