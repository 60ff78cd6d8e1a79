/* Reports: a line that is queued, or, with a checkpoint, the exchange that ends when the checkpoint is
 * committed (docs/design.md 4, "Reports do not block"). What goes on meanwhile is in upload.c. When a
 * checkpoint is committed is the run's to decide (run/report.c). */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/report.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "worker/metrics.h"
#include "worker/upload.h"
#include "worker/worker.h"

/* Metrics in the form in which the caller has them. */
struct report_metrics {
    ty_metrics numbers;
    const char *json; /* NULL: the numbers */
};

/* Puts "COMMAND NAME METRICS" into worker->line; without a name "COMMAND METRICS". */
static int format_line(struct ty_worker *worker, const char *command, const char *name,
                       const struct report_metrics *metrics, ty_error *err) {
    struct buffer *line = &worker->line;
    buffer_clear(line);
    buffer_text(line, command);
    if (name != NULL) {
        int rc = checkpoint_check_name(name, err);
        if (rc < 0) return rc;
        buffer_json_text(line, name);
        buffer_char(line, ' ');
    }
    int rc = metrics->json != NULL ? json_text_append_object("metrics", metrics->json, line, err)
                                   : metrics_format(metrics->numbers, line, err);
    if (rc < 0) return rc;
    buffer_char(line, '\n');
    if (line->failed) {
        buffer_done(line);
        return ty_fail_memory(err);
    }
    if (line->size > WORKER_LINE_MAX)
        return ty_fail(err, TY_EUSAGE, "a report of %zu bytes is longer than %d", line->size, WORKER_LINE_MAX);
    return 0;
}

static int report_metrics(struct ty_worker *worker, const char *name, const struct report_metrics *metrics,
                          ty_error *err) {
    struct link *link;
    int rc = format_line(worker, "report ", name, metrics, err);
    if (rc == 0) rc = worker_link(worker, &link, err);
    if (rc == 0) rc = link_post(link, worker->line.data, worker->line.size, err);
    return rc;
}

/* Takes "directory NUMBER PATH" apart. The caller frees the path. */
static int begin_checkpoint(struct ty_worker *worker, const char *name, const struct report_metrics *metrics,
                            uint64_t *number, char **path, ty_error *err) {
    int rc = format_line(worker, "checkpoint ", name, metrics, err);
    if (rc == 0) rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    const char *rest;
    int64_t value;
    if (!str_prefix(worker->answer.data, "directory ", &rest))
        return worker_fail_answer(worker->answer.data, err);
    const char *space = strchr(rest, ' ');
    if (space == NULL) return worker_fail_answer(worker->answer.data, err);
    CLEANUP_FREE char *digits = strndup(rest, (size_t)(space - rest));
    CLEANUP_FREE char *directory = strdup(space + 1);
    if (digits == NULL || directory == NULL) return ty_fail_memory(err);
    if (!str_to_int64(digits, 0, INT64_MAX, &value)) return worker_fail_answer(worker->answer.data, err);
    *number = (uint64_t)value;
    *path = TAKE(directory);
    return 0;
}

/* Tells the run that this rank's files will not come, so that the other ranks need not wait. Returns the code
 * in `err`. */
static int abort_checkpoint(struct ty_worker *worker, uint64_t number, const ty_error *why) {
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "abort %" PRIu64 " %s\n", number, why->message);
    (void)worker_request(worker, NULL, NULL); /* the first failure is the one to tell */
    return why->code;
}

static int commit_checkpoint(struct ty_worker *worker, uint64_t number, const struct buffer *files,
                             ty_error *err) {
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "commit %" PRIu64 " %s\n", number, files->data);
    int rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    const char *path;
    if (!str_prefix(worker->answer.data, "ok ", &path)) return worker_fail_answer(worker->answer.data, err);
    char *committed = strdup(path);
    if (committed == NULL) return ty_fail_memory(err);
    worker_set_checkpoint(worker, committed, number);
    return 0;
}

/* A checkpoint that was begun has come to this: an error, or (1) a loss with which the run goes on. An agent
 * that is gone is never such a loss. */
static int settle(int rc) {
    bool goes_on = str_equal(getenv(WORKER_LOSS_VARIABLE), "continue");
    return rc < 0 && rc != TY_ECOMM && goes_on ? 1 : rc;
}

/* Copies and commits while the caller waits. 2 where a file of another rank was kept in place of this rank's,
 * with `err` naming it: the checkpoint is committed. */
