/* What workers print, to the terminal and to whoever wants it as events. Nothing is lost while somebody
 * takes it: when the sinks, the events or the rows are full, agents are not heard until there is room, and
 * what is not read waits with them. When nobody takes it and the run is to end, it is dropped, and told. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "controller/ty_run.h"

static void pause_agents(struct ty_run *run, bool paused) {
    run->output.paused = paused;
    for (uint32_t node = 0; node < run->agents.n; node++)
        if (run->agents.peers[node].channel != NULL) channel_pause(run->agents.peers[node].channel, paused);
}

static bool is_full(const struct ty_run *run) {
    return sink_full(&run->output.sinks[0]) || sink_full(&run->output.sinks[1]) || events_full(&run->events);
}

/* A run that is stopped wants to hear of its workers' end. */
static bool has_room(const struct ty_run *run) {
    return !is_full(run) && (!records_full(run->records) || run->interruption.level != UNINTERRUPTED);
}

/* Not only the reader of the output is waited for: rows that gather faster than the storage takes them would
 * fill the memory as well. */
void output_pause_when_full(struct ty_run *run) {
    if (!has_room(run)) pause_agents(run, true);
}

void output_go_on(void *context) {
    struct ty_run *run = context;
    if (has_room(run)) pause_agents(run, false);
}

static void tell_dropped(const struct ty_run *run) {
    log_warning("controller", "nobody takes the workers' output: the rest of it is only in %s/logs", run->path);
}

bool output_drop(struct ty_run *run) {
    if (!is_full(run)) return false;
    sink_discard(&run->output.sinks[0]);
    sink_discard(&run->output.sinks[1]);
    events_drop_output(&run->events);
    pause_agents(run, false);
    tell_dropped(run);
    return true;
}

void output_write(struct ty_run *run, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    struct sink *sink = &run->output.sinks[stream == 2];
    events_add_output(&run->events, rank, stream, bytes, size);
    if (run->request->settings.output != OUTPUT_EVENTS) {
        progress_hide(&run->output.progress);
        sink_write(sink, bytes, size);
        if (size > 0) progress_wrote(&run->output.progress, stream, bytes[size - 1]);
        /* A reader that went away knows it; a full disk is told once. Nothing is lost: the logs have all. */
        if (sink->error != 0 && sink->error != EPIPE && sink->error != ECANCELED && !run->output.told) {
            run->output.told = true;
            log_warning("controller", "cannot write the workers' output: %s; it is in %s/logs",
                        strerror(sink->error), run->path);
        }
    }
    output_pause_when_full(run);
}

void output_open(struct ty_run *run) {
    sink_open(&run->output.sinks[0], run->loop, STDOUT_FILENO, output_go_on, run);
    sink_open(&run->output.sinks[1], run->loop, STDERR_FILENO, output_go_on, run);
}

void output_close(struct ty_run *run) {
    nanoseconds limit = run->interruption.level != UNINTERRUPTED ? OUTPUT_LIMIT : -1;
    if (run->output.progress.loop != NULL) progress_close(&run->output.progress);
    bool all = sink_close(&run->output.sinks[0], limit);
    if (!sink_close(&run->output.sinks[1], limit) || !all) tell_dropped(run);
}
