/* The directory of a run: named and made for its controller, found by name for whoever looks for one. */
#ifndef CONTROLLER_RUN_DIRECTORY_H
#define CONTROLLER_RUN_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "controller/run_lock.h"

/* "run-20260131-235959-a1b2": unique. */
void run_directory_make_name(char name[64]);
/* {storage_path}/{name}, absolute; the caller frees. NULL with the error. */
char *run_directory_path(const char *storage_path, const char *name, enum face face, ty_error *err);

/* Makes {path} and {path}/logs; with `resume` a directory that exists is gone on with, unless its owner or mode
 * forbid it (TY_EUSAGE), else it is TY_EEXISTS. `*existed` tells which. The run in it is taken, see
 * run_lock_take. A descriptor of the directory, the caller's. Messages are in the words of the face. */
int run_directory_open(const char *path, bool resume, enum face face, bool *existed, struct run_lock **lock,
                       ty_error *err);
/* Removes one that was made and in which nothing was written yet; its lock was released. */
void run_directory_remove(const char *path);

/* The run's directory, which has a journal; the caller frees. NULL with TY_EUSAGE, which names the nearest
 * run. */
char *run_directory_find(const char *storage_path, const char *name, ty_error *err);

/* For who looks at a run for a while, in which it may be removed, and another one be made under its name: the
 * descriptor of its directory, or -1; whether that still has the path. */
int run_directory_hold(const char *path);
bool run_directory_is_still(int held, const char *path);

/* Names of all runs below the storage path (NULL: the default), *n of them, newest first; none when it does not
 * exist. The caller gives them back to run_directory_names_free. */
int run_directory_names(const char *storage_path, char ***names, size_t *n, ty_error *err);
/* Names of all directories in one (absolute) that may be runs, in no order: none of them was looked at, so that
 * one that hangs holds up nothing. */
int run_directory_candidates(const char *storage_path, char ***names, size_t *n, ty_error *err);
void run_directory_names_free(char **names, size_t n);

/* The name of the run that was begun last, the caller's to free. NULL: there is none, TY_EUSAGE. */
char *run_directory_latest(const char *storage_path, ty_error *err);

/* The storage path (NULL: the default), absolute; the caller frees. */
char *run_directory_storage(const char *storage_path, ty_error *err);

/* The other run whose name is nearest to `name` (a slip of a few letters), the caller's to free; NULL: none is
 * near. */
char *run_directory_nearest(const char *storage_path, const char *name);

/* The rank of "rank-3{ending}", a file of a run, as whoever made it wrote it; -1: it is another name. */
int run_directory_rank(const char *name, const char *ending);

/* 0 when the run's directory is this user's own, and one that its owner may read, write and enter; else
 * TY_EUSAGE with the owner, the mode, and `what` (of another user's: "only its owner can ..."). */
int run_directory_check_owner(int directory, const char *path, const char *what, ty_error *err);

/* What a run takes on disk, and how it goes from there, with all that lies in its directory. */

/* Bytes as the file system counts them: blocks, a file with several names once for each. */
struct run_disk {
    uint64_t bytes; /* of all */
    uint64_t logs, checkpoints;
};

/* What lies below the run's directory; links are not followed. */
int run_disk_read(const char *run_path, struct run_disk *disk, ty_error *err);

/* Whether the run's directory is this user's, so that it may remove the run (root may remove each): somebody
 * else who may write to the directory would remove a part of the run. Negative: no. */
int run_remove_check(const char *run_path, ty_error *err);

/* Removes the run's directory, unless a controller has the run (TY_EEXISTS, and who). The run is gone at once,
 * under a name that begins with a dot, before its files go: a removal that is killed leaves no half run. Links
 * are removed and not followed; a run whose directory is a link itself is refused, and what run_remove_check
 * refuses. */
int run_remove(const char *run_path, ty_error *err);

/* Removes many runs one after the other, each as run_remove does, with one lock that goes on from run to run.
 * Zero-initialised; several may be at work, in threads of their own, on runs that differ. */
struct run_remover {
    struct run_lock *lock; /* NULL: none yet */
    char *grave;           /* of the run that was removed last, where the lock's file lies; owned */
};

int run_remover_remove(struct run_remover *remover, const char *run_path, ty_error *err);
void run_remover_done(struct run_remover *remover);

/* Removes what removals that were killed left in a storage path; its names, escaped, are appended to
 * `names`. */
int run_removals_finish(const char *storage_path, struct buffer *names, ty_error *err);

#endif
