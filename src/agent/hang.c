/* The watch over silent workers. */
#include "agent/hang.h"

#include <sys/ioctl.h>

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

/* Words that this agent has not taken yet, for want of time or room. */
static bool has_words(const struct worker_channel *channel) {
    int size = 0;
    if (channel->source.resting || channel->in.size > 0) return true;
    return channel->source.fd >= 0 && ioctl(channel->source.fd, FIONREAD, &size) == 0 && size > 0;
}

/* It is not its turn to say something. */
static bool is_excused(const struct worker_process *worker) {
    if (worker->pty.outbox != NULL && worker->pty.client_fd >= 0) return true; /* somebody looks into it */
    for (const struct worker_channel *channel = worker->speaker.channels; channel != NULL;
         channel = channel->next)
        if ((channel->waiting != WAITING_NOTHING && channel->waiting != WAITING_LOOK) || has_words(channel))
            return true;
    for (int i = 0; i < 2; i++)
        if (worker->relay.streams[i].held || worker->relay.streams[i].source.resting) return true;
    return false;
}

/* The next look is `delay` from now. */
static void look_after(struct hang *hang, nanoseconds delay) {
    hang->due = loop_now(hang->loop) + delay;
    (void)loop_timer_start(hang->loop, &hang->timer, delay);
}

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
    if (!worker->speaker.ready) buffer_text(out, " (it never reported)");
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
