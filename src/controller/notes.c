/* What happens in a run: put on record, and told the user. The journal and those who listen get every event;
 * the user, on standard error, only what changes the run's way and is not on the screen at its end. What is
 * written of events, and when it is written, is records.c's. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/ty_run.h"

/* -- on record */

void note_event(struct ty_run *run, const struct run_event *event, const char *metrics) {
    records_event(run->records, event);
    replay_note(&run->replay, event);
    events_add(&run->events, event, metrics);
}

/* Texts that stand one behind the other, each with its end, as a list; NULL: memory is short. The caller
 * frees. */
static const char **list_texts(const struct buffer *texts, size_t n) {
    const char **list = texts->failed ? NULL : calloc(n + 1, sizeof *list);
    const char *at = texts->data;
    for (size_t i = 0; list != NULL && i < n; i++, at += strlen(at) + 1)
        list[i] = at;
    return list;
}

void note_run(struct ty_run *run) {
    const struct run_request *request = run->request;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    CLEANUP(buffer_done) struct buffer texts = {0};
    size_t n = 0;
    for (; request->argv[n] != NULL; n++) {
        size_t size = strlen(request->argv[n]);
        if (utf8_valid(request->argv[n], size))
            buffer_text(&texts, request->argv[n]);
        else
            utf8_escape(request->argv[n], size, &texts); /* JSON holds UTF-8 alone */
        buffer_char(&texts, '\0');
    }
    CLEANUP_FREE const char **words = list_texts(&texts, n);
    struct run_event event = run_event_new(EVENT_RUN);
    event.time = clock_wall();
    event.of.run = (struct event_run){
        .name = run->name,
        .id = run->id,
        .argv = {words, n},
        .version = TY_VERSION,
        .pid = getpid(),
        .host = host,
        .engine = run->prepared.engine->name,
        .num_workers = run->prepared.demand.max_workers,
        .max_failures = request->settings.failures.max_failures,
        .outlive = run->prepared.outlive >= 0 ? (double)run->prepared.outlive / 1e9 : (double)NAN,
        .submitted = (double)event.time / 1e9,
        .preempt_signal = EVENT_UNKNOWN,
        .num_to_keep = EVENT_UNKNOWN,
    };
    /* A program that the signal would end is to handle it, also where a file for all runs names it. */
    if (preempt_signal_of(request) != SIGTERM) event.of.run.preempt_signal = preempt_signal_of(request);
    /* By what the checkpoints are ranked, and how many are among the best, for whoever reads the run later. A
     * name that is no UTF-8 can be that of no metric. */
    const struct checkpoint_policy *policy = &request->settings.checkpoints;
    const char *attribute = policy->score_attribute;
    if (policy->num_to_keep > 0) event.of.run.num_to_keep = policy->num_to_keep;
    if (attribute != NULL && utf8_valid(attribute, strlen(attribute))) {
        event.of.run.checkpoint_score_attribute = attribute;
        event.of.run.checkpoint_score_order = policy->score_order == SCORE_MIN ? "min" : "max";
    }
    note_event(run, &event, NULL);
}

void note_plan(struct ty_run *run, int attempt) {
    const struct plan *plan = run->prepared.plan;
    const struct cluster *cluster = run->prepared.cluster;
    CLEANUP(buffer_done) struct buffer device_texts = {0}, slice_texts = {0};
    for (size_t rank = 0; rank < plan->n_workers; rank++) {
        plan_worker_devices(plan, cluster, rank, false, &device_texts);
        buffer_char(&device_texts, '\0');
    }
    for (size_t i = 0; i < plan->n_slices; i++) {
        const struct plan_slice *slice = &plan->slices[i];
        const struct node_shape *shape = cluster->nodes[plan->workers[slice->first_worker].node].shape;
        const char *type = labels_get(&shape->labels, "ray.io/tpu-pod-type");
        const char *topology = labels_get(&shape->labels, "ray.io/tpu-topology");
        buffer_printf(&slice_texts, "%u-%u %s %s %s", slice->first_worker,
                      slice->first_worker + slice->n_workers - 1, type != NULL ? type : "?",
                      topology != NULL ? topology : "?", slice->name);
        buffer_char(&slice_texts, '\0');
    }
    CLEANUP_FREE const char **devices = list_texts(&device_texts, plan->n_workers);
    CLEANUP_FREE const char **slices = plan->n_slices > 0 ? list_texts(&slice_texts, plan->n_slices) : NULL;
    CLEANUP_FREE const char **nodes = calloc(run->agents.n + 1, sizeof *nodes);
    for (uint32_t node = 0; nodes != NULL && node < run->agents.n; node++)
        nodes[node] = run->agents.peers[node].name;
    struct run_event event = run_event_new(EVENT_PLAN);
    event.time = clock_wall();
    event.attempt = attempt;
    event.of.plan.seconds = (double)run->prepared.plan_time / 1e9;
    event.of.plan.nodes = (struct event_texts){nodes, run->agents.n};
    event.of.plan.ranks = (struct event_numbers){run->agents.node_of, plan->n_workers};
    event.of.plan.devices = (struct event_texts){devices, plan->n_workers};
    event.of.plan.slices = (struct event_texts){slices, plan->n_slices};
    event.of.plan.spares = run->request->settings.spares > 0 ? run->request->settings.spares : EVENT_UNKNOWN;
    if (run->agents.replaced.size > 0 && !run->agents.replaced.failed)
        event.of.plan.replaced = run->agents.replaced.data;
    note_event(run, &event, NULL);
}

