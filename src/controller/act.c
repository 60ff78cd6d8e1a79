/* What run/ asks for, carried out: agents started and told, timers set, events and checkpoints written. What is
 * sent leaves at the end of the turn; what begins an attempt, or answers for a checkpoint, when the rows before
 * it are written. What ends workers does not wait for that. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "controller/drive_internal.h"
#include "controller/failure.h"

static int start_node(void *context, uint32_t node, ty_error *err) {
    return peer_start(&((struct drive *)context)->peers[node], err);
}

static nanoseconds wall(void *context) {
    (void)context;
    return clock_wall();
}

static nanoseconds now(void *context) {
    (void)context;
    return clock_monotonic();
}

static uint64_t random_number(void *context) {
    (void)context;
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) number = (uint64_t)clock_monotonic();
    return number;
}

/* What all nodes of an attempt share: the store, and the parts of the launch that are alike. */
static int make_shared(struct drive *drive, int attempt, ty_error *err) {
    if (drive->beginning < 0)
        return ty_fail_memory(err); /* from a checkpoint that is not whole, or from none: neither */
    const struct peer *first = &drive->peers[drive->node_of[0]];
    struct launch_context context = {
        .request = drive->config->request,
        .prepared = drive->config->prepared,
        .name = drive->config->name,
        .path = drive->config->path,
        .token = drive->token,
        .attempt = attempt,
        .report_base = run_report_base(drive->run),
        .checkpoint = run_checkpoint(drive->run),
        .master_address = first->address,
        .master_port = first->port,
    };
    launch_destroy(TAKE(drive->launch));
    store_destroy(TAKE(drive->store));
    drive->launched = clock_wall();
    drive->failed = 0; /* the failure of an attempt before it has been told */
    drive->store = store_create((uint32_t)drive->config->prepared->plan->n_workers, &drive->store_bytes,
                                peer_answer, drive);
    int result = drive->store == NULL ? ty_fail_memory(err) : launch_create(&context, &drive->launch, err);
    if (result >= 0) drive->launched_attempt = attempt;
    stall_watch(&drive->stall, drive, drive->config->request->settings.hang_timeout);
    return result;
}

static int launch(void *context, uint32_t node, int attempt, ty_error *err) {
    struct drive *drive = context;
    struct peer *peer = &drive->peers[node];
    int result = attempt == drive->launched_attempt ? 0 : make_shared(drive, attempt, err);
    chaos_start(&drive->chaos, drive, &drive->config->request->settings.chaos);
    peer_hold(peer);
    return result < 0 ? result
                      : launch_frame(drive->launch, peer->node_rank, node, channel_out(peer->channel), err);
}

static void stop(void *context, uint32_t node, bool kill, const char *reason) {
    struct drive *drive = context;
    Wire__Stop body = WIRE__STOP__INIT;
    peer_let_go(&drive->peers[node]);
    if (drive->failed == 0) drive->failed = clock_monotonic();
    body.kill = kill;
    body.reason = (char *)reason;
    body.preemption = drive->preemption.size > 0 ? drive->preemption.data : (char *)"";
    peer_send(&drive->peers[node], &WIRE_MESSAGE(STOP, stop, &body));
}

static void save_stacks(void *context, uint32_t node) {
    struct drive *drive = context;
    Wire__Stacks body = WIRE__STACKS__INIT;
    peer_let_go(&drive->peers[node]);
    peer_send(&drive->peers[node], &WIRE_MESSAGE(STACKS, stacks, &body));
}

bool drive_keeps_agents(const struct drive *drive) {
    return drive->config->request->settings.keep_agents && drive->config->prepared->engine->rest != NULL;
}

static void finish(void *context, uint32_t node) {
    struct drive *drive = context;
    Wire__Finish body = WIRE__FINISH__INIT;
    peer_let_go(&drive->peers[node]);
    chaos_stop(&drive->chaos);
    answers_drop(&drive->peers[node].answers); /* nothing may follow a finish */
    body.keep = drive_keeps_agents(drive);
    peer_send(&drive->peers[node], &WIRE_MESSAGE(FINISH, finish, &body));
}

