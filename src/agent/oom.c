/* The memory cgroup of this process, version 2 or 1: memory.events or memory.oom_control count the processes
 * that the kernel killed in it, also when the limit that was reached is that of a parent or of the machine.
 * Whether a worker was the victim is told with its end (worker_process.c). */
#include "agent/worker_process.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/process.h"
#include "base/str.h"

enum { OOM_FILE_MAX = 64 << 10 };

static bool read_file(const char *directory, const char *name, struct buffer *out) {
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    buffer_clear(out);
    return file_read(path, OOM_FILE_MAX, out, NULL) == 0 && out->size > 0;
}

/* The number behind `name` in a file of lines "name number". */
static bool read_counter(const char *directory, const char *file, const char *name, uint64_t *value) {
    CLEANUP(buffer_done) struct buffer text = {0};
    if (!read_file(directory, file, &text)) return false;
    size_t size = strlen(name);
    for (const char *line = text.data; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, size) != 0 || line[size] != ' ') continue;
        *value = strtoull(line + size, NULL, 10);
        return true;
    }
    return false;
}

static bool read_kills(const struct oom *oom, uint64_t *kills) {
    return read_counter(oom->directory, oom->v1 ? "memory.oom_control" : "memory.events", "oom_kill", kills);
}

/* In a container the path of the group may be that of another view: then the mount itself is our cgroup. */
static bool find_directory(struct oom *oom, const char *mount, const char *group) {
    (void)snprintf(oom->directory, sizeof oom->directory, "%s%s", mount, group);
    if (read_kills(oom, &oom->kills)) return true;
    (void)snprintf(oom->directory, sizeof oom->directory, "%s", mount);
    return read_kills(oom, &oom->kills);
}

void oom_init(struct oom *oom) {
    CLEANUP(buffer_done) struct buffer text = {0};
    char group[PATH_MAX / 2];
    *oom = (struct oom){0};
    if (!read_file("/proc/self", "cgroup", &text)) return;
    oom->v1 = process_cgroup(text.data, "memory", group, sizeof group);
    if (oom->v1 && find_directory(oom, "/sys/fs/cgroup/memory", group)) return;
    oom->v1 = false;
    if (process_cgroup(text.data, "", group, sizeof group) && find_directory(oom, "/sys/fs/cgroup", group))
        return;
    *oom = (struct oom){0};
}

bool oom_happened(const struct oom *oom) {
    uint64_t kills;
    return oom->directory[0] != '\0' && read_kills(oom, &kills) && kills > oom->kills;
}

void oom_forget(struct oom *oom) {
    if (oom->directory[0] != '\0') (void)read_kills(oom, &oom->kills);
}

/* The least of the limits of version 2, from our cgroup up to the mount. */
static uint64_t limit_of_parents(const char *directory) {
    CLEANUP(buffer_done) struct buffer text = {0};
    char path[PATH_MAX];
    uint64_t least = UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s", directory);
    while (str_prefix(path, "/sys/fs/cgroup/", NULL)) {
        if (read_file(path, "memory.max", &text) && text.data[0] != 'm') {
            uint64_t limit = strtoull(text.data, NULL, 10);
            if (limit < least) least = limit;
        }
        *strrchr(path, '/') = '\0';
    }
    return least;
}

static void append_size(uint64_t bytes, struct buffer *out) {
    uint64_t mib = bytes >> 20;
    if (mib >= 10 * 1024)
        buffer_printf(out, "%.1f GiB", (double)mib / 1024);
    else
        buffer_printf(out, "%" PRIu64 " MiB", mib);
}

void oom_describe(const struct oom *oom, long peak_kib, struct buffer *out) {
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = UINT64_MAX;
    if (!oom->v1)
        limit = limit_of_parents(oom->directory);
    else if (!read_counter(oom->directory, "memory.stat", "hierarchical_memory_limit", &limit))
        limit = UINT64_MAX;
    buffer_text(out, limit < machine ? "out of memory: limit " : "out of memory: the machine has ");
    append_size(limit < machine ? limit : machine, out);
    buffer_text(out, ", peak ");
    append_size((uint64_t)peak_kib << 10, out);
}
