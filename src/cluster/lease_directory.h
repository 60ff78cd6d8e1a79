/* The lease directory: found or made, and refused where it is not safe. For lease.c and lease_watch.c. */
#ifndef CLUSTER_LEASE_DIRECTORY_H
#define CLUSTER_LEASE_DIRECTORY_H

#include <stdbool.h>

#include "base/error.h"

enum { LEASE_FILE_MAX = 1024 * 1024 }; /* bytes; a bigger file is not ours */

/* $TRAINYARD_LEASE_DIR, else /tmp. */
const char *lease_directory_path(void);

/* An open directory that exists and is safe; the caller closes. */
int lease_directory_open(ty_error *err);

/* Opens a lease file for reading; -1 when it is not a regular file or not to be had. */
int lease_file_open(int directory, const char *name);

/* A lease is locked by its owner's process with the whole file (OFD locks), which takes a descriptor for
 * writing: nobody else can hold or keep that lock. 0, or -1 with errno. */
int lease_file_lock(int fd);
/* True while some process holds the lease. The question takes no lock. */
bool lease_file_held(int fd);

#endif