static int hand_over(struct ty_worker *worker, uint64_t number, const char *staging,
                     const ty_report_options *options, ty_error *err) {
    CLEANUP(buffer_done) struct buffer files = {0};
    ty_error failure = {0};
    bool give = options->delete_after && !checkpoint_is_of_run(options->checkpoint);
    struct checkpoint_copying how = {give ? CHECKPOINT_GIVE : CHECKPOINT_COPY, options->may_differ};
    int rc = checkpoint_copy(options->checkpoint, staging, &how, &files, &failure);
    if (rc >= 0) {
        bool kept = rc == 1;
        rc = commit_checkpoint(worker, number, &files, err);
        if (rc == 0 && give) checkpoint_drop(options->checkpoint);
        if (rc < 0 || !kept) return rc;
        if (err != NULL) *err = failure;
        return 2;
    }
    if (failure.code == 0) rc = ty_fail(&failure, rc, "%s", ty_error_name(rc));
    if (err != NULL) *err = failure;
    return abort_checkpoint(worker, number, &failure);
}

/* What the thread needs to go on alone: the directory out of its owner's reach, or a copy of it. */
static int prepare_upload(struct upload *upload, const ty_report_options *options, ty_error *err) {
    CLEANUP(buffer_done) struct buffer files = {0};
    if (options->delete_after) {
        upload->original = file_absolute(options->checkpoint);
        if (upload->original == NULL)
            return ty_fail(err, -errno, "checkpoint %s: %s", options->checkpoint, strerror(errno));
        int rc = checkpoint_take(options->checkpoint, upload->staging, &upload->source, err);
        if (rc < 0) return rc;
        upload->give = upload->source != NULL;
        if (upload->give) return 0;
    }
    struct checkpoint_copying how = {CHECKPOINT_COPY, options->may_differ};
    int rc = checkpoint_copy(options->checkpoint, upload->staging, &how, &files, err);
    if (rc < 0) return rc;
    upload->files = buffer_take(&files);
    return upload->files == NULL ? ty_fail_memory(err) : 0;
}

/* Of a copy that the caller waits for, or of a directory that is his no longer, the thread does the rest.
 * `staging` is stolen. */
static int hand_over_later(struct ty_worker *worker, uint64_t number, char *staging,
                           const ty_report_options *options, ty_error *err) {
    ty_error failure = {0};
    struct upload *upload = calloc(1, sizeof *upload);
    int rc = upload == NULL ? ty_fail_memory(&failure) : 0;
    if (rc == 0) {
        *upload = (struct upload){.number = number, .staging = staging, .may_differ = options->may_differ};
        rc = prepare_upload(upload, options, &failure);
    } else {
        free(staging);
    }
    if (rc == 0) rc = upload_post(&upload, &failure);
    if (rc == 0) return 0;
    if (upload != NULL && upload->give) checkpoint_give_back(upload->source, upload->original);
    upload_free(upload);
    if (err != NULL) *err = failure;
    return abort_checkpoint(worker, number, &failure);
}

/* A place as a commit says it: a JSON string of an absolute path or an address. */
static int format_place(const char *place, struct buffer *out, ty_error *err) {
    CLEANUP_FREE char *absolute = checkpoint_is_address(place) ? strdup(place) : file_absolute(place);
    if (absolute == NULL) return ty_fail(err, -errno, "checkpoint %s: %s", place, strerror(errno));
    buffer_json_text(out, absolute);
    return out->failed ? ty_fail_memory(err) : 0;
}

/* What is wrong with the caller's directory or place is found before the checkpoint is begun: from then on all
 * ranks wait for this rank's files, or for word that they will not come. The failure of an upload before is
 * told first, and in place of this report. */
static int report(struct ty_worker *worker, const struct report_metrics *metrics,
                  const ty_report_options *options, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "report: the worker is NULL");
    int rc = settle(upload_failure(err));
    if (rc != 0) return rc;
    if (options->checkpoint == NULL) return report_metrics(worker, options->name, metrics, err);
    bool elsewhere = options->mode == TY_NO_UPLOAD;
    struct stat status = {.st_mode = S_IFDIR};
    if (!elsewhere && stat(options->checkpoint, &status) < 0)
        return ty_fail(err, TY_EUSAGE, "checkpoint %s: %s", options->checkpoint, strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return ty_fail(err, TY_EUSAGE, "checkpoint %s is not a directory", options->checkpoint);
    uint64_t number;
    CLEANUP_FREE char *staging = NULL;
    CLEANUP(buffer_done) struct buffer place = {0};
    if (elsewhere) rc = format_place(options->checkpoint, &place, err);
    if (rc == 0) rc = begin_checkpoint(worker, options->name, metrics, &number, &staging, err);
    if (rc < 0) return rc;
    if (elsewhere) {
        rc = commit_checkpoint(worker, number, &place, err);
    } else if (options->mode == TY_ASYNC) {
        rc = hand_over_later(worker, number, TAKE(staging), options, err);
    } else {
        rc = hand_over(worker, number, staging, options, err);
    }
    return settle(rc);
}

