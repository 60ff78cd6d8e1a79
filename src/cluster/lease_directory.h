/* The lease directory: found or made, and refused where it is not safe. For lease.c and lease_watch.c. */
#ifndef CLUSTER_LEASE_DIRECTORY_H
#define CLUSTER_LEASE_DIRECTORY_H

#include <stdbool.h>

#include "base/error.h"

#define LEASE_SUFFIX ".lease"

enum { LEASE_FILE_MAX = 1024 * 1024 }; /* bytes; a bigger file is not ours */

/* $TRAINYARD_LEASE_DIR, else /tmp/trainyard-leases. */
const char *lease_directory_path(void);

/* An open directory that exists and is safe; the caller closes. */
int lease_directory_open(ty_error *err);

/* Opens a lease file for reading; -1 when it is not a regular file or not to be had. */
int lease_file_open(int directory, const char *name);

/* True while some process holds the lease. The question takes a shared lock for a moment, so askers do not disturb each
 * other; the holder's is exclusive and there before anybody can ask. */
bool lease_file_held(int fd);

#endif
