/* The events of a run as the journal keeps them: what run/event.h names as data, put into JSON. */
#include <stdio.h>
#include <sys/wait.h>

#include "base/buffer.h"
#include "run/internal.h"

void run_record(struct run *run, enum run_event_kind kind, int rank, int node, nanoseconds time,
                const char *data) {
    if (run->ops->record == NULL) return;
    struct run_event event = {time, kind, run->attempt, rank, node, data};
    if (event.time == 0) event.time = run->ops->wall(run->context);
    run->ops->record(run->context, &event);
}

/* Frees the text. An event without its data is better than none when memory is short. */
static void record_buffer(struct run *run, enum run_event_kind kind, int rank, int node, nanoseconds time,
                          struct buffer *data) {
    run_record(run, kind, rank, node, time, data->failed ? NULL : data->data);
    buffer_done(data);
}

void run_record_text(struct run *run, enum run_event_kind kind, int rank, int node, const char *key,
                     const char *text) {
    struct buffer data = {0};
    buffer_printf(&data, "{\"%s\": ", key);
    buffer_json_text(&data, text);
    buffer_char(&data, '}');
    record_buffer(run, kind, rank, node, 0, &data);
}

void run_record_attempt(struct run *run) {
    struct buffer data = {0};
    buffer_printf(&data, "{\"workers\": %u, \"nodes\": %u, \"reason\": ", run->config.n_workers, run->n_needed);
    const char *resize = run->resize.text;
    if (run->failure.outcome != OUTCOME_NONE) {
        struct buffer reason = {0};
        buffer_printf(&reason, resize[0] != '\0' ? "%s; %s" : "%s", run->failure.text, resize);
        buffer_json_text(&data, reason.failed ? run->failure.text : reason.data);
        buffer_done(&reason);
    } else {
        buffer_json_text(&data, resize[0] != '\0' ? resize : "start");
    }
    if (run->checkpoint != NULL) {
        buffer_text(&data, ", \"checkpoint\": ");
        buffer_json_text(&data, run->checkpoint);
    }
    buffer_char(&data, '}');
    record_buffer(run, EVENT_ATTEMPT, -1, -1, 0, &data);
}

void run_record_started(struct run *run, uint32_t rank, nanoseconds time) {
    if (run->ops->record == NULL) return; /* no words for nobody: a simulation has millions of these */
    char data[32];
    (void)snprintf(data, sizeof data, "{\"pid\": %d}", run->workers[rank].pid);
    run_record(run, EVENT_STARTED, (int)rank, -1, time, data);
}

void run_record_exit(struct run *run, uint32_t rank, const char *cause, nanoseconds time) {
    if (run->ops->record == NULL) return;
    const struct run_worker *worker = &run->workers[rank];
    struct buffer data = {0};
    if (WIFSIGNALED(worker->wait_status))
        buffer_printf(&data, "{\"signal\": %d", WTERMSIG(worker->wait_status));
    else
        buffer_printf(&data, "{\"code\": %d", WEXITSTATUS(worker->wait_status));
    if (worker->stopped) buffer_text(&data, ", \"stopped\": true");
    if (cause != NULL && cause[0] != '\0') {
        buffer_text(&data, ", \"cause\": ");
        buffer_json_text(&data, cause);
    }
    buffer_char(&data, '}');
    record_buffer(run, EVENT_EXITED, (int)rank, -1, time, &data);
}

void run_record_checkpoint(struct run *run, uint64_t number, const char *path) {
    struct buffer data = {0};
    buffer_printf(&data, "{\"number\": %llu, \"path\": ", (unsigned long long)number);
    buffer_json_text(&data, path);
    buffer_char(&data, '}');
    record_buffer(run, EVENT_CHECKPOINT, -1, -1, 0, &data);
}

void run_record_lost_checkpoint(struct run *run, uint64_t number, const char *why, bool unheard) {
    struct buffer data = {0};
    buffer_printf(&data, "{\"number\": %llu, \"reason\": ", (unsigned long long)number);
    buffer_json_text(&data, why);
    buffer_text(&data, unheard ? ", \"unheard\": true}" : "}");
    record_buffer(run, EVENT_CHECKPOINT_LOST, -1, -1, 0, &data);
}

void run_record_late_checkpoint(struct run *run, const struct pending *pending, const struct idset *ranks,
                                const char *what) {
    struct buffer data = {0};
    double seconds = (double)(run->ops->now(run->context) - pending->since) / (double)NS_PER_S;
    buffer_printf(&data, "{\"number\": %llu, \"seconds\": %.0f, \"ranks\": \"",
                  (unsigned long long)pending->number, seconds);
    idset_format(ranks, &data);
    buffer_printf(&data, "\", \"what\": \"%s\"}", what);
    record_buffer(run, EVENT_CHECKPOINT_LATE, -1, -1, 0, &data);
}

void run_record_stop(struct run *run, bool kill, const char *reason) {
    struct buffer data = {0};
    buffer_text(&data, "{\"reason\": ");
    buffer_json_text(&data, reason);
    buffer_printf(&data, ", \"kill\": %s}", kill ? "true" : "false");
    record_buffer(run, EVENT_STOP, -1, -1, 0, &data);
}

void run_record_clean(struct run *run, uint32_t node, bool clean, uint32_t leftovers) {
    char data[64];
    (void)snprintf(data, sizeof data, "{\"clean\": %s, \"leftovers\": %u}", clean ? "true" : "false",
                   leftovers);
    run_record(run, EVENT_CLEAN, -1, (int)node, 0, data);
}

void run_record_end(struct run *run, enum run_event_kind kind) {
    struct buffer data = {0};
    buffer_printf(&data, "{\"outcome\": \"%s\", \"status\": %d", run_outcome_name(run->outcome),
                  run_exit_status(run));
    if (run->failure.outcome != OUTCOME_NONE) {
        buffer_printf(&data, ", \"rank\": %d, \"node\": %d, \"cause\": ", run->failure.rank, run->failure.node);
        buffer_json_text(&data, run->failure.text);
    }
    if (kind == EVENT_ATTEMPT_END && run->outcome == OUTCOME_RESIZED) {
        buffer_text(&data, ", \"resize\": ");
        buffer_json_text(&data, run->resize.text);
        buffer_printf(&data, ", \"lost_seconds\": %.3f, \"lost_reports\": %llu", run->resize.lost_seconds,
                      (unsigned long long)run->resize.lost_reports);
    }
    if (kind == EVENT_ATTEMPT_END && run->retries)
        buffer_printf(&data, ", \"retry\": %.3f", (double)run->pause / (double)NS_PER_S);
    buffer_char(&data, '}');
    record_buffer(run, kind, -1, -1, 0, &data);
}
