/* Whether the kernel killed a worker for want of memory: the memory cgroup's counter of such kills, before
 * and after. */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

struct oom {
    char directory[PATH_MAX]; /* of this process's memory cgroup; "": not found, nothing is ever told */
    bool v1;
    uint64_t kills; /* seen and accounted for */
};

void oom_init(struct oom *oom);

/* True when there was a kill that was not accounted for yet; accounts for it. Ask after a SIGKILL that was
 * not ours. */
bool oom_take(struct oom *oom);

/* The same without accounting for it: whom the kernel killed is not known. */
bool oom_happened(const struct oom *oom);

/* Accounts for all kills so far: those of an attempt are no cause in the next one. */
void oom_forget(struct oom *oom);

/* Appends "out of memory: limit 512 MiB, peak 498 MiB". */
void oom_describe(const struct oom *oom, long peak_kib, struct buffer *out);

#endif