static void abandon(void *context, uint32_t node) {
    peer_abandon(&((struct drive *)context)->peers[node]);
}

static void set_timer(void *context, enum run_timer timer, nanoseconds delay) {
    struct drive *drive = context;
    if (timer == TIMER_STORAGE && delay >= 0) /* also a hurried one gives what is only under way its time */
        delay = storage_patience(checkpoints_storage(drive->config->checkpoints), delay);
    if (delay < 0)
        loop_timer_stop(drive->loop, &drive->timers[timer].handle);
    else
        (void)loop_timer_start(drive->loop, &drive->timers[timer].handle, delay);
}

/* A restart is told when it is decided: only the last attempt's first cause is on the screen at the end. */
static void tell_restart(struct drive *drive, const struct run_event *event) {
    nanoseconds pause;
    char when[32] = "";
    if (event->kind != EVENT_ATTEMPT_END || !run_retries(drive->run, &pause)) return;
    progress_hide(&drive->progress);
    if (pause > 0) (void)snprintf(when, sizeof when, " in %.1f s", (double)pause / (double)NS_PER_S);
    CLEANUP(buffer_done) struct buffer why = {0};
    if (run_outcome(drive->run) == OUTCOME_RESIZED)
        buffer_text(&why, run_resize_text(drive->run));
    else
        failure_line(run_failure(drive->run), drive_failed_node(drive), &why);
    log_warning("controller", "%s: attempt %d begins%s", why.failed ? "a failure" : why.data,
                event->attempt + 1, when);
}

static const char *text_of(const json_t *data, const char *key) {
    const char *text = json_string_value(json_object_get(data, key));
    return text != NULL ? text : "?";
}

/* A checkpoint that was lost is told where the training goes on without it, or where nobody waits for it any
 * more; else whoever reported it hears of it. */
