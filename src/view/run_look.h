/* A look at a storage path: what may be runs below it; or at one of these: whether there is a run in it, and
 * what its journal says. Looks are made in threads, as storage may hang, for good, and what lies elsewhere is
 * not to wait for it. */
#ifndef VIEW_RUN_LOOK_H
#define VIEW_RUN_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/duration.h"
#include "base/error.h"
#include "view/summary.h"

enum { RUN_LOOK_SECONDS = 5 };

/* What a run looks like from outside: when this is the same, and had settled, its journal says the same. */
struct run_files {
    struct stat file, log;
    bool held;         /* a controller that lives has its lock */
    int denied;        /* -errno: the directory cannot be looked into */
    nanoseconds since; /* when they were first seen so; monotonic */
    bool settled;      /* what was written to them could be read: they had been so for a while */
};

enum run_found {
    FOUND_NOTHING, /* no run */
    FOUND_SAME,    /* as `known`, which had settled */
    FOUND_NEWS,    /* a summary, or the error of one that cannot be read */
};

struct run_look {
    char *path;             /* owned */
    const char *name;       /* the end of the path */
    bool lists;             /* a storage path */
    struct run_files known; /* what is known already */
    /* Of one that is done: */
    char **names; /* n_names below the storage path, in no order; owned */
    size_t n_names;
    enum run_found found;
    char *real; /* the path, without links; owned */
    struct run_files files;
    struct view_summary summary;
    char *error; /* why it cannot be read; owned; NULL without, and where memory is short */
    bool failed; /* memory is */
    /* Under the lock of run_look.c: */
    bool begun, done, left;
};

enum run_look_state { LOOK_WAITS, LOOK_GOES_ON, LOOK_IS_DONE };

/* `known` NULL: of a storage path. NULL when memory is short. */
struct run_look *run_look_create(const char *path, const struct run_files *known);
/* One that goes on goes when it is done. NULL is fine. */
void run_look_release(struct run_look *look);
enum run_look_state run_look_state(const struct run_look *look);

/* Makes n looks that wait. After RUN_LOOK_SECONDS those that were begun are left to their threads, and go on;
 * the others still wait. */
int run_looks_make(struct run_look *const *looks, size_t n, ty_error *err);

#endif
