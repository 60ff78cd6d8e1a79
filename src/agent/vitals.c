/* A hundredth, because a process that only waits may have a thread that wakes now and then. */
#include "agent/hang.h"

#include <dirent.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"

enum { SHARE = 100 };

static bool is_silent(const struct worker_process *worker) {
    return worker->stage == PROCESS_RUNNING && !worker->speaker.ready;
}

static struct worker_process *find_leader(struct worker_process *workers, size_t n, pid_t session) {
    for (size_t i = 0; i < n; i++)
        if (is_silent(&workers[i]) && workers[i].pid == session) return &workers[i];
    return NULL;
}

/* Adds what each process tells to `next` of its worker. Processes are told apart by when they began, too. */
static void read_all(struct worker_process *workers, size_t n) {
    size_t n_silent = 0;
    for (size_t i = 0; i < n; i++)
        n_silent += is_silent(&workers[i]);
    DIR *proc = n_silent > 0 ? opendir("/proc") : NULL;
    for (pid_t pid; proc != NULL && (pid = process_next(proc)) > 0;) {
        struct process process;
        struct worker_process *worker =
            process_read(pid, &process) ? find_leader(workers, n, process.session) : NULL;
        if (worker == NULL) continue;
        worker->vitals.next_ticks += process.ticks;
        worker->vitals.next_members += (uint64_t)pid * 1000003 + process.started;
    }
    if (proc != NULL) (void)closedir(proc);
}

void vitals_take(struct worker_process *workers, size_t n, nanoseconds interval, nanoseconds now) {
    uint64_t ticks = (uint64_t)(interval / SHARE) * (uint64_t)sysconf(_SC_CLK_TCK) / NS_PER_S;
    if (ticks == 0) ticks = 1;
    for (size_t i = 0; i < n; i++)
        workers[i].vitals.next_ticks = workers[i].vitals.next_members = 0;
    read_all(workers, n);
    for (size_t i = 0; i < n; i++) {
        struct vitals *vitals = &workers[i].vitals;
        if (!is_silent(&workers[i])) continue;
        /* Time of a process that was not waited for is lost with it: less of it than before is news as well. */
        bool busy = vitals->next_ticks < vitals->ticks || vitals->next_ticks - vitals->ticks >= ticks;
        if (!busy && workers[i].relay.bytes == vitals->output && vitals->next_members == vitals->members)
            continue;
        workers[i].speaker.heard = now;
        vitals->output = workers[i].relay.bytes;
        vitals->ticks = vitals->next_ticks;
        vitals->members = vitals->next_members;
    }
}
