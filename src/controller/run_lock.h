/* Who drives a run: {run}/run.lock, there while a controller does, and left behind by one that was killed.
 *
 * The file is its owner's alone (0600), so that nobody else can hold its lock, which an open file of the
 * controller has (F_OFD_SETLK) and the kernel takes back with it. It says who the holder is: process, its
 * start, boot of the machine, host. A lock may be unknown to the file system, or to other machines that mount
 * it: there a holder of this machine is looked up among its processes, and one elsewhere lives as long as it
 * touches the file, which it does every 5 s where the file system is not local. On a local one nothing is
 * written while the run goes on; who may not open the file sees a shared lock of the run's directory, which
 * says nothing to anybody else. */
#ifndef CONTROLLER_RUN_LOCK_H
#define CONTROLLER_RUN_LOCK_H

#include <stdbool.h>

#include "base/error.h"

#include "checkpoint/checkpoint.h"

struct run_lock; /* opaque */

/* Takes the run in the directory `path`. TY_EEXISTS where another controller has it, and says who; -ENOENT
 * where the directory is gone, as of a run that somebody was about to remove, for whom the call waits some
 * seconds. */
int run_lock_take(const char *path, struct run_lock **out, ty_error *err);
/* The same for whoever is about to remove the run, and drives it no longer. */
int run_lock_take_to_remove(const char *path, struct run_lock **out, ty_error *err);
/* The lock's open file: the run is held as long as a copy of the descriptor is open. Borrowed. */
int run_lock_fd(const struct run_lock *lock);
/* What stands in it: who reads the same in the file of this name elsewhere has the same storage. Borrowed. */
const char *run_lock_text(const struct run_lock *lock);
/* Another controller has taken the run over, as it may where no lock is seen and the holder had stood still: a
 * thread looks every 5 s. */
bool run_lock_is_lost(struct run_lock *lock);
/* The same, looked at now, by whoever is about to change something of the run at `run_path`: TY_EEXISTS. `fd`
 * is the lock's, which may have been closed by somebody else (-EBADF). For any thread. */
int run_lock_check(int fd, const char *run_path, ty_error *err);
/* Lets go; the file goes, unless a copy of the descriptor holds the run on, or with `leave`, where the storage
 * does not answer. NULL is fine. */
void run_lock_release(struct run_lock *lock, bool leave);

/* The lock goes on to the run at `path`, where no file of the name may lie, and is of that one from then on; a
 * file system that cannot do that in one step does it not at all. 0, or -errno, and nothing changed. */
int run_lock_move(struct run_lock *lock, const char *path);
/* The directory of the run has another name now. */
int run_lock_follow(struct run_lock *lock, const char *path);

/* Whether a controller has the run at `path`, as far as the caller may see. Takes no lock. */
bool run_lock_is_held(const char *path);
/* The same of one that lives: what holds the lock of one that is dead may be on its way out, for which
 * run_lock_take waits. */
bool run_lock_is_driven(const char *path);
/* Whether somebody who lives has taken it to remove it. */
bool run_lock_is_removing(const char *path);
/* TY_EEXISTS: the run goes on, and who drives it. */
int run_lock_refuse(const char *path, ty_error *err);
/* Sends SIGINT to the controller that has the run at `path`, and to no process that came to its number; SIGTERM
 * where that one ignores SIGINT, as what a shell starts with "&" does. 1: it was sent; 0: no controller has the
 * run; TY_EEXISTS where the controller is on another machine, in another container or another user's. */
int run_lock_interrupt(const char *path, ty_error *err);

#endif
