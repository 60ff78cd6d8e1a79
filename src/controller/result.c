/* The end of a run as a result: for the getters, as JSON, as an error code with its line, and as the line of a
 * success. What happened is read from the core and from the journal; nothing is decided here. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/metrics.h"
#include "base/str.h"
#include "controller/result.h"
#include "controller/ty_run.h"
#include "worker/driver.h"

/* Numbers that are not finite travel as one of three strings (docs/worker-protocol.md). */
static bool metric_value(const json_t *value, double *number) {
    static const struct {
        const char *text;
        double value;
    } special[] = {{"NaN", (double)NAN}, {"Infinity", (double)INFINITY}, {"-Infinity", -(double)INFINITY}};
    *number = json_number_value(value);
    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        if (!str_equal(json_string_value(value), special[i].text)) continue;
        *number = special[i].value;
        return true;
    }
    return json_is_number(value);
}

void result_add_values(struct ty_result *result) {
    json_t *object = result->metrics == NULL ? NULL : metrics_read(result->metrics, strlen(result->metrics));
    const char *key;
    json_t *value;
    result->values = calloc(json_object_size(object) + 1, sizeof *result->values);
    json_object_foreach(object, key, value) {
        double number;
        char *name = result->values != NULL && metric_value(value, &number) ? strdup(key) : NULL;
        if (name != NULL) result->values[result->n_values++] = (struct result_metric){name, number};
    }
    json_decref(object);
}

/* -- the end, also of a run that never had a core */

/* Not by anybody: what it needed turned out to be missing after its directory was made. */
static bool was_refused(const struct ty_run *run) {
    return run->interruption.level == UNINTERRUPTED && run->error.code < 0;
}

static enum run_outcome outcome_of(const struct ty_run *run) {
    if (run->core != NULL) return run_outcome(run->core);
    if (was_refused(run)) return OUTCOME_START_FAILED;
    bool preempted = run->interruption.signal == preempt_signal_of(run->request);
    return preempted ? OUTCOME_PREEMPTED : OUTCOME_INTERRUPTED;
}

static int status_of(const struct ty_run *run) {
    if (run->core != NULL) return run_exit_status(run->core);
    return was_refused(run) ? ty_error_exit_status(run->error.code) : 128 + run->interruption.signal;
}

/* `outcome` OUTCOME_NONE: there is none. */
static const struct run_failure *cause_of(const struct ty_run *run) {
    static const struct run_failure none = {.rank = -1, .node = -1};
    return run->core != NULL ? run_failure(run->core) : &none;
}

void result_note_unbegun(struct ty_run *run) {
    bool looked = run->interruption.phase == PHASE_OPENING;
    struct run_event event = run_event_new(EVENT_RUN_END);
    event.time = clock_wall();
    event.of.run_end.outcome = run_outcome_name(outcome_of(run));
    event.of.run_end.status = status_of(run);
    event.of.run_end.cause = was_refused(run) ? run->error.message
                             : looked         ? "interrupted while its checkpoints were looked at"
                                              : "interrupted while it waited for devices";
    note_event(run, &event, NULL);
}

/* -- as a result */

static int make_result(struct ty_run *run, struct ty_result **out, ty_error *err) {
    struct ty_result *result = calloc(1, sizeof *result);
    if (result == NULL) return ty_fail_memory(err);
    *result = (struct ty_result){
        .name = strdup(run->name),
        .path = strdup(run->path),
        .status = status_of(run),
        .n_history = run->replay.n_attempts,
        .history = TAKE(run->replay.attempts),
    };
    if (run->core != NULL) {
        struct buffer screen = {0};
        failure_format(run, &screen);
        result->failure = screen.size > 0 ? buffer_take(&screen) : NULL;
        buffer_done(&screen);
        const char *metrics = run->committing.metrics.data, *checkpoint = run_checkpoint(run->core);
        result->metrics = metrics != NULL ? strdup(metrics) : NULL;
        result->checkpoint = checkpoint != NULL ? strdup(checkpoint) : NULL;
        result->attempts = run_attempt(run->core);
        uint32_t n = run_size(run->core);
        result->exits = calloc(n, sizeof *result->exits);
        for (uint32_t rank = 0; result->exits != NULL && rank < n; rank++)
            result->exits[result->num_workers++] = run_worker_exit(run->core, rank);
    }
    if (result->name == NULL || result->path == NULL) {
        ty_result_free(result);
        return ty_fail_memory(err);
    }
    result_add_values(result);
    *out = result;
    return 0;
}

