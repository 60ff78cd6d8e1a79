/* Walking a directory tree without following a link, by descriptors, so that nothing planted meanwhile leads
 * elsewhere. */
#ifndef CHECKPOINT_TREE_H
#define CHECKPOINT_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"

enum { TREE_DEPTH = 100 }; /* directories within each other; more is refused */

/* FOUND: something in a directory. LEAVE: a directory of which all entries have been found. */
enum tree_visit { TREE_FOUND, TREE_LEAVE };
enum { TREE_SKIP = 1 }; /* given back for a directory that is not to be entered */

struct tree_entry {
    int directory; /* descriptor of the directory that holds it, and its name there */
    const char *name;
    const char *path; /* from the top, without a leading slash */
    int depth;        /* directories between the top and it: 0 in the top itself */
    struct stat status;
};

typedef int tree_visitor(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err);

/* Visits everything below the directory `top` (kept open), in the order of the file system; `name` stands for
 * it in messages. Stops at the first negative value and returns it; otherwise 0. An entry that vanishes
 * meanwhile is passed over. */
int tree_walk(int top, const char *name, tree_visitor *visitor, void *context, ty_error *err);

/* Removes a tree and what is in it, past what cannot be removed; one that is not there is fine. 0 or -errno.
 * (remove.c) */
int tree_remove(int at, const char *name);
/* Removes what is in a directory, past what cannot be removed and but for its entry `spared`. 0 or -errno.
 * (remove.c) */
int tree_clear(int at, const char *name, const char *spared);

/* The same of a checkpoint in the open directory of its run, which loses its name at once: a name that is gone
 * leaves nothing that looks like a checkpoint, however far the removal of its files gets. (remove.c) */
int tree_take_away(int run, const char *name, uint64_t number);

/* Opens a directory: -errno with the path named when it is none, or a link where `follow` is false. */
int tree_open(int at, const char *path, bool follow, ty_error *err);

/* Opens a file for reading, never through a link, and never waiting for a pipe's other end; -errno. */
int tree_open_file(int at, const char *path);

/* Syncs an open directory; 0 or -errno. A file system that does not know this of directories (EINVAL) has no
 * surer way, and is no reason to give a checkpoint up. */
int tree_sync(int directory);

/* What may not be in a checkpoint: sockets, pipes and devices; names that are not UTF-8, and those that
 * are ours. TY_EUSAGE names it. */
int tree_check_entry(const char *name, const struct tree_entry *entry, ty_error *err);

/* A link may only lead inside: relative, ".." only at its start, and not above the top. Since every link obeys
 * this from the directory in which it lies, no path through several of them leads out. TY_EUSAGE names it. */
int tree_check_link(const char *name, const struct tree_entry *entry, const char *target, ty_error *err);

/* Where a link leads to, NUL-terminated; 0 or -errno. */
int tree_read_link(int at, const char *path, char target[PATH_MAX]);

#endif
