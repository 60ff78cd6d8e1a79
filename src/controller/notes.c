/* What happens in a run: put on record, and told the user. The journal and those who listen get every event;
 * the user, on standard error, only what changes the run's way and is not on the screen at its end. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "controller/ty_run.h"

/* -- on record */

void note_event(struct ty_run *run, const struct run_event *event, const char *metrics) {
    records_event(run->records, event);
    history_note(&run->history, event);
    events_add(&run->events, event, metrics);
}

void note_text(struct ty_run *run, int attempt, enum run_event_kind kind, struct buffer *data) {
    struct run_event event = {clock_wall(), kind, attempt, -1, -1, data->failed ? NULL : data->data};
    note_event(run, &event, NULL);
    buffer_done(data);
}

/* JSON holds UTF-8 alone: of a word that is none the bytes are escaped. */
static json_t *word_as_json(const char *word) {
    size_t size = strlen(word);
    if (utf8_valid(word, size)) return json_stringn_nocheck(word, size);
    CLEANUP(buffer_done) struct buffer text = {0};
    utf8_escape(word, size, &text);
    return text.failed ? NULL : json_stringn_nocheck(text.data, text.size);
}

/* By what the checkpoints are ranked, for whoever reads the run later. A name that is no UTF-8 can be that
 * of no metric. */
static void add_score(json_t *data, const struct checkpoint_policy *policy) {
    json_t *attribute = policy->score_attribute != NULL ? json_string(policy->score_attribute) : NULL;
    if (attribute == NULL) return;
    (void)json_object_set_new(data, "checkpoint_score_attribute", attribute);
    (void)json_object_set_new(data, "checkpoint_score_order",
                              json_string(policy->score_order == SCORE_MIN ? "min" : "max"));
}

void note_run(struct ty_run *run) {
    const struct run_request *request = run->request;
    char host[256] = "";
    json_t *argv = json_array();
    (void)gethostname(host, sizeof host - 1);
    for (const char *const *word = request->argv; *word != NULL; word++)
        (void)json_array_append_new(argv, word_as_json(*word));
    json_t *data = json_pack("{s:s, s:s, s:o, s:s, s:i, s:s, s:s, s:I, s:i, s:f}", "name", run->name, "id",
                             run->id, "argv", argv, "version", TY_VERSION, "pid", (int)getpid(), "host", host,
                             "engine", run->prepared.engine->name, "num_workers",
                             (json_int_t)run->prepared.demand.max_workers, "max_failures",
                             request->settings.failures.max_failures, "submitted", (double)clock_wall() / 1e9);
    if (data != NULL) add_score(data, &request->settings.checkpoints);
    CLEANUP_FREE char *text = data == NULL ? NULL : json_dumps(data, JSON_COMPACT);
    json_decref(data);
    note_event(run, &(struct run_event){clock_wall(), EVENT_RUN, 0, -1, -1, text}, NULL);
}

void note_plan(struct ty_run *run, int attempt) {
    const struct prepared *prepared = &run->prepared;
    struct buffer data = {0};
    buffer_printf(&data, "{\"seconds\": %.6f, \"nodes\": [", (double)prepared->plan_time / 1e9);
    for (uint32_t node = 0; node < run->agents.n; node++) {
        buffer_text(&data, node > 0 ? ", " : "");
        buffer_json_text(&data, run->agents.peers[node].name);
    }
    buffer_text(&data, "], \"ranks\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++)
        buffer_printf(&data, "%s%u", i > 0 ? ", " : "", run->agents.node_of[i]);
    buffer_text(&data, "], \"devices\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++) {
        buffer_text(&data, i > 0 ? ", \"" : "\"");
        plan_worker_devices(prepared->plan, prepared->cluster, i, false, &data);
        buffer_char(&data, '"');
    }
    buffer_text(&data, "]}");
    note_text(run, attempt, EVENT_PLAN, &data);
}

/* -- told */

static const char *text_of(const json_t *data, const char *key) {
    const char *text = json_string_value(json_object_get(data, key));
    return text != NULL ? text : "?";
}

/* A restart is told when it is decided: only the last attempt's first cause is on the screen at the end. */
static void tell_restart(const struct ty_run *run, int attempt) {
    nanoseconds pause;
    char when[32] = "";
    if (!run_retries(run->core, &pause)) return;
    if (pause > 0) (void)snprintf(when, sizeof when, " in %.1f s", (double)pause / (double)NS_PER_S);
    CLEANUP(buffer_done) struct buffer why = {0};
    if (run_outcome(run->core) == OUTCOME_RESIZED)
        buffer_text(&why, run_resize_text(run->core));
    else
        failure_line(run_failure(run->core), agents_failed_name(run), &why);
    log_warning("controller", "%s: attempt %d begins%s", why.failed ? "a failure" : why.data, attempt + 1,
                when);
}

static void tell_size(struct ty_run *run, int attempt) {
    uint32_t before = run->size_told, size = run_size(run->core);
    run->size_told = size;
    bool told = run_outcome(run->core) == OUTCOME_RESIZED; /* by the end of the attempt before it */
    if (before == 0 || before == size || told) return;
    log_warning("controller", "attempt %d has %u workers, that before had %u", attempt, size, before);
}

/* A checkpoint that was lost is told where the training goes on without it, or where nobody waits for it any
 * more; else whoever reported it hears of it. */
static void tell_lost_checkpoint(const struct ty_run *run, const json_t *data) {
    bool goes_on = run->request->settings.checkpoints.on_error == CHECKPOINT_ERROR_CONTINUE;
    if (!goes_on && !json_is_true(json_object_get(data, "unheard"))) return;
    log_warning("controller", "checkpoint %lld is lost: %s%s",
                (long long)json_integer_value(json_object_get(data, "number")), text_of(data, "reason"),
                goes_on ? "; the training goes on" : "");
}

static void tell_late_checkpoint(const json_t *data) {
    const char *ranks = text_of(data, "ranks");
    log_warning("controller", "checkpoint %lld has waited %lld s for the %s of rank%s %s",
                (long long)json_integer_value(json_object_get(data, "number")),
                (long long)json_integer_value(json_object_get(data, "seconds")), text_of(data, "what"),
                strpbrk(ranks, "-,") != NULL ? "s" : "", ranks);
}

void note_tell(struct ty_run *run, const struct run_event *event) {
    bool running = run_state_of(run->core) == RUN_RUNNING;
    json_t *data = NULL;
    switch (event->kind) {
    case EVENT_ATTEMPT:
    case EVENT_ATTEMPT_END:
    case EVENT_WAIT:
    case EVENT_CHECKPOINT_LOST:
    case EVENT_CHECKPOINT_LATE:
        progress_hide(&run->output.progress);
        data = event->data == NULL ? NULL : json_loads(event->data, 0, NULL);
        break;
    default:
        return;
    }
    if (event->kind == EVENT_ATTEMPT) tell_size(run, event->attempt);
    if (event->kind == EVENT_ATTEMPT_END) tell_restart(run, event->attempt);
    if (event->kind == EVENT_WAIT) log_warning("controller", "waiting for room: %s", text_of(data, "reason"));
    if (event->kind == EVENT_CHECKPOINT_LOST && running) tell_lost_checkpoint(run, data);
    if (event->kind == EVENT_CHECKPOINT_LATE && running) tell_late_checkpoint(data);
    json_decref(data);
}