/* The outcome as an error code with its line. */
static int tell_outcome(const struct ty_run *run, ty_error *err) {
    char text[32];
    int signal_number = status_of(run) - 128;
    CLEANUP(buffer_done) struct buffer cause = {0};
    failure_line(cause_of(run), agents_failed_name(run), &cause);
    const char *line = cause.failed ? cause_of(run)->text : cause.data;
    switch (outcome_of(run)) {
    case OUTCOME_SUCCEEDED:
        return 0;
    case OUTCOME_START_FAILED:
        return ty_fail(err, TY_ESTART, "%s", line);
    case OUTCOME_NODE_LOST:
        return ty_fail(err, TY_ENODE, "%s", line);
    case OUTCOME_TIME_LIMIT:
        return ty_fail(err, TY_ETIMEOUT, "%s", line);
    case OUTCOME_PREEMPTED:
        return ty_fail(err, TY_EPREEMPTED, "preempted by %s: it can be resumed",
                       str_signal(signal_number, text));
    case OUTCOME_INTERRUPTED:
        return ty_fail(err, TY_EINTERRUPTED, "interrupted by %s",
                       run->interruption.by_program ? "the program that runs it"
                                                    : str_signal(signal_number, text));
    default:
        return ty_fail(err, TY_EWORKER, "%s", line);
    }
}

/* The run's directory is not where it was. */
static int tell_gone(int directory, const char *path, ty_error *err) {
    struct stat held, there;
    if (fstat(directory, &held) < 0 || held.st_nlink == 0 || faccessat(directory, "run.db", F_OK, 0) < 0)
        return ty_fail(err, -ENOENT,
                       "%s was removed while the run went on: run.db, logs and checkpoints are lost", path);
    bool same = stat(path, &there) == 0 && file_is_same(&there, &held);
    return same ? 0 : ty_fail(err, -ENOENT, "%s was moved away while the run went on", path);
}

/* What befell the directory stands behind whatever else the run came to. */
static void add_gone(const struct ty_run *run, struct ty_result *result, int code, ty_error *err) {
    ty_error gone = {0};
    if (tell_gone(run->directory, run->path, &gone) == 0) return;
    CLEANUP_FREE char *before = strdup(err->message);
    (void)ty_fail(err, code, "%s; %s", before != NULL ? before : "it failed", gone.message);
    CLEANUP(buffer_done) struct buffer screen = {0};
    buffer_printf(&screen, "%s  %s\n", result->failure != NULL ? result->failure : "", gone.message);
    if (result->failure == NULL || screen.failed) return;
    free(result->failure);
    result->failure = buffer_take(&screen);
}

/* -- as text: what comes from workers may hold anything, so JSON's strings are escaped here, the line of a
 * success by whoever shows it */

void result_add_text(struct buffer *out, const char *key, const char *text) {
    buffer_printf(out, ", \"%s\": ", key);
    buffer_json_text(out, text);
}

void result_begin_json(const struct ty_result *result, struct buffer *out) {
    buffer_text(out, "{\"name\": ");
    buffer_json_text(out, result->name);
    result_add_text(out, "path", result->path);
    buffer_printf(out, ", \"metrics\": %s", result->metrics != NULL ? result->metrics : "null");
    result_add_text(out, "checkpoint", result->checkpoint);
}

