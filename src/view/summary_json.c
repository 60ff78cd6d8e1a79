/* A summary as JSON: what `trainyard status --format json` prints, and the page asks for. Fields that are not
 * known are null or left out, as docs/seeing.md says of each. What the summary holds is gathered in summary.c.
 * */
#include <jansson.h>
#include <math.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "controller/result.h"
#include "controller/run_directory.h"
#include "view/summary.h"

nanoseconds view_summary_time(const struct view_summary *summary) {
    nanoseconds end = summary->ended > 0 ? summary->ended : clock_wall();
    return end > summary->began ? end - summary->began : 0;
}

nanoseconds view_summary_quiet_from(const struct view_summary *summary) {
    const nanoseconds least = 30 * NS_PER_S;
    if (summary->standing != STANDING_RUNNING || summary->last_report == 0) return 0;
    nanoseconds usual = 5 * summary->usual_interval;
    return summary->last_report + (usual > least ? usual : least);
}

nanoseconds view_summary_quiet(const struct view_summary *summary) {
    nanoseconds from = view_summary_quiet_from(summary), now = clock_wall();
    return from > 0 && now > from ? now - summary->last_report : 0;
}

const char *view_summary_cause_node(const struct view_summary *summary) {
    size_t n = summary->replay.n_attempts;
    return n == 0 || summary->cause == NULL ? NULL : summary->replay.attempts[n - 1].node;
}

json_t *view_summary_phases_json(const struct view_summary *summary) {
    json_t *list = json_array();
    for (size_t i = 0; i < START_PHASES_N; i++) {
        const struct start_phase *phase = &summary->phases[i];
        if (!phase->known) continue;
        json_t *one = json_pack("{s:s, s:f}", "phase", start_phase_name((enum start_phase_kind)i), "seconds",
                                duration_seconds(phase->duration));
        if (phase->rank >= 0) (void)json_object_set_new(one, "slowest_rank", json_integer(phase->rank));
        if (phase->node_name != NULL)
            (void)json_object_set_new(one, "slowest_node", json_string(phase->node_name));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *workers_json(const struct view_summary *summary) {
    json_t *map = json_object();
    for (size_t i = 0; i < WORKER_STANDINGS_N; i++)
        (void)json_object_set_new(map, worker_standing_name((enum worker_standing)i),
                                  json_integer((json_int_t)summary->by_standing[i]));
    return map;
}

static json_t *straggler_json(const struct view_summary *summary) {
    const struct pace_straggler *straggler = &summary->straggler;
    if (!summary->straggles) return json_null();
    return json_pack("{s:I, s:f, s:f}", "rank", (json_int_t)straggler->rank, "seconds",
                     duration_seconds(straggler->interval), "usual_seconds",
                     duration_seconds(straggler->usual));
}

/* Where the number of workers changed. */
static json_t *sizes_json(const struct view_summary *summary) {
    json_t *list = json_array();
    for (size_t i = 0; i < summary->n_sizes; i++)
        (void)json_array_append_new(list, json_pack("{s:i, s:I}", "attempt", summary->sizes[i].attempt,
                                                    "workers", (json_int_t)summary->sizes[i].workers));
    return list;
}

static json_t *history_list(const struct view_summary *summary) {
    CLEANUP(buffer_done) struct buffer text = {0};
    result_history(summary->replay.attempts, summary->replay.n_attempts, clock_wall(), &text);
    return text.failed ? NULL : json_loads(text.data, JSON_ALLOW_NUL, NULL);
}

static json_t *disk_json(const struct view_summary *summary) {
    struct run_disk disk;
    if (run_disk_read(summary->path, &disk, NULL) < 0) return json_null();
    return json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)disk.bytes, "checkpoints",
                     (json_int_t)disk.checkpoints, "logs", (json_int_t)disk.logs);
}

static json_t *spares_json(const struct view_summary *summary) {
    const struct event_plan *plan = &summary->replay.plan.event.of.plan;
    if (summary->replay.plan.event.time == 0 || plan->spares == EVENT_UNKNOWN) return json_null();
    return json_pack("{s:I, s:s?}", "number", (json_int_t)plan->spares, "replaced", plan->replaced);
}

