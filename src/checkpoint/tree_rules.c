/* What a checkpoint may hold. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tree.h"

int tree_check_entry(const char *name, const struct tree_entry *entry, ty_error *err) {
    mode_t mode = entry->status.st_mode;
    if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode))
        return ty_fail(err, TY_EUSAGE, "%s/%s is no file, directory or link: a checkpoint cannot hold it", name,
                       entry->path);
    if (!utf8_valid(entry->name, strlen(entry->name)))
        return ty_fail(err, TY_EUSAGE, "the name of %s/%s is not UTF-8: a checkpoint cannot hold it", name,
                       entry->path);
    if (str_prefix(entry->name, PART_PREFIX, NULL))
        return ty_fail(err, TY_EUSAGE,
                       "%s/%s has a name that Trainyard keeps for itself: a checkpoint cannot hold it", name,
                       entry->path);
    return 0;
}

static bool leads_inside(const char *target, int depth) {
    if (target[0] == '/') return false;
    bool named = false;
    for (const char *at = target; *at != '\0'; at += strspn(at, "/")) {
        size_t size = strcspn(at, "/");
        if (size == 2 && at[0] == '.' && at[1] == '.') {
            if (named || --depth < 0) return false;
        } else if (size != 1 || at[0] != '.') {
            named = true;
        }
        at += size;
    }
    return true;
}

int tree_check_link(const char *name, const struct tree_entry *entry, const char *target, ty_error *err) {
    if (!utf8_valid(target, strlen(target)))
        return ty_fail(err, TY_EUSAGE,
                       "the link %s/%s leads to a name that is not UTF-8: a checkpoint cannot hold it", name,
                       entry->path);
    if (leads_inside(target, entry->depth)) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "the link %s/%s leads to %s: in a checkpoint it must be relative and stay inside", name,
                   entry->path, target);
}

int tree_read_link(int at, const char *path, char target[PATH_MAX]) {
    ssize_t size = readlinkat(at, path, target, PATH_MAX - 1);
    if (size < 0) return -errno;
    target[size] = '\0';
    return 0;
}
