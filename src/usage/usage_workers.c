/* Workers by their process groups, in one walk through /proc: processes that have left the group are counted
 * nowhere. Processor time that ended processes had stays with the parent that waited for them. Which processes
 * are workers is told by the agent. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/process.h"
#include "usage/usage.h"

enum { IO_TEXT = 1024 };

struct worker_group {
    uint64_t ticks, pages, read, written;
    bool any, io;
};

static int compare_groups(const void *a, const void *b) {
    const struct usage_target *one = a, *other = b;
    return (one->group > other->group) - (one->group < other->group);
}

/* What a process read from storage and wrote there the kernel tells to the same user, or to root. */
static void add_io(pid_t pid, struct worker_group *group) {
    char path[64];
    uint64_t read, written;
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/io", pid);
    if (file_read(path, IO_TEXT, &text, NULL) < 0 || text.size == 0) return;
    const char *line = strstr(text.data, "\nread_bytes:");
    if (line == NULL || sscanf(line, " read_bytes: %" SCNu64 " write_bytes: %" SCNu64, &read, &written) != 2)
        return;
    group->io = true;
    group->read += read;
    group->written += written;
}

/* One walk for all workers, however many: the kernel has no list of the processes of a group. `groups` has a
 * place for each target, which stand in order. */
static void walk(const struct usage_workers *workers, struct worker_group *groups) {
    DIR *proc = opendir("/proc");
    if (proc == NULL) return;
    for (pid_t pid; (pid = process_next(proc)) > 0;) {
        struct process process;
        if (!process_read(pid, &process)) continue;
        const struct usage_target key = {.group = process.group};
        const struct usage_target *found =
            bsearch(&key, workers->targets, workers->n, sizeof key, compare_groups);
        if (found == NULL) continue;
        struct worker_group *group = &groups[found - workers->targets];
        group->any = true;
        group->ticks += process.ticks;
        group->pages += process.resident;
        add_io(pid, group);
    }
    (void)closedir(proc);
}

/* What the worker had used at the last look; false for one that was not seen in it. A rank whose worker was
 * started again has another group. */
static bool find_before(const struct usage_workers *workers, const struct usage_target *target,
                        uint64_t *ticks) {
    for (size_t i = 0; i < workers->n_before; i++)
        if (workers->before[i].rank == target->rank && workers->before[i].group == target->group) {
            *ticks = workers->before[i].ticks;
            return true;
        }
    return false;
}

/* Processor time is a rate since the look before. Where the sum falls, as a process has ended whose parent is
 * not of the group, it is not known for once. A look that saw no process of a group leaves nothing to compare
 * with: its next one would take all that the worker ever used for what it used since. */
void usage_workers_look(struct usage_workers *workers, struct usage_sample *sample) {
    CLEANUP_FREE struct worker_group *groups = calloc(workers->n + 1, sizeof *groups);
    nanoseconds now = clock_monotonic();
    if (groups == NULL || workers->n == 0) return;
    qsort(workers->targets, workers->n, sizeof *workers->targets, compare_groups);
    walk(workers, groups);
    double passed = duration_seconds(now - workers->looked_at) * (double)sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < workers->n; i++) {
        const struct usage_target *target = &workers->targets[i];
        uint64_t before;
        if (!groups[i].any) continue;
        if (find_before(workers, target, &before) && groups[i].ticks >= before && passed > 0)
            usage_add(sample, USAGE_WORKER_CPU, target->rank, (double)(groups[i].ticks - before) / passed);
        usage_add(sample, USAGE_WORKER_MEMORY, target->rank,
                  (double)groups[i].pages * (double)sysconf(_SC_PAGESIZE));
        if (!groups[i].io) continue;
        usage_add(sample, USAGE_WORKER_READ, target->rank, (double)groups[i].read);
        usage_add(sample, USAGE_WORKER_WRITE, target->rank, (double)groups[i].written);
    }
    workers->n_before = 0;
    for (size_t i = 0; i < workers->n; i++)
        if (groups[i].any)
            workers->before[workers->n_before++] =
                (struct usage_worker){workers->targets[i].rank, workers->targets[i].group, groups[i].ticks};
    workers->looked_at = now;
}
