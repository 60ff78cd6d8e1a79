/* One loop, one turn at a time: events come in and go to run/; at the end of the turn the journal is committed,
 * and only then what run/ wanted is sent. */
#include "controller/drive.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/drive_internal.h"
#include "controller/failure.h"
#include "controller/sweep.h"

static const nanoseconds START_LIMIT = 60 * NS_PER_S;
static const nanoseconds STORAGE_SLOW = 5 * NS_PER_S;   /* from then on it is told that it hangs */
static const nanoseconds STORAGE_LIMIT = 30 * NS_PER_S; /* see drive_storage_limit */
static const nanoseconds OUTPUT_LIMIT = 5 * NS_PER_S;   /* for news that stood behind output that was dropped */

const char *drive_node_name(const struct drive *drive, uint32_t node) {
    return drive->peers[node].name;
}

const char *drive_failed_node(const struct drive *drive) {
    int node = run_failure(drive->run)->node;
    return node < 0 ? NULL : drive_node_name(drive, (uint32_t)node);
}

/* A journal that cannot be written does not stop the training; the run's end tells it. Another attempt would be
 * on no record, nor would its checkpoints. */
static void tell_journal_error(struct drive *drive) {
    const ty_error *error = records_error(drive->config->records);
    bool ended = drive->run != NULL && run_state_of(drive->run) == RUN_ENDED;
    if (error->code == 0 || ended || drive->unrecorded) return;
    drive->unrecorded = true;
    progress_hide(&drive->progress);
    if (drive->run != NULL) run_retry_no_more(drive->run);
    log_error("journal", "%s; the run goes on without it, and is not begun again should it fail",
              error->message);
}

void drive_note(struct drive *drive, const struct run_event *event, const char *metrics) {
    records_event(drive->config->records, event);
    history_note(drive->config->history, event);
    events_add(drive->config->events, event, metrics);
}

static void record_of(struct drive *drive, int attempt, enum run_event_kind kind, struct buffer *data) {
    struct run_event event = {clock_wall(), kind, attempt, -1, -1, data->failed ? NULL : data->data};
    drive_note(drive, &event, NULL);
    buffer_done(data);
}

void drive_record(struct drive *drive, enum run_event_kind kind, struct buffer *data) {
    record_of(drive, 0, kind, data);
}

