/* The events of a run, as what they tell is known here: each function fills the values of one kind and hands it
 * to the controller. What is written of them, and in which form, is in event.c; that an event is on record is
 * not known when these return. */
#include <sys/wait.h>

#include "base/buffer.h"
#include "run/internal.h"

static void record(struct run *run, struct run_event *event) {
    event->attempt = run->attempt;
    if (event->time == 0) event->time = run->ops->wall(run->context);
    run->ops->record(run->context, event);
}

static struct run_event of_rank(enum run_event_kind kind, uint32_t rank, nanoseconds time) {
    struct run_event event = run_event_new(kind);
    event.rank = (int)rank;
    event.time = time;
    return event;
}

void run_record_worker(struct run *run, enum run_event_kind kind, uint32_t rank, nanoseconds time) {
    struct run_event event = of_rank(kind, rank, time);
    record(run, &event);
}

void run_record_started(struct run *run, uint32_t rank, nanoseconds time) {
    struct run_event event = of_rank(EVENT_STARTED, rank, time);
    event.of.started.pid = run->workers[rank].pid;
    record(run, &event);
}

void run_record_hung(struct run *run, uint32_t rank, const char *how) {
    struct run_event event = of_rank(EVENT_HUNG, rank, 0);
    event.of.hung.cause = how;
    record(run, &event);
}

void run_record_fault(struct run *run, const struct run_fault *fault) {
    struct run_event event = run_event_new(EVENT_HARDWARE);
    event.time = fault->time;
    event.node = (int)fault->node;
    if (idset_count(fault->ranks) == 1) event.rank = (int)idset_next(fault->ranks, -1);
    event.of.hardware = *fault->told;
    record(run, &event);
}

void run_record_exit(struct run *run, uint32_t rank, const char *cause, nanoseconds time) {
    const struct run_worker *worker = &run->workers[rank];
    struct run_event event = of_rank(EVENT_EXITED, rank, time);
    if (WIFSIGNALED(worker->wait_status))
        event.of.exited.signal = WTERMSIG(worker->wait_status);
    else
        event.of.exited.code = WEXITSTATUS(worker->wait_status);
    event.of.exited.stopped = worker->stopped;
    if (cause != NULL && cause[0] != '\0') event.of.exited.cause = cause;
    record(run, &event);
}

void run_record_start_failed(struct run *run, uint32_t rank, const char *why) {
    struct run_event event = of_rank(EVENT_START_FAILED, rank, 0);
    event.of.start_failed.cause = why;
    record(run, &event);
}

void run_record_launched(struct run *run) {
    struct run_event event = run_event_new(EVENT_LAUNCHED);
    record(run, &event);
}

void run_record_adopted(struct run *run) {
    struct run_event event = run_event_new(EVENT_ADOPTED);
    record(run, &event);
}

void run_record_wait(struct run *run, const char *reason) {
    struct run_event event = run_event_new(EVENT_WAIT);
    event.of.wait.reason = reason;
    record(run, &event);
}

void run_record_attempt(struct run *run) {
    struct buffer both = {0};
    struct run_event event = run_event_new(EVENT_ATTEMPT);
    const char *resize = run->resize.text[0] != '\0' ? run->resize.text : NULL;
    bool failed = run->failure.outcome != OUTCOME_NONE;
    event.of.attempt.workers = run->config.n_workers;
    event.of.attempt.nodes = run->n_needed;
    event.of.attempt.reason = failed ? run->failure.text : resize != NULL ? resize : "start";
    event.of.attempt.checkpoint = run->checkpoint;
    if (failed && resize != NULL) buffer_printf(&both, "%s; %s", run->failure.text, resize);
    if (both.size > 0 && !both.failed) event.of.attempt.reason = both.data;
    record(run, &event);
    buffer_done(&both);
}

void run_record_node(struct run *run, uint32_t node, const struct event_node *about) {
    struct run_event event = run_event_new(EVENT_NODE);
    event.node = (int)node;
    if (about != NULL) event.of.node = *about;
    record(run, &event);
}

void run_record_node_lost(struct run *run, const struct run_input *loss) {
    struct run_event event = run_event_new(EVENT_NODE_LOST);
    event.node = (int)loss->node;
    event.of.node_lost = (struct event_node_lost){.reason = loss->text, .swept = loss->clean};
    record(run, &event);
}

void run_record_checkpoint(struct run *run, uint64_t number, const char *path) {
    struct run_event event = run_event_new(EVENT_CHECKPOINT);
    event.of.checkpoint = (struct event_checkpoint){(int64_t)number, path};
    record(run, &event);
}

void run_record_lost_checkpoint(struct run *run, uint64_t number, const char *why, bool unheard) {
    struct run_event event = run_event_new(EVENT_CHECKPOINT_LOST);
    event.of.checkpoint_lost = (struct event_checkpoint_lost){(int64_t)number, why, unheard};
    record(run, &event);
}

void run_record_late_checkpoint(struct run *run, const struct pending *pending, const struct idset *ranks,
                                const char *what) {
    struct buffer text = {0};
    struct run_event event = run_event_new(EVENT_CHECKPOINT_LATE);
    idset_format(ranks, &text);
    event.of.checkpoint_late = (struct event_checkpoint_late){
        .number = (int64_t)pending->number,
        .seconds = duration_seconds(run->ops->now(run->context) - pending->since),
        .ranks = text.failed ? NULL : text.data,
        .what = what,
    };
    record(run, &event);
    buffer_done(&text);
}

void run_record_stop(struct run *run, bool kill, const char *reason) {
    struct run_event event = run_event_new(EVENT_STOP);
    event.of.stop = (struct event_stop){reason, kill};
    record(run, &event);
}

void run_record_clean(struct run *run, uint32_t node, bool clean, uint32_t leftovers) {
    struct run_event event = run_event_new(EVENT_CLEAN);
    event.node = (int)node;
    event.of.clean = (struct event_clean){clean, leftovers};
    record(run, &event);
}

/* What both ends tell, that of an attempt and that of the run: how, and what was the first cause. */
#define TELL_END(run, end)                                 \
    do {                                                   \
        (end)->outcome = run_outcome_name((run)->outcome); \
        (end)->status = run_exit_status(run);              \
        if ((run)->failure.outcome == OUTCOME_NONE) break; \
        (end)->rank = (run)->failure.rank;                 \
        (end)->node = (run)->failure.node;                 \
        (end)->cause = (run)->failure.text;                \
    } while (0)

void run_record_attempt_end(struct run *run) {
    struct run_event event = run_event_new(EVENT_ATTEMPT_END);
    struct event_attempt_end *end = &event.of.attempt_end;
    TELL_END(run, end);
    if (run->outcome == OUTCOME_RESIZED) end->resize = run->resize.text;
    if (run->retries) {
        end->lost_seconds = run->resize.lost_seconds;
        end->lost_reports = (int64_t)run->resize.lost_reports;
        end->retry = duration_seconds(run->pause);
    }
    record(run, &event);
}

void run_record_end(struct run *run) {
    struct run_event event = run_event_new(EVENT_RUN_END);
    TELL_END(run, &event.of.run_end);
    record(run, &event);
}
