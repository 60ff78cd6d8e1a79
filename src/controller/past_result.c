/* The result of a run that another process drove, as its journal tells it: what its events come to, the last
 * metrics of rank 0, and the checkpoints that are kept. Nothing is taken from a journal that cannot be
 * right. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "controller/result.h"
#include "journal/journal.h"
#include "worker/driver.h"

struct past_reading {
    const char *path;
    struct run_replay replay;
    char *metrics;             /* of the last report of rank 0; NULL: there is none */
    struct buffer checkpoints; /* the items of the JSON list */
    char *latest;              /* name of the newest checkpoint, NULL without */
};

static void forget(struct past_reading *reading) {
    replay_done(&reading->replay);
    free(TAKE(reading->metrics));
    free(TAKE(reading->latest));
    buffer_done(&reading->checkpoints);
}

static int fail_damaged(const struct past_reading *reading, const char *what, ty_error *err) {
    return ty_fail(err, TY_ECORRUPT, "%s/run.db is damaged: %s", reading->path, what);
}

/* Metrics go into JSON as they are. */
static bool is_object(const char *text, size_t size) {
    json_t *object = metrics_read(text, size);
    bool is_one = object != NULL;
    json_decref(object);
    return is_one;
}

static int take_report(void *context, const struct journal_report *report) {
    struct past_reading *reading = context;
    free(reading->metrics);
    reading->metrics = strndup(report->metrics, report->metrics_size);
    return reading->metrics == NULL ? -ENOMEM : 0;
}

/* TY_ECORRUPT where the row is none. */
static int take_checkpoint(void *context, const struct journal_checkpoint *row) {
    struct past_reading *reading = context;
    struct buffer *out = &reading->checkpoints;
    if (row->name[0] == '\0') return TY_ECORRUPT;
    if (row->metrics != NULL && !is_object(row->metrics, strlen(row->metrics))) return TY_ECORRUPT;
    buffer_printf(out, "%s{\"number\": %llu, \"name\": ", out->size > 0 ? ", " : "",
                  (unsigned long long)row->number);
    buffer_json_text(out, row->name);
    buffer_printf(out, ", \"metrics\": %s}", row->metrics != NULL ? row->metrics : "null");
    free(reading->latest);
    reading->latest = strdup(row->name);
    return reading->latest == NULL || out->failed ? -ENOMEM : 0;
}

static int read_all(void *context, struct journal *journal, ty_error *err) {
    struct past_reading *reading = context;
    forget(reading);
    int result = journal_replay(journal, &reading->replay, err);
    for (size_t i = 0; i < reading->replay.n_attempts && result >= 0; i++) {
        const struct ty_attempt_info *attempt = &reading->replay.attempts[i];
        if (attempt->num_workers <= 0) return fail_damaged(reading, "an attempt has no workers", err);
        if (attempt->began <= 0) return fail_damaged(reading, "an attempt has no time", err);
    }
    if (result >= 0) result = journal_each_report(journal, 0, 1, take_report, reading, err);
    if (result >= 0 && reading->metrics != NULL && !is_object(reading->metrics, strlen(reading->metrics)))
        return fail_damaged(reading, "metrics of a report are no JSON object", err);
    if (result < 0) return result;
    ty_error why = {0};
    result = journal_each_checkpoint(journal, take_checkpoint, reading, &why);
    if (result == TY_ECORRUPT && why.code == 0)
        return fail_damaged(reading, "a checkpoint has no name, or metrics that are no JSON object", err);
    if (result == -ENOMEM) return ty_fail_memory(err);
    return result < 0 ? ty_fail(err, result, "%s", why.message) : 0;
}

static char *format(const struct past_reading *reading, const struct ty_result *result) {
    const struct run_replay *replay = &reading->replay;
    const struct event_run *run = &replay->run.event.of.run;
    const struct event_run_end *end = &replay->end.event.of.run_end;
    struct buffer out = {0};
    result_begin_json(result, &out);
    buffer_text(&out, ", \"checkpoints\": [");
    if (reading->checkpoints.size > 0)
        buffer_append(&out, reading->checkpoints.data, reading->checkpoints.size);
    buffer_printf(&out, "], \"attempts\": %d, \"num_workers\": %d, \"history\": ", result->attempts,
                  result->num_workers);
    result_history(result->history, result->n_history, replay->last, &out);
    result_add_text(&out, "outcome", end->outcome);
    result_add_text(&out, "cause", end->cause);
    result_add_text(&out, "checkpoint_score_attribute", run->checkpoint_score_attribute);
    result_add_text(&out, "checkpoint_score_order", run->checkpoint_score_order);
    if (run->num_to_keep <= 0) /* unknown, also where nothing is */
        buffer_text(&out, ", \"num_to_keep\": null}");
    else
        buffer_printf(&out, ", \"num_to_keep\": %lld}", (long long)run->num_to_keep);
    return out.failed ? (buffer_done(&out), NULL) : buffer_take(&out);
}

static int make_result(struct past_reading *reading, struct ty_result *result) {
    const struct run_replay *replay = &reading->replay;
    const char *name = replay->run.event.of.run.name;
    size_t n = replay->n_attempts;
    result->name = strdup(name != NULL ? name : strrchr(reading->path, '/') + 1);
    result->path = strdup(reading->path);
    result->metrics = TAKE(reading->metrics);
    if (result->name == NULL || result->path == NULL) return -ENOMEM;
    if (reading->latest != NULL) {
        struct buffer path = {0};
        checkpoint_path(reading->path, reading->latest, &path);
        if (path.failed) return -ENOMEM;
        result->checkpoint = buffer_take(&path);
    }
    result->attempts = n > 0 ? replay->attempts[n - 1].attempt : 0;
    result->num_workers = n > 0 ? replay->attempts[n - 1].num_workers : 0;
    result->exits = calloc((size_t)result->num_workers + 1, sizeof *result->exits);
    if (result->exits == NULL) return -ENOMEM;
    for (int rank = 0; rank < result->num_workers; rank++)
        result->exits[rank] = -1; /* the journal keeps no exit statuses */
    result->n_history = n;
    result->history = TAKE(reading->replay.attempts);
    reading->replay.n_attempts = 0;
    result->json = format(reading, result);
    return result->json == NULL ? -ENOMEM : 0;
}

int past_result_read(const char *path, ty_result **result, ty_error *err) {
    struct past_reading reading = {.path = path};
    if (path[0] != '/')
        return ty_fail(err, TY_EUSAGE, "ty_result_read: the path \"%.200s\" must be absolute", path);
    struct ty_result *made = calloc(1, sizeof *made);
    int code = made == NULL ? ty_fail_memory(err) : journal_read(path, read_all, &reading, err);
    if (code >= 0 && make_result(&reading, made) < 0) code = ty_fail_memory(err);
    if (code >= 0) result_add_values(made);
    if (code >= 0)
        *result = made;
    else
        ty_result_free(made);
    forget(&reading);
    return code < 0 ? code : 0;
}