void drive_record_plan(struct drive *drive, int attempt) {
    const struct prepared *prepared = drive->config->prepared;
    struct buffer data = {0};
    buffer_printf(&data, "{\"seconds\": %.6f, \"nodes\": [", (double)prepared->plan_time / 1e9);
    for (uint32_t node = 0; node < drive->n_peers; node++) {
        buffer_text(&data, node > 0 ? ", " : "");
        buffer_json_text(&data, drive->peers[node].name);
    }
    buffer_text(&data, "], \"ranks\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++)
        buffer_printf(&data, "%s%u", i > 0 ? ", " : "", drive->node_of[i]);
    buffer_text(&data, "], \"devices\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++) {
        buffer_text(&data, i > 0 ? ", \"" : "\"");
        plan_worker_devices(prepared->plan, prepared->cluster, i, false, &data);
        buffer_char(&data, '"');
    }
    buffer_text(&data, "]}");
    record_of(drive, attempt, EVENT_PLAN, &data);
}

static void on_timer(void *context) {
    struct timer_slot *slot = context;
    bool end_awaited = slot->timer == TIMER_STOP || slot->timer == TIMER_FINISH;
    if (slot->timer == TIMER_STORAGE) /* tells what hangs: from now on nobody waits for that */
        (void)storage_wait(checkpoints_storage(slot->drive->config->checkpoints), 0);
    if (end_awaited && peer_drop_output(slot->drive)) /* the news of the end may be stuck behind it */
        (void)loop_timer_start(slot->drive->loop, &slot->handle, OUTPUT_LIMIT);
    else
        run_timer_fired(slot->drive->run, slot->timer);
}

nanoseconds drive_storage_limit(const struct drive *drive) {
    nanoseconds grace = drive->hurried ? 0 : drive->config->request->settings.grace;
    return drive->interrupted != 0 && grace < STORAGE_LIMIT ? grace : STORAGE_LIMIT;
}

bool drive_writes(const struct drive *drive) {
    struct storage *files = checkpoints_storage(drive->config->checkpoints);
    return records_busy(drive->config->records) || (storage_busy(files) && !storage_hangs(files));
}

/* What was held for rows that are written now goes at the end of the turn. */
static void on_written(void *context) {
    struct drive *drive = context;
    for (uint32_t node = 0; node < drive->n_peers; node++)
        if (records_have(drive->config->records, drive->peers[node].held_for)) peer_let_go(&drive->peers[node]);
    if (drive->paused) peer_on_drained(drive);
}

static void on_storage(void *context, unsigned events) {
    const struct storage_watch *watch = context;
    (void)events;
    storage_take(watch->storage);
}

/* The run has ended: nobody waits for its storage any longer. */
static void stop_lingering(struct drive *drive) {
    struct storage *files = checkpoints_storage(drive->config->checkpoints);
    records_wait(drive->config->records, 0);
    checkpoints_clean(drive->config->checkpoints);
    (void)storage_wait(files, storage_patience(files, 0));
    drive->lingers = false;
    drive->over = true;
}

void drive_linger(struct drive *drive) {
    if (drive->interrupted == 0)
        peer_forget_storage(drive); /* one more try, since no agent tells of it any more */
    records_finish(drive->config->records);
    drive->lingers = drive_writes(drive);
    drive->over = !drive->lingers;
    if (drive->held)
        stop_lingering(drive);
    else if (drive->lingers)
        (void)loop_timer_start(drive->loop, &drive->linger_timer, drive_storage_limit(drive));
}

static void on_linger_timer(void *context) {
    stop_lingering(context);
}

/* No row is waited for for ever: a launch may wait for it, or a worker that made a checkpoint. */
static void give_up_journal(struct drive *drive) {
    struct records *records = drive->config->records;
    if (records_busy(records) && storage_age(records_storage(records)) >= STORAGE_LIMIT)
        records_wait(records, 0);
}

static void on_storage_timer(void *context) {
    struct drive *drive = context;
    nanoseconds soonest = STORAGE_SLOW;
    bool idle = true;
    progress_hide(&drive->progress);
    for (size_t i = 0; i < ARRAY_SIZE(drive->watches); i++) {
        struct storage *storage = drive->watches[i].storage;
        storage_tell_slow(storage, STORAGE_SLOW);
        nanoseconds age = storage_age(storage), next = STORAGE_SLOW - age % STORAGE_SLOW;
        idle = idle && age < 0;
        if (age >= 0 && next < soonest) soonest = next;
    }
    give_up_journal(drive);
    if (!idle) (void)loop_timer_start(drive->loop, &drive->storage_timer, soonest);
}

/* Only while something is under way there: the loop need not wake for it otherwise. The timer finds out by
 * itself that there is nothing to tell: the journal is written many times a second. */
static void watch_storage(struct drive *drive, struct storage_watch *watch) {
    bool busy = storage_busy(watch->storage);
    if (busy == watch->watched) return;
    watch->watched = busy;
    (void)loop_watch_start(drive->loop, &watch->watch, storage_fd(watch->storage), busy ? LOOP_READABLE : 0);
    if (busy && drive->storage_timer.state == NULL)
        (void)loop_timer_start(drive->loop, &drive->storage_timer, STORAGE_SLOW);
}

static void watch_all(struct drive *drive) {
    for (size_t i = 0; i < ARRAY_SIZE(drive->watches); i++)
        watch_storage(drive, &drive->watches[i]);
}

static void on_turn_end(void *context) {
    struct drive *drive = context;
    records_commit(drive->config->records);
    tell_journal_error(drive);
    for (uint32_t node = 0; node < drive->n_peers; node++)
        peer_flush(&drive->peers[node]);
    checkpoints_clean(drive->config->checkpoints); /* whoever waited for a commit has been answered */
    watch_all(drive);
    if (drive->lingers && !drive_writes(drive)) stop_lingering(drive);
    if (drive->run != NULL && run_state_of(drive->run) != RUN_ENDED) progress_show(&drive->progress);
}

static void tell_interrupt(struct drive *drive, int signal_number) {
    struct buffer grace = {0};
    char name[32];
    const char *by =
        signal_number > 0 ? str_signal(signal_number, name) : "stopped by the program that runs it";
    duration_format(drive->config->request->settings.grace, &grace);
    progress_hide(&drive->progress);
    if (drive->opening)
        log_warning("controller", "%s: the run is not resumed", by);
    else if (run_state_of(drive->run) == RUN_PAUSING)
        log_warning("controller", "%s: no further attempt begins", by);
    else if (run_awaits_commit(drive->run))
        log_warning("controller",
                    "%s: the last checkpoint has %s to be committed; once more ends the run at once", by,
                    grace.failed ? "the grace" : grace.data);
    else
        log_warning("controller", "%s: workers have %s to end; once more ends them at once", by,
                    grace.failed ? "their grace" : grace.data);
    buffer_done(&grace);
}

/* Its look at the latest checkpoint ends as soon as it can. */
static void stop_opening(struct drive *drive) {
    drive->opening = false;
    drive->unopened = true;
    checkpoints_stop_check(drive->config->checkpoints);
    drive_linger(drive);
}

static void interrupt(struct drive *drive, int signal_number) {
    if (drive->lingers) stop_lingering(drive);
    if (drive->over) return;
    drive->hurried = drive->interrupted != 0;
    drive->interrupted = signal_number;
    if (drive->run != NULL)
        run_interrupt(drive->run, signal_number);
    else if (drive->opening)
        stop_opening(drive);
    else
        drive->over = true;
}

/* The first signal says which of the two it is. */
static void interrupt_or_preempt(struct drive *drive, int signal_number) {
    bool preempts = drive->interrupted == 0 && signal_number == preempt_signal_of(drive->config->request);
    if (!preempts || drive->run == NULL) {
        interrupt(drive, signal_number);
        return;
    }
    drive->interrupted = signal_number;
    preempt_describe(drive, -1);
    run_preempt(drive->run, signal_number);
}

static void on_signal(void *context, int signal_number) {
    struct drive *drive = context;
    if (drive->lingers) {
        stop_lingering(drive);
        return;
    }
    if (drive->interrupted == 0) drive->unsignalled = signal_number == 0;
    if ((drive->run != NULL || drive->opening) && drive->interrupted == 0)
        tell_interrupt(drive, signal_number);
    else
        (void)peer_drop_output(drive);
    interrupt_or_preempt(drive, signal_number > 0 ? signal_number : SIGINT);
}

void drive_stop(struct drive *drive, int signal_number) {
    if (drive->over) return;
    on_signal(drive, signal_number);
    on_turn_end(drive); /* as at the end of a turn of the loop, which knows nothing of it */
}

static int begin_run(struct drive *drive, ty_error *err) {
    const struct run_request *request = drive->config->request;
    const struct plan *plan = drive->config->prepared->plan;
    int result = resize_open(drive, err);
    if (result < 0) return result;
    drive_record_plan(drive, 0);
    struct run_config config = {
        .n_workers = (uint32_t)plan->n_workers,
        .n_nodes = drive->n_peers,
        .node_of = drive->node_of,
        .max_workers = (uint32_t)drive->config->prepared->demand.max_workers,
        .max_nodes = drive->max_peers,
        .resize_interval = resize_interval_of(drive),
        .failures = request->settings.failures,
        .first_attempt = drive->config->resume.attempts + 1,
        .report_base = drive->config->resume.last_number,
        .checkpoint = checkpoints_latest(drive->config->checkpoints),
        .time_limit = request->settings.time_limit,
        .grace = request->settings.grace,
        .start_limit = START_LIMIT,
    };
    drive->since = sweep_clock();
    drive_listen(drive);
    result = run_create(&config, &drive_ops, drive, &drive->run, err);
    if (result < 0) return result;
    progress_open(&drive->progress, drive->loop, drive->run, drive->config->name,
                  request->settings.quiet ? PROGRESS_NONE : (enum progress_mode)request->settings.progress);
    run_start(drive->run);
    return 0;
}

/* What an earlier controller left is in order, or cannot be brought into it. */
static void on_opened(void *context, const ty_error *why_not) {
    struct drive *drive = context;
    if (!drive->opening) return; /* interrupted meanwhile */
    drive->opening = false;
    if (why_not != NULL) drive->error = *why_not;
    drive->over = why_not != NULL || begin_run(drive, &drive->error) < 0;
}

int drive_begin(struct drive *drive, ty_error *err) {
    const struct lease *lease = drive->config->prepared->lease;
    if (lease != NULL) descriptors_withhold(lease_fd(lease));
    drive->opening = checkpoints_begin(drive->config->checkpoints, on_opened, drive);
    return drive->opening ? 0 : begin_run(drive, err);
}

static int make_token(char token[33]) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return -1;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static void prepare_timers(struct drive *drive) {
    for (int timer = 0; timer < RUN_TIMERS; timer++) {
        struct timer_slot *slot = &drive->timers[timer];
        *slot = (struct timer_slot){drive, (enum run_timer)timer, {.callback = on_timer, .context = slot}};
    }
    drive->store_timer = (struct loop_timer){.callback = peer_on_store_timer, .context = drive};
    drive->storage_timer = (struct loop_timer){.callback = on_storage_timer, .context = drive};
    drive->linger_timer = (struct loop_timer){.callback = on_linger_timer, .context = drive};
}

/* The watches are started once, to rest: later that takes no memory. */
static int prepare_storage(struct drive *drive, ty_error *err) {
    struct storage *storages[] = {checkpoints_storage(drive->config->checkpoints),
                                  records_storage(drive->config->records)};
    for (size_t i = 0; i < ARRAY_SIZE(drive->watches); i++) {
        struct storage_watch *watch = &drive->watches[i];
        *watch = (struct storage_watch){storages[i], {.callback = on_storage, .context = watch}, false};
        int code = loop_watch_start(drive->loop, &watch->watch, storage_fd(storages[i]), LOOP_READABLE);
        if (code < 0) return ty_fail(err, code, "cannot watch an eventfd: %s", strerror(-code));
        (void)loop_watch_start(drive->loop, &watch->watch, storage_fd(storages[i]), 0);
    }
    records_listen(drive->config->records, on_written, drive);
    return 0;
}

static int open_parts(struct drive *drive, ty_error *err) {
    if (make_token(drive->token) < 0)
        return ty_fail(err, -errno, "cannot get random bytes: %s", strerror(errno));
    drive->loop = loop_create(err);
    if (drive->loop == NULL) return err->code;
    loop_on_turn_end(drive->loop, on_turn_end, drive);
    prepare_timers(drive);
    int result = prepare_storage(drive, err);
    if (result < 0) return result;
    if (drive->config->request->handle_signals)
        signals_open(&drive->signals, drive->loop, preempt_signal_of(drive->config->request), on_signal, drive);
    sink_open(&drive->output[0], drive->loop, STDOUT_FILENO, peer_on_drained, drive);
    sink_open(&drive->output[1], drive->loop, STDERR_FILENO, peer_on_drained, drive);
    return 0;
}

/* Waits for agents that end, and for a slow reader of the output. */
static void close_loop(struct drive *drive) {
    for (uint32_t node = 0; node < drive->n_peers; node++) {
        answers_drop(&drive->peers[node].answers);
        channel_destroy(TAKE(drive->peers[node].channel));
        (void)peer_reap(&drive->peers[node], false);
    }
    if (drive->progress.loop != NULL) progress_close(&drive->progress);
    wait_end(drive);
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        loop_timer_stop(drive->loop, &drive->timers[timer].handle);
    loop_timer_stop(drive->loop, &drive->store_timer);
    loop_timer_stop(drive->loop, &drive->linger_timer);
    loop_timer_stop(drive->loop, &drive->storage_timer);
    for (size_t i = 0; i < ARRAY_SIZE(drive->watches); i++)
        loop_watch_stop(drive->loop, &drive->watches[i].watch);
    records_listen(drive->config->records, NULL, NULL);
    chaos_stop(&drive->chaos);
    stall_end(&drive->stall);
    signals_close(&drive->signals);
    nanoseconds limit = drive->interrupted != 0 ? OUTPUT_LIMIT : -1;
    bool all = sink_close(&drive->output[0], limit);
    if (!sink_close(&drive->output[1], limit) || !all) peer_tell_dropped(drive);
    loop_destroy(drive->loop);
}

static void destroy(struct drive *drive) {
    if (drive->loop != NULL) close_loop(drive);
    launch_destroy(drive->launch);
    store_destroy(drive->store);
    shared_release(drive->list);
    run_destroy(drive->run);
    resize_close(drive);
    buffer_done(&drive->metrics);
    buffer_done(&drive->preemption);
    (void)prctl(PR_SET_CHILD_SUBREAPER, drive->was_subreaper);
    free(drive);
}

void drive_end_done(struct drive_end *end) {
    free(end->metrics);
    free(end->checkpoint);
    free(end->failure);
    free(end->cause_node);
    free(end->preemption);
    free(end->exits);
    free(end->workers);
    *end = (struct drive_end){0};
}

static void describe_workers(const struct drive *drive, struct drive_end *end) {
    end->exits = calloc(end->n_workers, sizeof *end->exits);
    end->workers = calloc(end->n_workers, sizeof *end->workers);
    if (end->exits == NULL || end->workers == NULL) end->n_workers = 0;
    for (uint32_t rank = 0; rank < end->n_workers; rank++) {
        end->exits[rank] = run_worker_exit(drive->run, rank);
        end->workers[rank] = *run_worker(drive->run, rank);
    }
}

static void describe_end(struct drive *drive, struct drive_end *end) {
    end->outcome = run_outcome(drive->run);
    end->unsignalled = drive->unsignalled;
    end->status = run_exit_status(drive->run);
    end->attempts = run_attempt(drive->run);
    end->cause = *run_failure(drive->run);
    end->cause.tail = NULL;
    end->n_workers = run_size(drive->run);
    describe_workers(drive, end);
    if (drive->preemption.size > 0) end->preemption = strdup(drive->preemption.data);
    if (drive->metrics.size > 0) end->metrics = strdup(drive->metrics.data);
    if (run_checkpoint(drive->run) != NULL) end->checkpoint = strdup(run_checkpoint(drive->run));
    const char *node = drive_failed_node(drive);
    if (node != NULL) end->cause_node = strdup(node);
    struct failure_context context = {drive->run, node, drive->config->path, drive->launched,
                                      drive->failed > 0 ? drive->ended - drive->failed : 0};
    struct buffer screen = {0};
    failure_format(&context, &screen);
    end->failure = screen.size > 0 ? buffer_take(&screen) : NULL;
    buffer_done(&screen);
}

/* An end without a run: interrupted, or refused, while it waited. */
static void describe_wait_end(struct drive *drive, struct drive_end *end) {
    struct buffer data = {0};
    bool preempted = drive->interrupted == preempt_signal_of(drive->config->request);
    end->outcome = preempted ? OUTCOME_PREEMPTED : OUTCOME_INTERRUPTED;
    end->unsignalled = drive->unsignalled;
    end->status = 128 + drive->interrupted;
    buffer_printf(&data, "{\"outcome\": \"%s\", \"status\": %d, \"cause\": ", run_outcome_name(end->outcome),
                  end->status);
    buffer_printf(&data, "\"interrupted while %s\"}",
                  drive->unopened ? "its checkpoints were looked at" : "it waited for devices");
    drive_record(drive, EVENT_RUN_END, &data);
}

static int begin(struct drive *drive, ty_error *err) {
    const struct drive_config *config = drive->config;
    int result = open_parts(drive, err);
    if (result < 0) return result;
    return config->n_holders > 0
               ? wait_begin(drive, config->wait_reason, config->holders, config->n_holders, err)
               : drive_begin(drive, err);
}

int drive_open(const struct drive_config *config, struct drive **out, ty_error *err) {
    struct drive *drive = calloc(1, sizeof *drive);
    if (drive == NULL) return ty_fail_memory(err);
    *drive = (struct drive){.config = config, .lease_fd = -1, .output = {{.fd = -1}, {.fd = -1}}};
    /* Workers whose agent dies become our children, so that they can be reaped. */
    (void)prctl(PR_GET_CHILD_SUBREAPER, &drive->was_subreaper);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int result = begin(drive, err);
    if (result < 0) {
        destroy(drive);
        return result;
    }
    /* The loop's first turn waits for an event, and none may come: the run may have ended already. */
    on_turn_end(drive);
    *out = drive;
    return result;
}

int drive_fd(const struct drive *drive) {
    return loop_fd(drive->loop);
}

int drive_timeout_ms(const struct drive *drive) {
    return drive->over ? 0 : loop_timeout_ms(drive->loop);
}

/* The program closed what the run has open. What stands under those numbers now may be its own: nothing is
 * written to them. Agents end when they are alone. */
static void lose(struct drive *drive) {
    (void)ty_fail(&drive->error, TY_EUSAGE,
                  "the run ended: the program that drives it closed the run's descriptors (only its own are "
                  "its to close); workers are ended, and what was on record can be resumed");
    drive->over = drive->held = true;
    records_abandon(drive->config->records, &drive->error);
    storage_hold(checkpoints_storage(drive->config->checkpoints), true);
    for (uint32_t node = 0; node < drive->n_peers; node++)
        peer_lose(&drive->peers[node]);
}

bool drive_step(struct drive *drive, bool wait) {
    if (!drive->over && !loop_intact(drive->loop)) lose(drive);
    bool left = drive->over || loop_turn(drive->loop, wait);
    if (!left && wait) drive->over = true; /* an owner who does not wait may have to take events first */
    return !drive->over;
}

void drive_events_taken(struct drive *drive) {
    if (drive->paused && drive->config->events->size <= EVENTS_LOW) peer_on_drained(drive);
}

/* Bounded by the limits of run/. */
static void end_by_force(struct drive *drive) {
    events_drop_output(drive->config->events);
    if (!peer_drop_output(drive)) peer_on_drained(drive);
    interrupt(drive, SIGTERM);
    interrupt(drive, SIGTERM);
    on_turn_end(drive);
    while (drive_step(drive, true)) {
    }
}

/* Last, since no word of it can go on record any more. */
static void finish_journal(struct drive *drive, struct drive_end *end) {
    records_finish(drive->config->records);
    records_wait(drive->config->records, end->storage_limit);
    end->unrecorded = *records_error(drive->config->records);
}

int drive_close(struct drive *drive, struct drive_end *end, ty_error *err) {
    *end = (struct drive_end){0};
    if (!drive->over) end_by_force(drive);
    if (drive->run == NULL)
        describe_wait_end(drive, end);
    else
        describe_end(drive, end);
    end->storage_limit = drive_storage_limit(drive);
    end->held = drive->held;
    finish_journal(drive, end);
    int result = drive->error.code;
    if (result != 0 && err != NULL) *err = drive->error;
    destroy(drive);
    return result;
}