static void tell_lost_checkpoint(const struct drive *drive, const json_t *data) {
    bool goes_on = drive->config->request->settings.checkpoints.on_error == CHECKPOINT_ERROR_CONTINUE;
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

static void tell_checkpoint(struct drive *drive, const struct run_event *event) {
    bool lost = event->kind == EVENT_CHECKPOINT_LOST;
    if ((!lost && event->kind != EVENT_CHECKPOINT_LATE) || run_state_of(drive->run) != RUN_RUNNING) return;
    json_t *data = event->data == NULL ? NULL : json_loads(event->data, 0, NULL);
    progress_hide(&drive->progress);
    if (lost)
        tell_lost_checkpoint(drive, data);
    else
        tell_late_checkpoint(data);
    json_decref(data);
}

/* What the workers of an attempt had begun to write, or were given, and one that ends well may have left as
 * well. */
static void clear_up(struct drive *drive, const struct run_event *event) {
    if (event->kind == EVENT_ATTEMPT_END) checkpoints_clear_up(drive->config->checkpoints, event->attempt);
}

static void record(void *context, const struct run_event *event) {
    struct drive *drive = context;
    if (event->kind == EVENT_ATTEMPT_END) drive->ended = clock_monotonic();
    tell_restart(drive, event);
    resize_tell(drive, event);
    tell_checkpoint(drive, event);
    clear_up(drive, event);
    drive_note(drive, event,
               event->kind == EVENT_CHECKPOINT ? checkpoints_latest_metrics(drive->config->checkpoints) : NULL);
}

static int publish(void *context, const struct run_commit *commit, char **path, ty_error *err) {
    (void)path;
    struct drive *drive = context;
    int result = checkpoints_publish(drive->config->checkpoints, commit, drive->metrics.data, err);
    return result < 0 ? result : 1;
}

static void take_published(void *context, struct published *published) {
    struct drive *drive = context;
    if (drive->awaited != NULL)
        *drive->awaited = *published;
    else
        run_published(drive->run, published->number, published->path, published->error.message);
}

void drive_listen(struct drive *drive) {
    checkpoints_listen(drive->config->checkpoints, take_published, drive);
}

/* No worker is left that could wait for it, or go on meanwhile. */
static int settle(void *context, uint64_t number, char **path, ty_error *err) {
    struct drive *drive = context;
    struct published published = {.number = number, .result = -ENOMEM};
    drive->awaited = &published;
    checkpoints_settle(drive->config->checkpoints, 0);
    drive->awaited = NULL;
    *path = published.path;
    *err = published.error;
    return published.result;
}

static void on_checked(void *context) {
    struct drive *drive = context;
    if (!run_checks(drive->run)) return; /* it took too long, or there is no further attempt */
    drive->beginning = run_begin_from(drive->run, checkpoints_latest(drive->config->checkpoints));
    run_checked(drive->run);
}

/* A worker that went wrong may have written where it should not. */
static bool check(void *context) {
    struct drive *drive = context;
    struct checkpoints *checkpoints = drive->config->checkpoints;
    return !storage_hangs(checkpoints_storage(checkpoints)) &&
           checkpoints_check_latest(checkpoints, on_checked, drive);
}

static void discard(void *context, uint64_t number, int attempt) {
    struct drive *drive = context;
    checkpoints_discard(drive->config->checkpoints, number, attempt);
}

/* All who are told the same share one text. NULL: memory is short. */
static struct shared *list_checkpoints(struct drive *drive) {
    CLEANUP(buffer_done) struct buffer text = {0};
    checkpoints_list(drive->config->checkpoints, &text);
    struct shared *list = drive->list;
    if (text.failed) return NULL;
    if (list != NULL && list->size == text.size && memcmp(list->bytes, text.data, text.size) == 0) return list;
    shared_release(list);
    drive->list = shared_copy(text.data, text.size, NULL);
    return drive->list;
}

static void list(void *context, uint32_t node, uint32_t channel) {
    struct drive *drive = context;
    struct shared *text = list_checkpoints(drive);
    peer_hold(&drive->peers[node]);
    if (text == NULL || text->size <= STORE_ANSWER_MAX) {
        peer_answer(drive, node, channel, text != NULL ? STORE_OK : STORE_FAILED, text);
        return;
    }
    char words[160];
    (void)snprintf(words, sizeof words,
                   "the list of checkpoints is %zu bytes, over the limit of %d: keep fewer, or smaller metrics",
                   text->size, STORE_ANSWER_MAX);
    struct shared *why = shared_copy(words, strlen(words), NULL);
    peer_answer(drive, node, channel, STORE_FAILED, why);
    shared_release(why);
}

static void answer_commit(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                          const char *error) {
    struct drive *drive = context;
    Wire__Committed body = WIRE__COMMITTED__INIT;
    body.channel = channel;
    body.number = number;
    if (path != NULL) body.path = (char *)path;
    if (error != NULL) body.error = (char *)error;
    peer_hold(&drive->peers[node]);
    peer_send(&drive->peers[node], &WIRE_MESSAGE(COMMITTED, committed, &body));
}

static void on_run_ended(void *context) {
    struct drive *drive = context;
    checkpoints_clean(drive->config->checkpoints);
    drive_linger(drive);
}

const struct run_ops drive_ops = {
    .wall = wall,
    .now = now,
    .random = random_number,
    .start_node = start_node,
    .launch = launch,
    .stop = stop,
    .stacks = save_stacks,
    .finish = finish,
    .abandon = abandon,
    .set_timer = set_timer,
    .record = record,
    .publish = publish,
    .settle = settle,
    .discard = discard,
    .check = check,
    .answer = answer_commit,
    .list = list,
    .layout = resize_layout,
    .ended = on_run_ended,
};
