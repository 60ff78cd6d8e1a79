/* One run from request to result: check, plan, directory, journal, drive. Nothing is made before the plan
 * stands (or the run is known to wait). Every face goes through the same steps. */
#include "controller/controller.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "controller/directory.h"
#include "controller/drive.h"
#include "controller/outcome.h"
#include "controller/run_directory.h"
#include "controller/signals.h"

struct controller {
    const struct run_request *request;
    struct prepared prepared;
    struct lease_holder *holders;
    size_t n_holders;
    ty_error wait; /* why it must wait; code 0: planned */
    char *name, *path;
    int directory; /* -1 */
    struct run_lock *lock;
    struct records *records;
    struct drive_resume resume;
    char id[CHECKPOINT_RUN_SIZE]; /* for the run's life: on record since its first controller */
    bool past;                    /* an earlier controller of the run left a journal */
    struct checkpoints *checkpoints;
    struct events events;
    struct history history;
    struct drive_config config;
    struct drive *drive; /* NULL: not begun */
    bool held;           /* the storage did not answer in the end */
};

static int set_name(struct controller *controller, const char *name, ty_error *err) {
    free(controller->name);
    free(controller->path);
    controller->path = NULL;
    controller->name = strdup(name);
    if (controller->name == NULL) return ty_fail_memory(err);
    controller->path = controller_run_path(controller->request->settings.storage_path, name, err);
    return controller->path == NULL ? err->code : 0;
}

/* Many runs of one second may have made the same name up. */
static int choose_name(struct controller *controller, ty_error *err) {
    char made[64];
    int result;
    if (controller->request->settings.name != NULL)
        return set_name(controller, controller->request->settings.name, err);
    do {
        controller_make_name(made);
        result = set_name(controller, made, err);
    } while (result >= 0 && access(controller->path, F_OK) == 0);
    return result;
}

/* Plans, or learns that it must wait for others. */
static int plan(struct controller *controller, ty_error *err) {
    int result = prepare_plan(controller->request, controller->name, &controller->prepared,
                              &controller->holders, &controller->n_holders, &controller->wait);
    if (result == TY_EBUSY)
        wait_describe(&controller->prepared.demand, controller->holders, controller->n_holders,
                      &controller->wait);
    if (result == TY_EBUSY && controller->n_holders > 0 && !controller->request->settings.no_wait) {
        log_warning("controller", "waiting: %s", controller->wait.message);
        return 0;
    }
    if (result < 0) return ty_fail(err, result, "%s", controller->wait.message);
    controller->wait = (ty_error){0};
    return 0;
}

static void note_id(struct controller *controller, const char *text) {
    json_t *data = text == NULL ? NULL : json_loads(text, JSON_ALLOW_NUL, NULL);
    const char *id = json_string_value(json_object_get(data, "id"));
    if (controller->id[0] == '\0' && id != NULL && strlen(id) < sizeof controller->id)
        strcpy(controller->id, id);
    json_decref(data);
}

static int make_id(struct controller *controller, ty_error *err) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return ty_fail(err, -EIO, "cannot draw a random id for the run");
    (void)snprintf(controller->id, sizeof controller->id, "%016" PRIx64, random);
    return 0;
}

static int note_past(void *context, int64_t sequence, const struct run_event *event) {
    (void)sequence;
    struct controller *controller = context;
    if (event->kind == EVENT_RUN) note_id(controller, event->data);
    if (event->attempt > controller->resume.attempts) controller->resume.attempts = event->attempt;
    history_note(&controller->history, event);
    return 0;
}

/* Where an earlier controller of the run left it. */
static int read_past(struct controller *controller, ty_error *err) {
    struct journal *journal = records_journal(controller->records);
    int result = journal_each_event(journal, 0, note_past, controller, err);
    return result < 0 ? result : journal_last_number(journal, &controller->resume.last_number, err);
}

