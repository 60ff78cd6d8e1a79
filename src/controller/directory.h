/* The run's directory: made once, locked while its controller lives. */
#ifndef CONTROLLER_DIRECTORY_H
#define CONTROLLER_DIRECTORY_H

#include <stdbool.h>

#include "base/error.h"

/* Makes {path} and {path}/logs; with `resume` a directory that exists is gone on with, unless its owner or mode forbid it
 * (TY_EUSAGE), else it is TY_EEXISTS. `*existed` tells which. The descriptor returned holds the lock (flock) until it is closed, or the process
 * ends; TY_EEXISTS too when another controller of the run lives. */
int directory_open(const char *path, bool resume, bool *existed, ty_error *err);
/* Removes one that was made and in which nothing was written yet. */
void directory_remove(const char *path);

#endif
