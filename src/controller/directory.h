/* The run's directory: made once, and its controller's while that lives. */
#ifndef CONTROLLER_DIRECTORY_H
#define CONTROLLER_DIRECTORY_H

#include <stdbool.h>

#include "base/error.h"
#include "controller/run_lock.h"

/* Makes {path} and {path}/logs; with `resume` a directory that exists is gone on with, unless its owner or mode
 * forbid it (TY_EUSAGE), else it is TY_EEXISTS. `*existed` tells which. The run in it is taken, see
 * run_lock_take. A descriptor of the directory, the caller's. */
int directory_open(const char *path, bool resume, bool *existed, struct run_lock **lock, ty_error *err);
/* Removes one that was made and in which nothing was written yet; its lock was released. */
void directory_remove(const char *path);

#endif