static int open_journal(struct controller *controller, ty_error *err) {
    bool existed = false;
    controller->directory = directory_open(controller->path, controller->request->settings.resume != NULL,
                                           &existed, &controller->lock, err);
    if (controller->directory < 0) return controller->directory;
    bool past = controller->past = existed && journal_exists(controller->path);
    struct journal *journal = NULL;
    int result = journal_open(controller->path, past ? JOURNAL_APPEND : JOURNAL_CREATE, &journal, err);
    if (result < 0 && !existed) {
        run_lock_release(TAKE(controller->lock), false);
        directory_remove(controller->path);
    }
    if (result < 0) return result;
    int lock = run_lock_fd(controller->lock);
    result = records_open(&journal, controller->path, lock, &controller->records, err);
    journal_close(journal);
    if (result >= 0 && past) result = read_past(controller, err);
    if (result >= 0 && controller->id[0] == '\0') result = make_id(controller, err);
    if (result < 0) return result;
    struct checkpoints_place place = {controller->path, controller->id, controller->records, lock, past};
    return checkpoints_open(&place, &controller->request->settings.checkpoints, &controller->checkpoints, err);
}

/* By what the checkpoints are ranked, for who reads the run later. A name that is no UTF-8 can be that of no
 * metric. */
static void add_score(json_t *data, const struct checkpoint_policy *policy) {
    json_t *attribute = policy->score_attribute != NULL ? json_string(policy->score_attribute) : NULL;
    if (attribute == NULL) return;
    (void)json_object_set_new(data, "checkpoint_score_attribute", attribute);
    (void)json_object_set_new(data, "checkpoint_score_order",
                              json_string(policy->score_order == SCORE_MIN ? "min" : "max"));
}

/* JSON holds UTF-8 alone: of a word that is none the bytes are escaped. */
static json_t *word_as_json(const char *word) {
    size_t size = strlen(word);
    if (utf8_valid(word, size)) return json_stringn_nocheck(word, size);
    CLEANUP(buffer_done) struct buffer text = {0};
    utf8_escape(word, size, &text);
    return text.failed ? NULL : json_stringn_nocheck(text.data, text.size);
}

static void record_run(struct controller *controller) {
    const struct run_request *request = controller->request;
    char host[256] = "";
    json_t *argv = json_array();
    (void)gethostname(host, sizeof host - 1);
    for (const char *const *word = request->argv; *word != NULL; word++)
        (void)json_array_append_new(argv, word_as_json(*word));
    json_t *data = json_pack("{s:s, s:s, s:o, s:s, s:i, s:s, s:s, s:I, s:i, s:f}", "name", controller->name,
                             "id", controller->id, "argv", argv, "version", TY_VERSION, "pid", (int)getpid(),
                             "host", host, "engine", controller->prepared.engine->name, "num_workers",
                             (json_int_t)controller->prepared.demand.max_workers, "max_failures",
                             request->settings.failures.max_failures, "submitted", (double)clock_wall() / 1e9);
    if (data != NULL) add_score(data, &request->settings.checkpoints);
    CLEANUP_FREE char *text = data == NULL ? NULL : json_dumps(data, JSON_COMPACT);
    json_decref(data);
    struct run_event event = {clock_wall(), EVENT_RUN, 0, -1, -1, text};
    records_event(controller->records, &event);
    history_note(&controller->history, &event);
    events_add(&controller->events, &event, NULL);
}

