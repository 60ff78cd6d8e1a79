/* The watch over silent workers: how long each has said nothing, and the signs of life of programs that tell
 * their agent nothing. What follows from a worker that hangs is the run's to decide; stacks are saved by
 * stacks.c. */
#include "agent/node_run.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/worker_request.h"
#include "base/process.h"

/* A busy machine lets a timer wait so long. */
#define USUAL_DELAY (100 * NS_PER_MS)
enum { LOOKS_A_LIMIT = 4 }; /* within the limit, at a worker that says nothing by itself */

nanoseconds hang_remaining(nanoseconds heard, nanoseconds limit, nanoseconds now) {
    nanoseconds silent = now > heard ? now - heard : 0;
    return silent < limit ? limit - silent : 0;
}

bool hang_was_away(nanoseconds due, nanoseconds limit, nanoseconds now) {
    nanoseconds late = now - due;
    return late > limit / 10 && late > USUAL_DELAY;
}

/* It is not the worker's turn to say something: its words wait for an answer, or this agent has not taken them
 * yet, for want of time or room. */
static bool is_excused(const struct worker_process *worker) {
    if (worker->pty.outbox != NULL && worker->pty.client_fd >= 0) return true; /* somebody looks into it */
    for (const struct worker_channel *channel = worker->speaker.channels; channel != NULL;
         channel = channel->next) {
        int size = 0;
        if (channel->waiting != WAITING_NOTHING && channel->waiting != WAITING_LOOK) return true;
        if (channel->source.resting || channel->in.size > 0) return true;
        if (channel->source.fd >= 0 && ioctl(channel->source.fd, FIONREAD, &size) == 0 && size > 0) return true;
    }
    for (int i = 0; i < 2; i++)
        if (worker->relay.streams[i].held || worker->relay.streams[i].source.resting) return true;
    return false;
}

/* The next look is `delay` from now. */
static void look_after(struct hang *hang, nanoseconds delay) {
    hang->due = loop_now(hang->loop) + delay;
    (void)loop_timer_start(hang->loop, &hang->timer, delay);
}

/* A hundredth of the time, because a process that only waits may have a thread that wakes now and then. */
enum { SHARE = 100 };

static bool is_silent(const struct worker_process *worker) {
    return worker->stage == PROCESS_RUNNING && !worker->speaker.ready;
}

/* Reads the signs of life of all running workers that never said that they are up, in one look at /proc: what
 * they print, the processor time that they use, and processes of theirs that come and go. A worker has shown
 * life when its output is not what it was, a process of its session came or went, or its session used a
 * hundredth of `interval`, the time since the last look, of processor time: `heard` of its speaker is then
 * `now`. */
static void vitals_take(struct worker_process *workers, size_t n, nanoseconds interval, nanoseconds now) {
    uint64_t ticks = (uint64_t)(interval / SHARE) * (uint64_t)sysconf(_SC_CLK_TCK) / NS_PER_S;
    if (ticks == 0) ticks = 1;
    size_t n_silent = 0;
    for (size_t i = 0; i < n; i++) {
        workers[i].vitals.next_ticks = workers[i].vitals.next_members = 0;
        n_silent += is_silent(&workers[i]);
    }
    /* What each process tells is added to the worker that leads its session. Processes are told apart by when
     * they began, too. */
    DIR *proc = n_silent > 0 ? opendir("/proc") : NULL;
    for (pid_t pid; proc != NULL && (pid = process_next(proc)) > 0;) {
        struct process process;
        if (!process_read(pid, &process)) continue;
        size_t i = 0;
        while (i < n && !(is_silent(&workers[i]) && workers[i].pid == process.session))
            i++;
        if (i == n) continue;
        workers[i].vitals.next_ticks += process.ticks;
        workers[i].vitals.next_members += (uint64_t)pid * 1000003 + process.started;
    }
    if (proc != NULL) (void)closedir(proc);
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

/* One look at all, and the next when the earliest can be too late; workers that tell nothing by themselves are
 * looked at a few times within the limit, as what they do is seen only by comparing two looks. */
static void look(void *context) {
    struct hang *hang = context;
    nanoseconds now = loop_now(hang->loop), next = hang->limit;
    bool was_away = hang_was_away(hang->due, hang->limit, now);
    vitals_take(hang->workers, hang->n, hang->limit / LOOKS_A_LIMIT, now);
    for (size_t i = 0; i < hang->n; i++) {
        struct worker_process *worker = &hang->workers[i];
        if (worker->stage != PROCESS_RUNNING || worker->stop != STOP_NONE || worker->hung) continue;
        if (was_away || is_excused(worker)) worker->speaker.heard = now;
        nanoseconds remaining = hang_remaining(worker->speaker.heard, hang->limit, now);
        nanoseconds soonest = worker->speaker.ready || remaining < hang->limit / LOOKS_A_LIMIT
                                  ? remaining
                                  : hang->limit / LOOKS_A_LIMIT;
        if (remaining > 0 && soonest < next) next = soonest;
        if (remaining > 0) continue;
        worker->hung = true;
        hang->found(hang->context, worker);
    }
    look_after(hang, next);
}

void hang_begin(struct hang *hang, struct worker_process *workers, size_t n, nanoseconds limit) {
    hang->workers = workers;
    hang->n = n;
    hang->limit = limit;
    hang->timer = (struct loop_timer){.callback = look, .context = hang};
    if (limit > 0) look_after(hang, limit / LOOKS_A_LIMIT);
}

void hang_end(struct hang *hang) {
    if (hang->limit > 0) loop_timer_stop(hang->loop, &hang->timer);
    hang->limit = 0;
}

void hang_describe(const struct worker_process *worker, nanoseconds limit, struct buffer *out) {
    struct process process;
    (void)process_read(worker->pid, &process);
    buffer_text(out, worker->speaker.ready
                         ? "no report or heartbeat for "
                         : "no output, no processor time used and no process that came or went for ");
    duration_format(limit, out);
    if (!worker->speaker.ready && worker->speaker.reports == worker->speaker.report_base)
        buffer_text(out, " (it never reported)");
    switch (process.state) {
    case 'T':
        buffer_text(out, "; its process is stopped (T)");
        break;
    case 't':
        buffer_text(out, "; its process is stopped by a debugger (t)");
        break;
    case 'D':
        buffer_text(out, "; its process waits in the kernel (D)");
        break;
    default:
        break;
    }
}
