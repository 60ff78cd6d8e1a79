/* Reports: a line that is queued, or, with a checkpoint, the exchange that ends when the checkpoint is
 * committed (DESIGN.md 4, "Reports do not block"). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "worker/json_text.h"
#include "worker/metrics.h"
#include "worker/worker.h"

/* Metrics in the form in which the caller has them. */
struct report_metrics {
    ty_metrics numbers;
    const char *json; /* NULL: the numbers */
};

/* Ends the line that was begun in worker->line. */
static int end_line(struct ty_worker *worker, ty_error *err) {
    struct buffer *line = &worker->line;
    buffer_char(line, '\n');
    if (line->failed) {
        buffer_done(line);
        return ty_fail_memory(err);
    }
    if (line->size > WORKER_LINE_MAX)
        return ty_fail(err, TY_EUSAGE, "a report of %zu bytes is longer than %d", line->size, WORKER_LINE_MAX);
    return 0;
}

/* Puts "COMMAND METRICS" into worker->line. */
static int format_line(struct ty_worker *worker, const char *command, const struct report_metrics *metrics,
                       ty_error *err) {
    buffer_clear(&worker->line);
    buffer_text(&worker->line, command);
    int rc = metrics->json != NULL ? json_text_append_object("metrics", metrics->json, &worker->line, err)
                                   : metrics_format(metrics->numbers, &worker->line, err);
    return rc < 0 ? rc : end_line(worker, err);
}

static int report_metrics(struct ty_worker *worker, const struct report_metrics *metrics, ty_error *err) {
    struct link *link;
    int rc = format_line(worker, "report ", metrics, err);
    if (rc == 0) rc = worker_link(worker, &link, err);
    if (rc == 0) rc = link_post(link, worker->line.data, worker->line.size, err);
    return rc;
}

/* Takes "directory NUMBER PATH" apart; `path` lies in the answer. */
static int begin_checkpoint(struct ty_worker *worker, const struct report_metrics *metrics, int64_t *number,
                            char **path, ty_error *err) {
    int rc = format_line(worker, "checkpoint ", metrics, err);
    if (rc == 0) rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    const char *rest;
    if (!str_prefix(worker->answer.data, "directory ", &rest)) return worker_fail_answer(worker, err);
    const char *space = strchr(rest, ' ');
    if (space == NULL) return worker_fail_answer(worker, err);
    CLEANUP_FREE char *digits = strndup(rest, (size_t)(space - rest));
    char *directory = strdup(space + 1);
    if (digits == NULL || directory == NULL) {
        free(directory);
        return ty_fail_memory(err);
    }
    if (!str_to_int64(digits, 0, INT64_MAX, number)) {
        free(directory);
        return worker_fail_answer(worker, err);
    }
    *path = directory;
    return 0;
}

/* Tells the run that this rank's files will not come, so that the other ranks need not wait. Returns the code
 * in `err`. */
static int abort_checkpoint(struct ty_worker *worker, int64_t number, const ty_error *why) {
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "abort %" PRId64 " %s\n", number, why->message);
    (void)worker_request(worker, NULL, NULL); /* the first failure is the one to tell */
    return why->code;
}

static int commit_checkpoint(struct ty_worker *worker, int64_t number, const struct buffer *files,
                             ty_error *err) {
    /* A list too long for a line is made by the run itself, which then knows the sizes only. */
    bool fits = files->size < WORKER_LINE_MAX - 64;
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "commit %" PRId64 " %s\n", number,
                  fits && files->size > 0 ? files->data : "[]");
    int rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    const char *path;
    if (!str_prefix(worker->answer.data, "ok ", &path)) return worker_fail_answer(worker, err);
    char *committed = strdup(path);
    if (committed == NULL) return ty_fail_memory(err);
    free(worker->checkpoint);
    worker->checkpoint = committed;
    return 0;
}

static int report_checkpoint(struct ty_worker *worker, const struct report_metrics *metrics, const char *source,
                             ty_error *err) {
    struct stat status;
    if (stat(source, &status) < 0) return ty_fail(err, TY_EUSAGE, "checkpoint %s: %s", source, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return ty_fail(err, TY_EUSAGE, "checkpoint %s is not a directory", source);
    int64_t number;
    CLEANUP_FREE char *staging = NULL;
    int rc = begin_checkpoint(worker, metrics, &number, &staging, err);
    if (rc < 0) return rc;
    CLEANUP(buffer_done) struct buffer files = {0};
    ty_error failure = {0};
    rc = checkpoint_copy(source, staging, &files, &failure);
    if (rc == 0) return commit_checkpoint(worker, number, &files, err);
    if (failure.code == 0) rc = ty_fail(&failure, rc, "%s", ty_error_name(rc));
    if (err != NULL) *err = failure;
    return abort_checkpoint(worker, number, &failure);
}

static int report(struct ty_worker *worker, const struct report_metrics *metrics, const char *checkpoint,
                  ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "report: the worker is NULL");
    if (checkpoint == NULL) return report_metrics(worker, metrics, err);
    return report_checkpoint(worker, metrics, checkpoint, err);
}

int ty_report(ty_worker *worker, ty_metrics metrics, const char *checkpoint, ty_error *err) {
    return report(worker, &(struct report_metrics){.numbers = metrics}, checkpoint, err);
}

int ty_report_json(ty_worker *worker, const char *metrics_json, const char *checkpoint, ty_error *err) {
    if (metrics_json == NULL) return ty_fail(err, TY_EUSAGE, "report: the metrics are NULL");
    return report(worker, &(struct report_metrics){.json = metrics_json}, checkpoint, err);
}
