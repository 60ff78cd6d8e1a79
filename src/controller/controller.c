/* One run from request to result: check, plan, directory, journal, drive. Nothing is made before the plan
 * stands (or the run is known to wait). */
#include "controller/controller.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "controller/directory.h"
#include "controller/drive.h"
#include "worker/result.h"

/* One run on its way. */
struct passage {
    const struct run_request *request;
    struct prepared prepared;
    struct lease_holder *holders;
    size_t n_holders;
    ty_error wait; /* why it must wait; code 0: planned */
    char *name, *path;
    int directory; /* locked; -1 */
    struct journal *journal;
    struct drive_resume resume;
    uint64_t last_checkpoint; /* its number, 0 without */
};

static int choose_name(struct passage *passage, ty_error *err) {
    char made[64];
    const char *name = passage->request->name;
    if (name == NULL) {
        controller_make_name(made);
        name = made;
    }
    passage->name = strdup(name);
    if (passage->name == NULL) return ty_fail_memory(err);
    passage->path = controller_run_path(passage->request->storage_path, name, err);
    return passage->path == NULL ? err->code : 0;
}

/* Plans, or learns that it must wait for others. */
static int plan(struct passage *passage, ty_error *err) {
    int result = prepare_plan(passage->request, passage->name, &passage->prepared, &passage->holders,
                              &passage->n_holders, &passage->wait);
    if (result == TY_EBUSY)
        wait_describe(&passage->prepared.demand, passage->holders, passage->n_holders, &passage->wait);
    if (result == TY_EBUSY && passage->n_holders > 0 && !passage->request->no_wait) {
        log_warning("controller", "waiting: %s", passage->wait.message);
        return 0;
    }
    if (result < 0) return ty_fail(err, result, "%s", passage->wait.message);
    passage->wait = (ty_error){0};
    return 0;
}

static int find_last_attempt(void *context, int64_t sequence, const struct run_event *event) {
    (void)sequence;
    struct drive_resume *resume = context;
    if (event->attempt > resume->attempts) resume->attempts = event->attempt;
    return 0;
}

static int find_last_checkpoint(void *context, const struct journal_checkpoint *checkpoint) {
    struct passage *passage = context;
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", passage->path, checkpoint->name);
    free(passage->resume.checkpoint);
    passage->resume.checkpoint = buffer_take(&path);
    passage->last_checkpoint = checkpoint->number;
    return 0;
}

/* Where an earlier controller of the run left it. */
static int read_past(struct passage *passage, ty_error *err) {
    int result = journal_each_event(passage->journal, 0, find_last_attempt, &passage->resume, err);
    if (result >= 0) result = journal_each_checkpoint(passage->journal, find_last_checkpoint, passage, err);
    if (result >= 0) result = journal_last_number(passage->journal, &passage->resume.last_number, err);
    /* What that controller had begun and the journal does not know was never committed. */
    if (result >= 0) result = checkpoint_sweep(passage->path, passage->last_checkpoint, err);
    return result;
}

static int open_journal(struct passage *passage, ty_error *err) {
    bool existed = false;
    passage->directory = directory_open(passage->path, passage->request->resume, &existed, err);
    if (passage->directory < 0) return passage->directory;
    bool past = existed && journal_exists(passage->path);
    int result = journal_open(passage->path, past ? JOURNAL_APPEND : JOURNAL_CREATE, &passage->journal, err);
    return result < 0 || !past ? result : read_past(passage, err);
}

static void record_run(struct passage *passage) {
    const struct run_request *request = passage->request;
    char host[256] = "";
    json_t *argv = json_array();
    (void)gethostname(host, sizeof host - 1);
    for (const char *const *word = request->argv; *word != NULL; word++)
        (void)json_array_append_new(argv, json_stringn_nocheck(*word, strlen(*word)));
    json_t *data = json_pack("{s:s, s:o, s:s, s:i, s:s, s:s, s:I, s:i, s:f}", "name", passage->name, "argv",
                             argv, "version", TY_VERSION, "pid", (int)getpid(), "host", host, "engine",
                             passage->prepared.engine->name, "num_workers",
                             (json_int_t)passage->prepared.demand.max_workers, "max_failures",
                             request->failures.max_failures, "submitted", (double)clock_wall() / 1e9);
    CLEANUP_FREE char *text = data == NULL ? NULL : json_dumps(data, JSON_COMPACT);
    json_decref(data);
    struct run_event event = {clock_wall(), EVENT_RUN, 0, -1, -1, text};
    (void)journal_event(passage->journal, &event, NULL);
}