int ty_report(ty_worker *worker, ty_metrics metrics, const char *checkpoint, ty_error *err) {
    return report(worker, &(struct report_metrics){.numbers = metrics},
                  &(ty_report_options){.checkpoint = checkpoint}, err);
}

int ty_report_json(ty_worker *worker, const char *metrics_json, const char *checkpoint, ty_error *err) {
    return ty_report_with(worker, metrics_json, &(ty_report_options){.checkpoint = checkpoint}, err);
}

int ty_report_with(ty_worker *worker, const char *metrics_json, const ty_report_options *options,
                   ty_error *err) {
    if (metrics_json == NULL) return ty_fail(err, TY_EUSAGE, "report: the metrics are NULL");
    if (options == NULL) return ty_fail(err, TY_EUSAGE, "report: the options are NULL");
    if (options->mode < TY_SYNC || options->mode > TY_NO_UPLOAD)
        return ty_fail(err, TY_EUSAGE, "report: mode %d is none of TY_SYNC, TY_ASYNC and TY_NO_UPLOAD",
                       (int)options->mode);
    return report(worker, &(struct report_metrics){.json = metrics_json}, options, err);
}

int ty_report_drain(ty_worker *worker, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "report: the worker is NULL");
    /* A child without a channel of its own has nothing to send, and opens none for that. */
    int rc = worker->link != NULL && worker->pid == getpid() ? link_flush(worker->link, err) : 0;
    return rc < 0 ? rc : settle(upload_drain(err));
}

bool ty_report_is_writing(const ty_worker *worker) {
    return worker != NULL && upload_is_writing();
}

int ty_report_begin(ty_worker *worker, const char *metrics_json, const char *name, uint64_t *number,
                    char **path, ty_error *err) {
    if (worker == NULL || metrics_json == NULL)
        return ty_fail(err, TY_EUSAGE, "report: the %s NULL", worker == NULL ? "worker is" : "metrics are");
    if (number == NULL || path == NULL)
        return ty_fail(err, TY_EUSAGE, "report: there is no place for the %s: it is NULL",
                       number == NULL ? "number" : "path");
    int rc = settle(upload_failure(err));
    if (rc != 0) return rc;
    return begin_checkpoint(worker, name, &(struct report_metrics){.json = metrics_json}, number, path, err);
}

/* How the upload of the caller ended, as one for the thread: a place to commit, or why there is none. A place
 * that cannot be told is such a reason as well, as all ranks wait for this checkpoint. */
int ty_report_end(ty_worker *worker, uint64_t number, const char *place, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "report: the worker is NULL");
    CLEANUP(buffer_done) struct buffer files = {0};
    CLEANUP(buffer_done) struct buffer staging = {0};
    ty_error why = {.message = "its upload failed"};
    struct upload *upload = calloc(1, sizeof *upload);
    if (upload == NULL) return settle(ty_fail_memory(err));
    upload->number = number;
    checkpoint_staging_path(worker->run_path, number, worker->attempt, &staging);
    bool is_staged = place != NULL && str_equal(place, staging.data);
    if (is_staged)
        upload->files = strdup("[]");
    else if (place != NULL && format_place(place, &files, &why) == 0)
        upload->files = buffer_take(&files);
    else
        upload->failed = strdup(why.message);
    bool is_short = staging.failed || (upload->files == NULL && upload->failed == NULL);
    int rc = is_short ? ty_fail_memory(err) : 0;
    if (rc == 0)
        rc = upload_wait(&upload, err);
    else
        upload_free(upload);
    return place == NULL && rc == TY_EUSAGE ? 0 : settle(rc); /* the caller knows that it failed */
}

/* Over a channel of its own: another thread may be in the middle of a request. */
static int ask_beside(const struct buffer *line, int64_t timeout_ms, struct buffer *answer,
                      struct buffer *value, ty_error *err) {
    struct link *link;
    if (line->failed) return ty_fail_memory(err);
    int rc = link_open_own(&link, err);
    if (rc < 0) return rc;
    rc = link_request_within(link, line->data, line->size, timeout_ms, answer, value, err);
    link_close(link);
    return rc;
}