void result_history(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct ty_attempt_info *attempt = &items[i];
        buffer_printf(out, "%s{\"attempt\": %d, \"num_workers\": %d, \"began\": %.9f, \"ended\": ",
                      i > 0 ? ", " : "", attempt->attempt, attempt->num_workers, attempt->began);
        if (attempt->outcome != NULL)
            buffer_printf(out, "%.9f", attempt->ended);
        else
            buffer_text(out, "null");
        buffer_printf(out, ", \"seconds\": %.9f", attempt_seconds(attempt, now));
        result_add_text(out, "outcome", attempt->outcome);
        if (attempt->rank >= 0)
            buffer_printf(out, ", \"rank\": %d", attempt->rank);
        else
            result_add_text(out, "rank", NULL);
        result_add_text(out, "node", attempt->node);
        result_add_text(out, "cause", attempt->cause);
        result_add_text(out, "checkpoint", attempt->checkpoint);
        buffer_char(out, '}');
    }
    buffer_char(out, ']');
}

static void add_number(struct buffer *out, const char *key, int number) {
    buffer_printf(out, ", \"%s\": %d", key, number);
}

static void add_workers(struct buffer *out, const struct ty_run *run, const struct ty_result *result) {
    const struct prepared *prepared = &run->prepared;
    buffer_text(out, ", \"workers\": [");
    for (int rank = 0; rank < result->num_workers; rank++) {
        const struct run_worker *worker = run_worker(run->core, (uint32_t)rank);
        const struct plan_worker *place = &prepared->plan->workers[rank];
        buffer_printf(out, "%s{\"rank\": %d", rank > 0 ? ", " : "", rank);
        result_add_text(out, "node", prepared->cluster->nodes[place->node].name);
        add_number(out, "node_rank", (int)place->node_rank);
        add_number(out, "local_rank", (int)place->local_rank);
        add_number(out, "pid", worker->pid);
        add_number(out, "exit", result->exits[rank]);
        buffer_printf(out, ", \"stopped\": %s}", worker->stopped ? "true" : "false");
    }
    buffer_char(out, ']');
}

static void add_failed_rank(struct buffer *out, int rank, const char *cause, bool first) {
    buffer_printf(out, "%s{\"rank\": %d", first ? "" : ", ", rank);
    result_add_text(out, "cause", cause);
    buffer_char(out, '}');
}

static void add_failed(struct buffer *out, const struct ty_run *run, const struct ty_result *result) {
    const struct run_failure *failure = cause_of(run);
    int first = outcome_of(run) == OUTCOME_NONE || failure->outcome == OUTCOME_NONE ? -1 : failure->rank;
    bool none = first < 0;
    buffer_text(out, ", \"failed\": [");
    if (first >= 0) add_failed_rank(out, first, failure->text, true);
    for (int rank = 0; rank < result->num_workers; rank++) {
        const struct run_worker *worker = run_worker(run->core, (uint32_t)rank);
        char cause[64];
        if (rank == first || !worker->failed) continue;
        /* What is known of a worker that failed, and was not the first. */
        char name[32];
        if (!worker->exited)
            (void)snprintf(cause, 64, "rank %d could not be started", rank);
        else if (WIFSIGNALED(worker->wait_status))
            (void)snprintf(cause, 64, "rank %d was killed by %s", rank,
                           str_signal(WTERMSIG(worker->wait_status), name));
        else
            (void)snprintf(cause, 64, "rank %d exited with code %d", rank, WEXITSTATUS(worker->wait_status));
        add_failed_rank(out, rank, cause, none);
        none = false;
    }
    buffer_char(out, ']');
}

