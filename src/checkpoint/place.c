/* Places of a user's as checkpoints. Directories are compared by what they are, not by their names: links,
 * steps upwards and mounts lead to the run's own by many paths. What lies in such a place is the user's: no
 * file of it is opened or removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mark.h"
#include "checkpoint/tree.h"

struct directory {
    dev_t device;
    ino_t number;
};

/* A directory, the one that holds it, and so on up to the root. */
struct lineage {
    struct directory *of;
    size_t n;
};

static void lineage_done(struct lineage *lineage) {
    free(lineage->of);
}

static bool holds(const struct lineage *lineage, const struct stat *status) {
    for (size_t i = 0; i < lineage->n; i++)
        if (lineage->of[i].device == status->st_dev && lineage->of[i].number == status->st_ino) return true;
    return false;
}

/* 0 or -errno. */
static int trace(const char *path, struct lineage *lineage) {
    struct stat status;
    CLEANUP_FD int at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (;;) {
        if (at < 0 || fstat(at, &status) < 0) return -errno;
        if (holds(lineage, &status)) return 0; /* the root holds itself */
        if (ARRAY_GROW(lineage->of, lineage->n) < 0) return -ENOMEM;
        lineage->of[lineage->n++] = (struct directory){status.st_dev, status.st_ino};
        int above = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC), code = errno;
        (void)close(at);
        at = above;
        errno = code;
    }
}

struct look {
    const char *run_path, *run, *place;
    const struct lineage *lineage;
};

/* An entry of the run's directory through which the place is reached must be nobody's but the user's. */
static int look_at(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    const struct look *look = context;
    int64_t attempt;
    (void)visit;
    if (!S_ISDIR(entry->status.st_mode) || !holds(look->lineage, &entry->status)) return TREE_SKIP;
    uint64_t number = mark_find(entry->directory, entry->name, look->run).number;
    if (number > 0)
        return ty_fail(
            err, TY_EUSAGE,
            "the place %s is in %s/%s, which is checkpoint %llu of the run and goes when it is no longer kept: "
            "report a directory of your own, or have it copied",
            look->place, look->run_path, entry->name, (unsigned long long)number);
    if (mark_is_reserved(entry->name) || mark_form(entry->name, &attempt) != FORM_OTHER)
        return ty_fail(err, TY_EUSAGE,
                       "the place %s is in %s/%s, which is the run's own: report a directory of your own",
                       look->place, look->run_path, entry->name);
    return TREE_SKIP;
}

/* Neither the run's directory nor one above it can be a checkpoint: its removal would take the run. What lies
 * in the run's directory is asked entry by entry (look_at). */
static int check_run(const struct look *look, ty_error *err) {
    struct stat run, place;
    CLEANUP(lineage_done) struct lineage above = {0};
    CLEANUP_FD int top = tree_open(AT_FDCWD, look->run_path, true, err);
    if (top < 0) return top;
    int result = trace(look->run_path, &above);
    if (result == 0 && (fstat(top, &run) < 0 || stat(look->place, &place) < 0)) result = -errno;
    if (result < 0) return ty_fail(err, result, "cannot look at %s: %s", look->run_path, strerror(-result));
    bool same = file_is_same(&run, &place);
    if (same || holds(&above, &place))
        return ty_fail(err, TY_EUSAGE, "the place %s %s: report a directory of your own", look->place,
                       same ? "is the run's own directory" : "holds the run's directory, journal and logs");
    return tree_walk(top, look->run_path, look_at, (void *)look, err);
}

static int check_filled(const char *place, ty_error *err) {
    DIR *stream = opendir(place);
    if (stream == NULL) return ty_fail(err, TY_EUSAGE, "cannot read the place %s: %s", place, strerror(errno));
    const struct dirent *entry = readdir(stream);
    while (entry != NULL && (str_equal(entry->d_name, ".") || str_equal(entry->d_name, "..")))
        entry = readdir(stream);
    (void)closedir(stream);
    return entry != NULL ? 0 : ty_fail(err, TY_EUSAGE, "the place %s is empty: no checkpoint is there", place);
}

int checkpoint_check_place(const char *run_path, const char *run, const char *place, ty_error *err) {
    CLEANUP(lineage_done) struct lineage lineage = {0};
    if (checkpoint_is_address(place)) return 0;
    int result = trace(place, &lineage);
    if (result == -ENOTDIR)
        return ty_fail(err, TY_EUSAGE, "the place %s is no directory: a checkpoint is one", place);
    if (result < 0) return ty_fail(err, TY_EUSAGE, "cannot look at the place %s: %s", place, strerror(-result));
    result = check_run(&(struct look){run_path, run, place, &lineage}, err);
    return result < 0 ? result : check_filled(place, err);
}
