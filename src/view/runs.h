/* All runs below some storage paths, as a list that is kept and looked at again: a journal is read anew only
 * when its files changed, or had just changed when it was read. One that cannot be read, or whose storage does
 * not answer, stays in the list with the reason, and the others are shown; so it is with a storage path that
 * cannot be listed.
 *
 * A run's ID is a hash of its real path: what a browser sends is compared with the IDs that are known, and
 * never becomes a path. */
#ifndef VIEW_RUNS_H
#define VIEW_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "view/summary.h"

enum { VIEW_ID_SIZE = 17 }; /* 16 hex digits */

struct view_run {
    char id[VIEW_ID_SIZE];
    char *name, *path;           /* owned; the path is absolute and real */
    struct view_summary summary; /* of what the journal said last; empty where there is an error */
    char *error;                 /* owned; why it cannot be read, else NULL */
    uint64_t changed;            /* the list's cursor when the run last changed */
    bool there;                  /* its directory is; one that is gone stays for a day, to be told */
};

struct view_runs; /* opaque; one thread at a time has it in its hands */

/* `paths`: n storage paths, NULL among them is the default one. NULL when memory is short, or the default has
 * no place. Nothing is read yet. */
struct view_runs *view_runs_create(const char *const *paths, size_t n, ty_error *err);
void view_runs_destroy(struct view_runs *runs); /* NULL is fine */

/* Looks at all: 1 when something changed, 0, or an error where no storage path can be listed. It takes
 * RUN_LOOK_SECONDS where some run, or a storage path, begins to hang. A run that is quiet changes with each
 * minute. */
int view_runs_look(struct view_runs *runs, ty_error *err);
/* Counts changes: whoever was told at the same count knows all. */
uint64_t view_runs_cursor(const struct view_runs *runs);

/* Newest first; NULL behind the last. Borrowed until the next look. */
const struct view_run *view_runs_at(const struct view_runs *runs, size_t index);
size_t view_runs_count(const struct view_runs *runs);
/* Why the storage path of this index cannot be listed, NULL: it can; *path is NULL behind the last. Borrowed
 * likewise. */
const char *view_runs_storage_error(const struct view_runs *runs, size_t index, const char **path);

/* {"cursor", "runs": [{"id", "name", "state", "quiet_s", "workers", "nodes", "began", "seconds", "attempts",
 * "cause", "metrics", "exit_status"}], "unreadable": [{"id", "name", "error"}], "gone": [id]}: those that
 * changed since `after` (0: all), newest first. What is unreadable is told each time; a storage path is so
 * with its path as the name, and no ID (null). */
void view_runs_encode(const struct view_runs *runs, uint64_t after, struct buffer *out);

/* The ID of the run in a directory. False where the path leads nowhere. */
bool view_run_id(const char *path, char id[VIEW_ID_SIZE]);

#endif