/* Who resumes always does the same in the first run, so it is no error; who mistyped the name must see it. */
static void tell_nothing_to_resume(const struct controller *controller) {
    CLEANUP_FREE char *near =
        run_directory_nearest(controller->request->settings.storage_path, controller->name);
    log_warning("controller", "nothing to resume under %s: a new run begins%s%s%s", controller->path,
                near != NULL ? "; did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "");
}

static void warn(const struct controller *controller) {
    const struct demand *demand = &controller->prepared.demand;
    if (controller->request->settings.resume != NULL && !controller->past) tell_nothing_to_resume(controller);
    const char *sharing = demand_sharing_warning(demand, controller->request->settings.backend);
    if (demand->deprecation != NULL) log_warning("scaling", "%s", demand->deprecation);
    if (demand->warning != NULL) log_warning("scaling", "%s", demand->warning);
    if (sharing != NULL) log_warning("backend", "%s", sharing);
}

static int begin(struct controller *controller, ty_error *err) {
    int code = prepare_check(controller->request, &controller->prepared, err);
    if (code >= 0) code = choose_name(controller, err);
    if (code >= 0) code = plan(controller, err);
    if (code >= 0) code = open_journal(controller, err);
    if (code < 0) return code;
    warn(controller);
    record_run(controller);
    controller->config = (struct drive_config){
        .request = controller->request,
        .prepared = &controller->prepared,
        .records = controller->records,
        .checkpoints = controller->checkpoints,
        .events = &controller->events,
        .history = &controller->history,
        .name = controller->name,
        .path = controller->path,
        .holders = controller->holders,
        .n_holders = controller->wait.code == 0 ? 0 : controller->n_holders,
        .wait_reason = controller->wait.message,
        .resume = controller->resume,
    };
    return drive_open(&controller->config, &controller->drive, err);
}

static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    events_add_log(context, level, subsystem, text);
}

static bool tells_log(const struct controller *controller) {
    return (controller->request->events & 1u << EVENTS_LOG) != 0;
}

static void destroy(struct controller *controller) {
    if (tells_log(controller)) log_set_sink(NULL, NULL);
    lease_holders_free(controller->holders, controller->n_holders);
    checkpoints_close(controller->checkpoints, 0);
    records_close(controller->records, 0);
    prepare_done(&controller->prepared);
    run_lock_release(controller->lock, controller->held);
    if (controller->directory >= 0) (void)close(controller->directory);
    events_done(&controller->events);
    history_done(&controller->history);
    free(controller->name);
    free(controller->path);
    free(controller);
}

int controller_open(const struct run_request *request, struct controller **out, ty_error *err) {
    struct controller *controller = calloc(1, sizeof *controller);
    ty_error own = {0};
    if (err == NULL) err = &own;
    if (controller == NULL) return ty_fail_memory(err);
    *controller =
        (struct controller){.request = request, .directory = -1, .events = {.wanted = request->events}};
    if (tells_log(controller)) log_set_sink(tell_log, &controller->events);
    int code = begin(controller, err);
    if (code < 0)
        destroy(controller);
    else
        *out = controller;
    return code;
}

int controller_fd(const struct controller *controller) {
    return drive_fd(controller->drive);
}

int controller_timeout_ms(const struct controller *controller) {
    return drive_timeout_ms(controller->drive);
}

bool controller_step(struct controller *controller, bool wait) {
    return drive_step(controller->drive, wait);
}

int controller_next_event(struct controller *controller, char **text) {
    int result = events_take(&controller->events, text);
    drive_events_taken(controller->drive);
    return result;
}

void controller_stop(struct controller *controller, int signal_number) {
    drive_stop(controller->drive, signal_number);
}

int controller_close(struct controller *controller, ty_result **result, ty_error *err) {
    struct drive_end end;
    ty_error own = {0};
    if (err == NULL) err = &own;
    *result = NULL;
    int code = drive_close(TAKE(controller->drive), &end, err);
    controller->held = end.held;
    if (code >= 0) {
        struct outcome outcome = {&controller->config, &end, controller->directory};
        code = outcome_tell(&outcome, result, err);
    }
    checkpoints_close(TAKE(controller->checkpoints), end.storage_limit);
    drive_end_done(&end);
    destroy(controller);
    return code;
}

int controller_run(const struct run_request *request, ty_result **result, ty_error *err) {
    struct controller *controller;
    struct sigpipe_hold hold;
    *result = NULL;
    sigpipe_hold(&hold);
    int code = controller_open(request, &controller, err);
    while (code >= 0 && controller_step(controller, true)) {
    }
    if (code >= 0) code = controller_close(controller, result, err);
    sigpipe_release(&hold);
    return code;
}