/* The lines of the table, whose ends are cut. */
void note_network(struct ty_run *run) {
    enum { NETWORKS_NOTED = 16 };
    const char *lines[NETWORKS_NOTED];
    size_t n = 0;
    struct rendezvous *rendezvous = run->prepared.rendezvous;
    CLEANUP_FREE char *table = strdup(rendezvous != NULL ? rendezvous_table(rendezvous) : "");
    char *rest = NULL;
    char *line = table != NULL ? strtok_r(table, "\n", &rest) : NULL;
    for (; line != NULL && n < NETWORKS_NOTED; line = strtok_r(NULL, "\n", &rest))
        lines[n++] = line;
    if (n == 0) return;
    struct run_event event = run_event_new(EVENT_NETWORK);
    const char *used = rendezvous_network(rendezvous);
    event.time = clock_wall();
    if (*used != '\0') event.of.network.used = used;
    event.of.network.tried = (struct event_texts){lines, n};
    note_event(run, &event, NULL);
}

/* -- told */

/* A restart is told when it is decided: only the last attempt's first cause is on the screen at the end. */
static void tell_restart(const struct ty_run *run, int attempt) {
    nanoseconds pause;
    char when[32] = "";
    if (!run_retries(run->core, &pause)) return;
    if (pause > 0) (void)str_print(when, sizeof when, " in %.1f s", duration_seconds(pause));
    CLEANUP(buffer_done) struct buffer why = {0};
    if (run_outcome(run->core) == OUTCOME_RESIZED)
        buffer_text(&why, run_resize_text(run->core));
    else
        failure_line(run_failure(run->core), agents_failed_name(run), &why);
    log_warning("controller", "%s: attempt %d begins%s", why.failed ? "a failure" : why.data, attempt + 1,
                when);
}

/* Called before the event is on record. The progress line is taken away first: what is said stands above it. */
void note_tell(struct ty_run *run, const struct run_event *event) {
    const struct event_checkpoint_lost *lost = &event->of.checkpoint_lost;
    const struct event_checkpoint_late *late = &event->of.checkpoint_late;
    bool running = run_state_of(run->core) == RUN_RUNNING;
    bool goes_on = run->request->settings.checkpoints.on_error == CHECKPOINT_ERROR_CONTINUE;
    uint32_t before = run->size_told, size = run_size(run->core);
    switch (event->kind) {
    case EVENT_ATTEMPT:
        progress_hide(&run->output.progress);
        run->size_told = size;
        if (before != 0 && before != size && run_outcome(run->core) != OUTCOME_RESIZED) /* else it was told */
            log_warning("controller", "attempt %d has %u workers, that before had %u", event->attempt, size,
                        before);
        break;
    case EVENT_ATTEMPT_END:
        carried_tell(run);
        progress_hide(&run->output.progress);
        tell_restart(run, event->attempt);
        break;
    case EVENT_WAIT:
        progress_hide(&run->output.progress);
        log_warning("controller", "waiting for room: %s", event->of.wait.reason);
        break;
    case EVENT_HARDWARE:
        progress_hide(&run->output.progress);
        log_warning("hardware", "%s", event->of.hardware.cause);
        break;
    case EVENT_CHECKPOINT_LOST:
        progress_hide(&run->output.progress);
        /* Told where the training goes on without it, or nobody waits for it any more; else whoever reported it
         * hears of it. */
        if (running && (goes_on || lost->unheard))
            log_warning("controller", "checkpoint %lld is lost: %s%s", (long long)lost->number, lost->reason,
                        goes_on ? "; the training goes on" : "");
        break;
    case EVENT_CHECKPOINT_LATE:
        progress_hide(&run->output.progress);
        if (running)
            log_warning("controller", "checkpoint %lld has waited %.0f s for the %s of rank%s %s",
                        (long long)late->number, late->seconds, late->what,
                        late->ranks != NULL && strpbrk(late->ranks, "-,") != NULL ? "s" : "",
                        late->ranks != NULL ? late->ranks : "?");
        break;
    default:
        break;
    }
}