/* First for the other ranks to make their reports, then for the commits, which uploads may put off: what is
 * kept when the time is up. The first request is behind this rank's own reports on their channel. */
static int list_within(struct ty_worker *worker, double timeout_s, struct buffer *value, ty_error *err) {
    int64_t timeout_ms = worker_timeout_ms(timeout_s);
    nanoseconds begun = clock_monotonic();
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "reported 0 %" PRId64 "\n", timeout_ms);
    int rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    rc = TY_ETIMEOUT;
    buffer_clear(&worker->line);
    buffer_text(&worker->line, "checkpoints\n");
    int64_t left = timeout_ms - (clock_monotonic() - begun) / NS_PER_MS;
    if (str_equal(worker->answer.data, "ok"))
        rc = ask_beside(&worker->line, timeout_ms < 0 ? -1 : left > 0 ? left : 0, &worker->answer, value, err);
    if (rc != TY_ETIMEOUT) return rc;
    buffer_clear(&worker->line);
    buffer_text(&worker->line, "checkpoints now\n");
    return worker_request(worker, value, err);
}

int ty_checkpoints_reported(ty_worker *worker, double timeout_s, char **json, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "checkpoints: the worker is NULL");
    if (json == NULL) return ty_fail(err, TY_EUSAGE, "checkpoints: there is no place for the list: it is NULL");
    if (isnan(timeout_s)) return ty_fail(err, TY_EUSAGE, "checkpoints: the time-out is not a number");
    CLEANUP(buffer_done) struct buffer value = {0};
    int rc = 0;
    if (timeout_s < 0) {
        rc = settle(upload_drain(err)); /* nobody waits for what this rank has not handed over yet */
        buffer_clear(&worker->line);
        buffer_text(&worker->line, "checkpoints\n");
        if (rc >= 0) rc = worker_request(worker, &value, err);
    } else {
        rc = list_within(worker, timeout_s, &value, err);
    }
    if (rc < 0) return rc;
    if (!str_prefix(worker->answer.data, "value ", NULL)) return worker_fail_answer(worker->answer.data, err);
    char *text = strndup(value.size > 0 ? value.data : "", value.size);
    if (text == NULL) return ty_fail_memory(err);
    *json = text;
    return 0;
}

/* What the thread has committed meanwhile counts as well, and is taken over when it is asked for: the worker's
 * own fields are no concern of the thread. */
const char *ty_checkpoint_latest(const ty_worker *worker) {
    struct ty_worker *own = (struct ty_worker *)worker;
    uint64_t number;
    char *latest = upload_take_latest(&number);
    if (latest == NULL || number < worker->checkpoint_number) {
        free(latest);
        return worker->checkpoint;
    }
    worker_set_checkpoint(own, latest, number);
    return latest;
}

int ty_report_wait(ty_worker *worker, uint64_t count, double timeout_s, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "report: the worker is NULL");
    if (isnan(timeout_s)) return ty_fail(err, TY_EUSAGE, "report: the time-out is not a number");
    if (count > INT64_MAX)
        return ty_fail(err, TY_EUSAGE, "report: a count of %" PRIu64 " is over the limit of %" PRId64, count,
                       INT64_MAX);
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP(buffer_done) struct buffer answer = {0};
    buffer_printf(&line, "reported %" PRIu64 " %" PRId64 "\n", count, worker_timeout_ms(timeout_s));
    int rc = ask_beside(&line, -1, &answer, NULL, err);
    if (rc == 0) rc = worker_check_answer(answer.data, err);
    if (rc < 0 || str_equal(answer.data, "ok")) return rc;
    const char *missing;
    if (str_prefix(answer.data, "timeout", &missing)) return worker_fail_missing(missing, err);
    return worker_fail_answer(answer.data, err);
}

int ty_report_failure(const char *failure_json, ty_error *err) {
    if (failure_json == NULL) return ty_fail(err, TY_EUSAGE, "report: the failure is NULL");
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP(buffer_done) struct buffer answer = {0};
    buffer_printf(&line, "failure %zu\n%s", strlen(failure_json), failure_json);
    int rc = ask_beside(&line, -1, &answer, NULL, err);
    if (rc == 0 && (rc = worker_check_answer(answer.data, err)) < 0) (void)ty_wrap(err, "report");
    return rc;
}
