/* The end of a run as a result: for the getters, as JSON, and as an error code with its line. */
#include "controller/outcome.h"

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
#include "base/str.h"
#include "controller/failure.h"
#include "worker/result.h"

/* What is not finite travels as one of three strings (docs/worker-protocol.md). */
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

static void add_values(struct ty_result *result) {
    json_t *object = result->metrics == NULL ? NULL : json_loads(result->metrics, 0, NULL);
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

static int make_result(const struct outcome *outcome, struct ty_result **out, ty_error *err) {
    struct drive_end *end = outcome->end;
    struct history *history = outcome->config->history;
    struct ty_result *result = calloc(1, sizeof *result);
    if (result == NULL) return ty_fail_memory(err);
    *result = (struct ty_result){
        .name = strdup(outcome->config->name),
        .path = strdup(outcome->config->path),
        .metrics = TAKE(end->metrics),
        .checkpoint = TAKE(end->checkpoint),
        .failure = TAKE(end->failure),
        .attempts = end->attempts,
        .num_workers = (int)end->n_workers,
        .exits = TAKE(end->exits),
        .status = end->status,
        .n_history = history->n,
        .history = TAKE(history->items),
    };
    if (result->name == NULL || result->path == NULL) {
        ty_result_free(result);
        return ty_fail_memory(err);
    }
    add_values(result);
    *out = result;
    return 0;
}

/* The outcome as an error code with its line. */
static int tell_outcome(const struct drive_end *end, ty_error *err) {
    char text[32];
    CLEANUP(buffer_done) struct buffer cause = {0};
    failure_line(&end->cause, end->cause_node, &cause);
    const char *line = cause.failed ? end->cause.text : cause.data;
    switch (end->outcome) {
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
                       str_signal(end->status - 128, text));
    case OUTCOME_INTERRUPTED:
        return ty_fail(err, TY_EINTERRUPTED, "interrupted by %s",
                       end->unsignalled ? "the program that runs it" : str_signal(end->status - 128, text));
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
    bool same = stat(path, &there) == 0 && there.st_dev == held.st_dev && there.st_ino == held.st_ino;
    return same ? 0 : ty_fail(err, -ENOENT, "%s was moved away while the run went on", path);
}

/* What befell the directory stands behind whatever else the run came to. */
static int add_gone(const struct outcome *outcome, struct ty_result *result, int code, ty_error *err) {
    ty_error gone = {0};
    if (tell_gone(outcome->directory, outcome->config->path, &gone) == 0) return code;
    CLEANUP_FREE char *before = strdup(err->message);
    (void)ty_fail(err, code, "%s; %s", before != NULL ? before : "it failed", gone.message);
    CLEANUP(buffer_done) struct buffer screen = {0};
    buffer_printf(&screen, "%s  %s\n", result->failure != NULL ? result->failure : "", gone.message);
    if (result->failure == NULL || screen.failed) return code;
    free(result->failure);
    result->failure = buffer_take(&screen);
    return code;
}

/* A run whose records are lost has not succeeded. */
static int tell(const struct outcome *outcome, struct ty_result *result, ty_error *err) {
    const struct drive_end *end = outcome->end;
    int code = tell_outcome(end, err);
    if (code < 0 && end->unrecorded.code == 0) return add_gone(outcome, result, code, err);
    if (code < 0) {
        ty_error cause = *err;
        return ty_fail(err, code, "%s; %s", cause.message, end->unrecorded.message);
    }
    if (end->unrecorded.code < 0) return ty_fail(err, end->unrecorded.code, "%s", end->unrecorded.message);
    return tell_gone(outcome->directory, outcome->config->path, err);
}

/* -- as JSON */

static void add_text(struct buffer *out, const char *key, const char *text) {
    buffer_printf(out, ", \"%s\": ", key);
    buffer_json_text(out, text);
}

static void add_number(struct buffer *out, const char *key, int number) {
    buffer_printf(out, ", \"%s\": %d", key, number);
}

static void add_error(struct buffer *out, int code, const char *message) {
    if (code >= 0) {
        buffer_text(out, ", \"error\": null");
        return;
    }
    buffer_printf(out, ", \"error\": {\"code\": \"%s\"", ty_error_name(code));
    add_text(out, "message", message);
    buffer_char(out, '}');
}

static void add_exits(struct buffer *out, const struct ty_result *result) {
    buffer_text(out, ", \"exits\": [");
    for (int rank = 0; rank < result->num_workers; rank++)
        buffer_printf(out, "%s%d", rank > 0 ? ", " : "", result->exits[rank]);
    buffer_char(out, ']');
}

static void add_workers(struct buffer *out, const struct outcome *outcome, const struct ty_result *result) {
    const struct prepared *prepared = outcome->config->prepared;
    buffer_text(out, ", \"workers\": [");
    for (int rank = 0; rank < result->num_workers; rank++) {
        const struct run_worker *worker = &outcome->end->workers[rank];
        const struct plan_worker *place = &prepared->plan->workers[rank];
        buffer_printf(out, "%s{\"rank\": %d", rank > 0 ? ", " : "", rank);
        add_text(out, "node", prepared->cluster->nodes[place->node].name);
        add_number(out, "node_rank", (int)place->node_rank);
        add_number(out, "local_rank", (int)place->local_rank);
        add_number(out, "pid", worker->pid);
        add_number(out, "exit", result->exits[rank]);
        buffer_printf(out, ", \"stopped\": %s}", worker->stopped ? "true" : "false");
    }
    buffer_char(out, ']');
}

/* What is known of a worker that failed, and was not the first. */
static void describe_failure(int rank, const struct run_worker *worker, char text[64]) {
    char name[32];
    if (!worker->exited)
        (void)snprintf(text, 64, "rank %d could not be started", rank);
    else if (WIFSIGNALED(worker->wait_status))
        (void)snprintf(text, 64, "rank %d was killed by %s", rank,
                       str_signal(WTERMSIG(worker->wait_status), name));
    else
        (void)snprintf(text, 64, "rank %d exited with code %d", rank, WEXITSTATUS(worker->wait_status));
}

static void add_failed_rank(struct buffer *out, int rank, const char *cause, bool first) {
    buffer_printf(out, "%s{\"rank\": %d", first ? "" : ", ", rank);
    add_text(out, "cause", cause);
    buffer_char(out, '}');
}

static void add_failed(struct buffer *out, const struct drive_end *end) {
    int first = end->outcome == OUTCOME_NONE || end->cause.outcome == OUTCOME_NONE ? -1 : end->cause.rank;
    bool none = first < 0;
    buffer_text(out, ", \"failed\": [");
    if (first >= 0) add_failed_rank(out, first, end->cause.text, true);
    for (int rank = 0; rank < (int)end->n_workers; rank++) {
        char cause[64];
        if (rank == first || !end->workers[rank].failed) continue;
        describe_failure(rank, &end->workers[rank], cause);
        add_failed_rank(out, rank, cause, none);
        none = false;
    }
    buffer_char(out, ']');
}

static char *format_result(const struct outcome *outcome, const struct ty_result *result, int code,
                           const char *message) {
    const struct run_failure *cause = &outcome->end->cause;
    bool caused = cause->outcome != OUTCOME_NONE;
    struct buffer out = {0};
    buffer_text(&out, "{\"name\": ");
    buffer_json_text(&out, result->name);
    add_text(&out, "path", result->path);
    buffer_printf(&out, ", \"metrics\": %s", result->metrics != NULL ? result->metrics : "null");
    add_text(&out, "checkpoint", result->checkpoint);
    add_text(&out, "failure", result->failure);
    add_number(&out, "attempts", result->attempts);
    add_number(&out, "num_workers", result->num_workers);
    add_number(&out, "status", result->status);
    buffer_text(&out, ", \"history\": ");
    history_json(result->history, result->n_history, clock_wall(), &out);
    add_text(&out, "outcome", run_outcome_name(outcome->end->outcome));
    add_text(&out, "cause", caused ? cause->text : NULL);
    if (caused && cause->rank >= 0)
        add_number(&out, "first_rank", cause->rank);
    else
        add_text(&out, "first_rank", NULL);
    add_text(&out, "first_node", outcome->end->cause_node);
    const char *preemption = outcome->end->preemption;
    buffer_printf(&out, ", \"preemption\": %s", preemption != NULL ? preemption : "null");
    add_error(&out, code, message);
    add_exits(&out, result);
    add_workers(&out, outcome, result);
    add_failed(&out, outcome->end);
    buffer_char(&out, '}');
    return buffer_take(&out);
}

int outcome_tell(const struct outcome *outcome, ty_result **result, ty_error *err) {
    struct ty_result *made;
    int code = make_result(outcome, &made, err);
    if (code < 0) return code;
    code = tell(outcome, made, err);
    made->json = format_result(outcome, made, code, code < 0 ? err->message : NULL);
    if (made->json == NULL) {
        ty_result_free(made);
        return ty_fail_memory(err);
    }
    *result = made;
    return code;
}
