/* Reads affinity, /proc/meminfo and the control groups. A limit may be set on any group from ours up to the
 * root, so all of them are read and the least counts. Inside a container our group's path may be that of the
 * host and absent here: then the root of the mount is the container's own. */
#include "cluster/cluster.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/process.h"
#include "base/str.h"

enum { PATH_SIZE = 4096, FILE_LIMIT = 1024 * 1024, MOST_CPUS = 1 << 20 };

/* The kernel refuses a set that is smaller than its own, whose size it does not tell: it is found by
 * doubling. */
int64_t usable_affinity_cores(void) {
    for (size_t n = 1024; n <= MOST_CPUS; n *= 2) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (set == NULL) return 1;
        int rc = sched_getaffinity(0, CPU_ALLOC_SIZE(n), set);
        int count = rc == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(n), set) : 0;
        bool too_small = rc < 0 && errno == EINVAL;
        CPU_FREE(set);
        if (!too_small) return count > 0 ? count : 1;
    }
    return 1;
}

static bool read_text(const char *path, struct buffer *out) {
    return file_read(path, FILE_LIMIT, out, NULL) >= 0 && !out->failed && buffer_reserve(out, 1) != NULL &&
           (out->data[out->size] = '\0', true);
}

/* -- control groups -- */

/* A limit as one file or two tell it: the least one found so far, in `*least`. */
typedef void read_limit(const char *directory, double *least);

static bool read_number(const char *directory, const char *file, double *number) {
    char path[PATH_SIZE];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "%s/%s", directory, file);
    if (!read_text(path, &text)) return false;
    text.data[strcspn(text.data, "\n")] = '\0';
    return str_to_double(text.data, number);
}

static void lower(double *least, double limit) {
    if (limit >= 0 && limit < *least) *least = limit;
}

static void read_cpu_v2(const char *directory, double *least) {
    char path[PATH_SIZE];
    double quota, period;
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "%s/cpu.max", directory);
    if (read_text(path, &text) && sscanf(text.data, "%lf %lf", &quota, &period) == 2 && period > 0)
        lower(least, quota / period); /* "max 100000" gives no number */
}

static void read_cpu_v1(const char *directory, double *least) {
    double quota, period;
    if (read_number(directory, "cpu.cfs_quota_us", &quota) &&
        read_number(directory, "cpu.cfs_period_us", &period) && quota > 0 && period > 0)
        lower(least, quota / period);
}

static void read_memory_v2(const char *directory, double *least) {
    double limit;
    if (read_number(directory, "memory.max", &limit)) lower(least, limit);
}

static void read_memory_v1(const char *directory, double *least) {
    double limit;
    if (read_number(directory, "memory.limit_in_bytes", &limit)) lower(least, limit);
}

static const struct hierarchy {
    const char *controller; /* as /proc/self/cgroup has it: "" is version 2 */
    const char *mount;
    read_limit *read;
} cpu_hierarchies[] = {{"", "/sys/fs/cgroup", read_cpu_v2},
                       {"cpu", "/sys/fs/cgroup/cpu", read_cpu_v1},
                       {"cpu", "/sys/fs/cgroup/cpu,cpuacct", read_cpu_v1}},
  memory_hierarchies[] = {{"", "/sys/fs/cgroup", read_memory_v2},
                          {"memory", "/sys/fs/cgroup/memory", read_memory_v1}};

/* The least of `limit` and of what the groups say. Of a controller that /proc/self/cgroup does not name the
 * root of the mount is read; a mount that is not there has no files. */
static double least_limit(const char *root, const struct hierarchy *hierarchies, size_t n, double limit) {
    char path[PATH_SIZE];
    CLEANUP(buffer_done) struct buffer cgroups = {0};
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(path, &cgroups)) return limit;
    for (size_t i = 0; i < n; i++) {
        char group[PATH_SIZE / 2], directory[PATH_SIZE];
        (void)process_cgroup(cgroups.data, hierarchies[i].controller, group, sizeof group);
        /* From our group up to the root of the mount. */
        for (char *slash = group; slash != NULL;) {
            (void)snprintf(directory, sizeof directory, "%s%s%s", root, hierarchies[i].mount, group);
            hierarchies[i].read(directory, &limit);
            slash = strrchr(group, '/');
            if (slash != NULL) *slash = '\0';
        }
    }
    return limit;
}

int64_t usable_quota_cores(const char *root, int64_t cores) {
    double limit = least_limit(root, cpu_hierarchies, ARRAY_SIZE(cpu_hierarchies), (double)cores);
    int64_t whole = (int64_t)limit;
    if ((double)whole < limit) whole++;
    return whole < 1 ? 1 : whole;
}

int64_t usable_memory(const char *root) {
    char path[PATH_SIZE];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_text(path, &text)) return 0;
    const char *line = strstr(text.data, "MemTotal:");
    double total = line != NULL ? 1024 * strtod(line + strlen("MemTotal:"), NULL) : 0;
    return (int64_t)least_limit(root, memory_hierarchies, ARRAY_SIZE(memory_hierarchies), total);
}
