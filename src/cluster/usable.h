/* What the kernel lets this process use of the machine: cores and memory, with the limits of its control groups
 * (versions 1 and 2). `root` is put before every path read, "" for this machine; tests bring trees of their
 * own. */
#ifndef CLUSTER_USABLE_H
#define CLUSTER_USABLE_H

#include <stdint.h>

/* Cores in the affinity mask of this process. At least 1. */
int64_t usable_affinity_cores(void);

/* `cores`, or what the CPU quotas leave of them, rounded up. At least 1. */
int64_t usable_quota_cores(const char *root, int64_t cores);

/* Bytes: the machine's memory, or what the memory limits leave of it; 0 when unknown. */
int64_t usable_memory(const char *root);

#endif