static void warn(const struct demand *demand) {
    for (size_t i = 0; i < demand->n_warnings; i++)
        log_warning("scaling", "%s", demand->warnings[i]);
}

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

static int make_result(struct passage *passage, struct drive_end *end, ty_result **out, ty_error *err) {
    struct ty_result *result = calloc(1, sizeof *result);
    if (result == NULL) return ty_fail_memory(err);
    *result = (struct ty_result){
        .name = TAKE(passage->name),
        .path = TAKE(passage->path),
        .metrics = TAKE(end->metrics),
        .checkpoint = TAKE(end->checkpoint),
        .failure = TAKE(end->failure),
        .attempts = end->attempts,
        .num_workers = (int)end->n_workers,
        .exits = TAKE(end->exits),
        .status = end->status,
    };
    add_values(result);
    *out = result;
    return 0;
}

/* The outcome as an error code with its line. */
static int tell_outcome(const struct drive_end *end, ty_error *err) {
    char text[32];
    switch (end->outcome) {
    case OUTCOME_SUCCEEDED:
        return 0;
    case OUTCOME_START_FAILED:
        return ty_fail(err, TY_ESTART, "%s", end->cause.text);
    case OUTCOME_NODE_LOST:
        return ty_fail(err, TY_ENODE, "%s", end->cause.text);
    case OUTCOME_TIME_LIMIT:
        return ty_fail(err, TY_ETIMEOUT, "%s", end->cause.text);
    case OUTCOME_INTERRUPTED:
        return ty_fail(err, TY_EINTERRUPTED, "interrupted by %s", str_signal(end->status - 128, text));
    default:
        return ty_fail(err, TY_EWORKER, "%s", end->cause.text);
    }
}

/* A run whose records are lost has not succeeded. */
static int tell_loss(int directory, const struct drive_end *end, const char *path, ty_error *err) {
    if (end->unrecorded.code < 0) return ty_fail(err, end->unrecorded.code, "%s", end->unrecorded.message);
    struct stat status;
    bool gone =
        fstat(directory, &status) < 0 || status.st_nlink == 0 || faccessat(directory, "run.db", F_OK, 0) < 0;
    if (!gone) return 0;
    return ty_fail(err, -ENOENT, "%s was removed while the run went on: run.db, logs and checkpoints are lost",
                   path);
}

static int run_passage(struct passage *passage, ty_result **result, ty_error *err) {
    struct drive_end end;
    int code = prepare_check(passage->request, &passage->prepared, err);
    if (code >= 0) code = choose_name(passage, err);
    if (code >= 0) code = plan(passage, err);
    if (code >= 0) code = open_journal(passage, err);
    if (code < 0) return code;
    warn(&passage->prepared.demand);
    record_run(passage);
    struct drive_config config = {
        .request = passage->request,
        .prepared = &passage->prepared,
        .journal = passage->journal,
        .name = passage->name,
        .path = passage->path,
        .holders = passage->holders,
        .n_holders = passage->wait.code == 0 ? 0 : passage->n_holders,
        .wait_reason = passage->wait.message,
        .resume = passage->resume,
    };
    code = drive(&config, &end, err);
    if (code < 0) {
        drive_end_done(&end);
        return code;
    }
    code = make_result(passage, &end, result, err);
    if (code >= 0) code = tell_outcome(&end, err);
    if (code >= 0) code = tell_loss(passage->directory, &end, (*result)->path, err);
    drive_end_done(&end);
    return code;
}

int controller_run(const struct run_request *request, ty_result **result, ty_error *err) {
    struct passage passage = {.request = request, .directory = -1};
    ty_error own = {0};
    if (err == NULL) err = &own;
    *result = NULL;
    int code = run_passage(&passage, result, err);
    lease_holders_free(passage.holders, passage.n_holders);
    journal_close(passage.journal);
    prepare_done(&passage.prepared);
    if (passage.directory >= 0) (void)close(passage.directory);
    free(passage.name);
    free(passage.path);
    free(passage.resume.checkpoint);
    return code;
}