static char *format_result(const struct ty_run *run, const struct ty_result *result, int code,
                           const char *message) {
    const struct run_failure *cause = cause_of(run);
    bool caused = cause->outcome != OUTCOME_NONE;
    struct buffer out = {0};
    result_begin_json(result, &out);
    result_add_text(&out, "summary", result->summary);
    buffer_text(&out, ", \"checkpoints\": ");
    if (run->checkpoints != NULL)
        checkpoints_list(run->checkpoints, true, &out);
    else
        buffer_text(&out, "[]");
    result_add_text(&out, "failure", result->failure);
    add_number(&out, "attempts", result->attempts);
    add_number(&out, "num_workers", result->num_workers);
    add_number(&out, "status", result->status);
    buffer_text(&out, ", \"history\": ");
    result_history(result->history, result->n_history, clock_wall(), &out);
    result_add_text(&out, "outcome", run_outcome_name(outcome_of(run)));
    result_add_text(&out, "cause", caused ? cause->text : NULL);
    if (caused && cause->rank >= 0)
        add_number(&out, "first_rank", cause->rank);
    else
        result_add_text(&out, "first_rank", NULL);
    result_add_text(&out, "first_node", agents_failed_name(run));
    const struct buffer *told = &run->interruption.told;
    buffer_printf(&out, ", \"preemption\": %s", told->size > 0 ? told->data : "null");
    if (code < 0) {
        buffer_printf(&out, ", \"error\": {\"code\": \"%s\"", ty_error_name(code));
        result_add_text(&out, "message", message);
        buffer_char(&out, '}');
    } else {
        buffer_text(&out, ", \"error\": null");
    }
    buffer_text(&out, ", \"exits\": [");
    for (int rank = 0; rank < result->num_workers; rank++)
        buffer_printf(&out, "%s%d", rank > 0 ? ", " : "", result->exits[rank]);
    buffer_char(&out, ']');
    add_workers(&out, run, result);
    add_failed(&out, run, result);
    buffer_char(&out, '}');
    return buffer_take(&out);
}

/* The last word of a run that succeeded, in one line: its name, how long its attempts took, the last metrics of
 * rank 0, the best checkpoint where they are ranked by a metric, else the last one, and the run's directory.
 * "mine succeeded in 3.42 s: loss 0.0505  step 40; best checkpoint by loss: checkpoint_000030; /runs/mine". */
static void add_summary(const struct ty_result *result, const struct checkpoints *checkpoints,
                        struct buffer *out) {
    buffer_printf(out, "%s succeeded in ", result->name);
    /* Of all attempts, those before a resume among them. */
    double seconds = 0;
    for (size_t i = 0; i < result->n_history; i++)
        if (result->history[i].ended > result->history[i].began)
            seconds += result->history[i].ended - result->history[i].began;
    duration_format((nanoseconds)(seconds * (double)NS_PER_S), out);
    if (result->attempts > 1) buffer_printf(out, ", with attempt %d", result->attempts);
    if (result->metrics != NULL) {
        buffer_text(out, ": ");
        progress_words(result->metrics, strlen(result->metrics), out);
    }
    const char *attribute, *best = checkpoints_best(checkpoints, &attribute);
    if (best != NULL) {
        const char *name = strrchr(best, '/');
        buffer_printf(out, attribute != NULL ? "; best checkpoint by %s: " : "; last checkpoint: ", attribute);
        buffer_text(out, name != NULL ? name + 1 : best);
    }
    buffer_printf(out, "; %s", result->path);
}

/* A run that failed has its failure first, and what the journal or the directory lacks behind it; one that
 * succeeded has not where either is lost. */
int result_tell(struct ty_run *run, ty_result **result, ty_error *err) {
    struct ty_result *made;
    int code = make_result(run, &made, err);
    if (code < 0) return code;
    code = tell_outcome(run, err);
    const ty_error *unrecorded = records_error(run->records); /* why the journal lacks something */
    if (code < 0 && unrecorded->code == 0) {
        add_gone(run, made, code, err);
    } else if (code < 0) {
        ty_error cause = *err;
        (void)ty_fail(err, code, "%s; %s", cause.message, unrecorded->message);
    } else {
        code = unrecorded->code < 0 ? ty_fail(err, unrecorded->code, "%s", unrecorded->message)
                                    : tell_gone(run->directory, run->path, err);
    }
    if (code >= 0) {
        struct buffer summary = {0};
        add_summary(made, run->checkpoints, &summary);
        made->summary = buffer_take(&summary);
    }
    made->json = format_result(run, made, code, code < 0 ? err->message : NULL);
    if (made->json == NULL) {
        ty_result_free(made);
        return ty_fail_memory(err);
    }
    *result = made;
    return code;
}
