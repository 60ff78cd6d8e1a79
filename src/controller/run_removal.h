/* What a run takes on disk, and how it goes from there, with all that lies in its directory. */
#ifndef CONTROLLER_RUN_REMOVAL_H
#define CONTROLLER_RUN_REMOVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Bytes as the file system counts them: blocks, a file with several names once for each. */
struct run_disk {
    uint64_t bytes; /* of all */
    uint64_t logs, checkpoints;
};

/* What lies below the run's directory; links are not followed. */
int run_disk_read(const char *run_path, struct run_disk *disk, ty_error *err);

/* Removes the run's directory, unless a controller has the run (TY_EEXISTS, and who). The run is gone at once,
 * under a name that begins with a dot, before its files go: a removal that is killed leaves no half run. Links
 * are removed and not followed; a run whose directory is a link itself is refused. */
int run_remove(const char *run_path, ty_error *err);

/* Removes what removals that were killed left in a storage path; how many there were. */
int run_removals_finish(const char *storage_path, ty_error *err);

#endif