static json_t *network_json(const struct view_summary *summary) {
    const struct event_network *network = &summary->replay.network.event.of.network;
    if (summary->replay.network.event.time == 0) return json_null();
    json_t *tried = json_array();
    for (size_t i = 0; i < network->tried.n; i++)
        (void)json_array_append_new(tried, json_string(network->tried.items[i]));
    return json_pack("{s:s?, s:o}", "used", network->used, "tried", tried);
}

static json_t *hardware_json(const struct view_summary *summary) {
    const struct run_event *last = &summary->replay.hardware.event;
    const struct event_hardware *told = &last->of.hardware;
    if (summary->replay.n_hardware == 0) return json_null();
    return json_pack("{s:I, s:f, s:s?, s:s?}", "faults", (json_int_t)summary->replay.n_hardware, "time",
                     duration_seconds(last->time), "fault", told->fault, "cause", told->cause);
}

/* Of nodes that joined: what their own times were corrected by. */
static json_t *clocks_json(const struct view_summary *summary) {
    json_t *list = json_array();
    for (size_t i = 0; i < summary->replay.n_node_events; i++) {
        const struct event_node *node = &summary->replay.node_events[i].event.of.node;
        if (summary->replay.node_events[i].event.time == 0 || isnan(node->clock_offset)) continue;
        json_t *unsure = isnan(node->clock_uncertainty) ? json_null() : json_real(node->clock_uncertainty);
        (void)json_array_append_new(list, json_pack("{s:s?, s:f, s:o}", "node", node->name, "seconds",
                                                    node->clock_offset, "uncertainty", unsure));
    }
    return list;
}

json_t *view_summary_json(const struct view_summary *summary, bool details) {
    json_t *map =
        json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:I, s:I, s:s?, s:O?}", "name", summary->name, "path",
                  summary->path, "state", run_standing_name(summary->standing), "workers",
                  (json_int_t)summary->workers, "attempts", summary->attempts, "began",
                  duration_seconds(summary->began), "seconds", duration_seconds(view_summary_time(summary)),
                  "reports", (json_int_t)summary->reports, "checkpoints", (json_int_t)summary->checkpoints,
                  "last_checkpoint", summary->last_checkpoint, "metrics", summary->metrics);
    nanoseconds quiet = view_summary_quiet(summary);
    json_t *silence = quiet > 0 ? json_real(duration_seconds(quiet)) : json_null();
    (void)json_object_set_new(map, "quiet_s", silence);
    if (!details || map == NULL) return map;
    json_t *more = json_pack("{s:s?, s:s?, s:s?, s:I, s:I, s:o, s:s?, s:s?, s:o}", "command", summary->command,
                             "host", summary->host, "version", summary->version, "pid",
                             (json_int_t)summary->pid, "nodes", (json_int_t)summary->nodes, "workers_by_state",
                             workers_json(summary), "cause", summary->cause, "waits_for", summary->waits_for,
                             "start_up", view_summary_phases_json(summary));
    (void)json_object_set_new(map, "slowest", straggler_json(summary));
    (void)json_object_set_new(map, "sizes", sizes_json(summary));
    (void)json_object_set_new(map, "spares", spares_json(summary));
    (void)json_object_set_new(map, "network", network_json(summary));
    (void)json_object_set_new(map, "hardware", hardware_json(summary));
    (void)json_object_set_new(map, "clock_offsets", clocks_json(summary));
    (void)json_object_set_new(map, "disk", disk_json(summary));
    json_t *status = summary->status >= 0 ? json_integer(summary->status) : json_null();
    (void)json_object_set_new(map, "exit_status", status);
    json_t *rank = summary->cause_rank >= 0 ? json_integer(summary->cause_rank) : json_null();
    (void)json_object_set_new(map, "cause_rank", rank);
    const char *node = view_summary_cause_node(summary);
    (void)json_object_set_new(map, "cause_node", node != NULL ? json_string(node) : json_null());
    (void)json_object_set_new(map, "history", history_list(summary));
    json_t *since =
        summary->waits_for != NULL ? json_real(duration_seconds(summary->waits_since)) : json_null();
    (void)json_object_set_new(map, "waits_since", since);
    if (more != NULL) (void)json_object_update_new(map, more);
    return map;
}
