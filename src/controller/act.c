/* What the core asks for (struct run_ops), carried out: agents started and told, timers set, events and
 * checkpoints written. Nothing is decided here. What is sent leaves at the end of the turn; what begins an
 * attempt, or answers for a checkpoint, when the rows before it are written. What ends workers does not wait
 * for that. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/ty_run.h"

static int start_node(void *context, uint32_t node, ty_error *err) {
    return peer_start(&((struct ty_run *)context)->agents.peers[node], err);
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

/* What all nodes of an attempt share: the store, and the parts of the launch that are alike. Made with the
 * first node's launch, and of no other attempt's: what a worker of the one before set or gathered is gone with
 * it. */
static int make_shared(struct ty_run *run, int attempt, ty_error *err) {
    if (run->committing.beginning < 0)
        return ty_fail_memory(err); /* from a checkpoint that is not whole, or from none: neither */
    launch_destroy(TAKE(run->launched.launch));
    store_destroy(TAKE(run->launched.store));
    /* Others for each attempt: connections of the one before may linger on its own. */
    size_t n = run->prepared.plan->n_workers + 1;
    free(run->launched.port_numbers);
    run->launched.port_numbers = calloc(n, sizeof *run->launched.port_numbers);
    int result = run->launched.port_numbers == NULL
                     ? ty_fail_memory(err)
                     : ports_find(&run->launched.ports, n, run->launched.port_numbers, err);
    if (result < 0) return result;
    run->launched.at = clock_wall();
    run->launched.failed = 0; /* the failure of an attempt before it has been told */
    run->launched.store =
        store_create((uint32_t)run->prepared.plan->n_workers, &run->launched.store_bytes, peer_answer, run);
    result = run->launched.store == NULL ? ty_fail_memory(err)
                                         : launch_create(run, attempt, &run->launched.launch, err);
    if (result >= 0) run->launched.attempt = attempt;
    progress_hide(&run->output.progress);
    input_begin(&run->input, run_size(run->core), attempt);
    stall_watch(run, run->request->settings.hang_timeout);
    return result;
}

/* Into the channel, which is held first: the rows that the attempt stands on are written before any worker
 * starts, or have failed. */
static int launch(void *context, uint32_t node, int attempt, ty_error *err) {
    struct ty_run *run = context;
    struct peer *peer = &run->agents.peers[node];
    int result = attempt == run->launched.attempt ? 0 : make_shared(run, attempt, err);
    chaos_start(run);
    scheduler_open(run);
    peer_hold(peer);
    return result < 0 ? result : launch_frame(run->launched.launch, peer, channel_out(peer->channel), err);
}

/* Does not wait for rows: what was held for some goes with it, in order. */
static void stop(void *context, uint32_t node, bool kill, const char *reason) {
    struct ty_run *run = context;
    Wire__Stop body = WIRE__STOP__INIT;
    peer_let_go(&run->agents.peers[node]);
    if (run->launched.failed == 0) run->launched.failed = clock_monotonic();
    body.kill = kill;
    body.interrupt = run->interruption.signal == SIGINT && !run->interruption.by_program;
    body.reason = (char *)reason;
    body.preemption = run->interruption.told.size > 0 ? run->interruption.told.data : (char *)"";
    peer_send(&run->agents.peers[node], &WIRE_MESSAGE(STOP, stop, &body));
}

static void save_stacks(void *context, uint32_t node) {
    struct ty_run *run = context;
    Wire__Stacks body = WIRE__STACKS__INIT;
    peer_let_go(&run->agents.peers[node]);
    peer_send(&run->agents.peers[node], &WIRE_MESSAGE(STACKS, stacks, &body));
}

static void finish(void *context, uint32_t node) {
    struct ty_run *run = context;
    Wire__Finish body = WIRE__FINISH__INIT;
    peer_let_go(&run->agents.peers[node]);
    chaos_stop(run);
    answers_drop(&run->agents.peers[node].answers); /* nothing may follow a finish */
    /* One whose user waits for the exit status of the run, which is not known yet, stays for that. */
    const struct rendezvous *rendezvous = run->prepared.rendezvous;
    body.keep = rendezvous != NULL ? peer_is_remote(&run->agents.peers[node]) && !rendezvous_starts(rendezvous)
                                   : agents_rest(run);
    peer_send(&run->agents.peers[node], &WIRE_MESSAGE(FINISH, finish, &body));
}

static void abandon(void *context, uint32_t node) {
    peer_abandon(&((struct ty_run *)context)->agents.peers[node]);
}

static void set_timer(void *context, enum run_timer timer, nanoseconds delay) {
    struct ty_run *run = context;
    if (timer == TIMER_STORAGE && delay >= 0) /* also a hurried one gives what is only under way its time */
        delay = storage_patience(checkpoints_storage(run->checkpoints), delay);
    if (delay < 0)
        loop_timer_stop(run->loop, &run->timers[timer].handle);
    else
        (void)loop_timer_start(run->loop, &run->timers[timer].handle, delay);
}

static void record(void *context, const struct run_event *event) {
    struct ty_run *run = context;
    bool ends = event->kind == EVENT_ATTEMPT_END;
    if (ends) run->launched.ended = clock_monotonic();
    note_tell(run, event);
    /* What the workers of an attempt had begun to write, or were given, and one that ends well may have left as
     * well. */
    if (ends && run->committing.staged) checkpoints_clear_up(run->checkpoints, event->attempt);
    if (ends) run->committing.staged = false;
    note_event(run, event,
               event->kind == EVENT_CHECKPOINT ? checkpoints_latest_metrics(run->checkpoints) : NULL);
}

static int publish(void *context, const struct run_commit *commit, char **path, ty_error *err) {
    (void)path;
    struct ty_run *run = context;
    int result = checkpoints_publish(run->checkpoints, commit, run->committing.metrics.data, err);
    return result < 0 ? result : 1;
}

/* The end of a commit goes to whoever waits for it in `settle`, within a call of the core's, or to the core as
 * an event: nothing may call into the core from one of its ops. */
static void take_published(void *context, struct published *published) {
    struct ty_run *run = context;
    run->storage.lost |= published->result == TY_EEXISTS;
    if (run->committing.awaited != NULL)
        *run->committing.awaited = *published;
    else
        run_published(run->core, published->number, published->path, published->error.message);
}

/* No worker is left that could wait for it, or go on meanwhile. */
static int settle(void *context, uint64_t number, char **path, ty_error *err) {
    struct ty_run *run = context;
    struct published published = {.number = number, .result = -ENOMEM};
    run->committing.awaited = &published;
    checkpoints_settle(run->checkpoints, 0);
    run->committing.awaited = NULL;
    *path = published.path;
    *err = published.error;
    return published.result;
}

static void on_checked(void *context) {
    struct ty_run *run = context;
    if (!run_checks(run->core)) return; /* it took too long, or there is no further attempt */
    run->committing.beginning = run_begin_from(run->core, checkpoints_latest(run->checkpoints));
    run_checked(run->core);
}

/* A worker that went wrong may have written where it should not. */
static bool check_latest(struct ty_run *run) {
    struct checkpoints *checkpoints = run->checkpoints;
    return !storage_hangs(checkpoints_storage(checkpoints)) &&
           checkpoints_check_latest(checkpoints, on_checked, run);
}

/* Attempts never overlap: what ran on a node that was lost must be gone. */
static bool check(void *context) {
    struct ty_run *run = context;
    return agents_fence(run) > 0 || check_latest(run);
}

/* The fence is looked at anew, as a node may have come back, swept, before its time was over. Whatever waits
 * for it goes on with the next thing that was to come: the beginning of the run, or the look at the
 * checkpoint. */
void act_fenced(void *context) {
    struct ty_run *run = context;
    if (!run->agents.fencing || agents_fence(run) > 0) return;
    if (run->core == NULL)
        opening_fenced(run);
    else if (run_checks(run->core) && !check_latest(run))
        run_checked(run->core);
}

static void discard(void *context, uint64_t number, int attempt) {
    struct ty_run *run = context;
    checkpoints_discard(run->checkpoints, number, attempt);
}

/* All ranks that are told the same share one text. */
static void list(void *context, uint32_t node, uint32_t channel) {
    struct ty_run *run = context;
    struct shared **told = &run->committing.list;
    CLEANUP(buffer_done) struct buffer text = {0};
    peer_hold(&run->agents.peers[node]);
    checkpoints_list(run->checkpoints, false, &text);
    bool same =
        *told != NULL && (*told)->size == text.size && memcmp((*told)->bytes, text.data, text.size) == 0;
    if (!same && !text.failed) {
        shared_release(*told);
        *told = shared_copy(text.data, text.size, NULL);
    }
    if (text.failed || *told == NULL || text.size <= STORE_ANSWER_MAX) {
        bool listed = !text.failed && *told != NULL;
        peer_answer(run, node, channel, listed ? STORE_OK : STORE_FAILED, listed ? *told : NULL);
        return;
    }
    char words[160];
    (void)snprintf(words, sizeof words,
                   "the list of checkpoints is %zu bytes, over the limit of %d: keep fewer, or smaller metrics",
                   text.size, STORE_ANSWER_MAX);
    struct shared *why = shared_copy(words, strlen(words), NULL);
    peer_answer(run, node, channel, STORE_FAILED, why);
    shared_release(why);
}

static void answer_commit(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                          const char *error) {
    struct ty_run *run = context;
    Wire__Committed body = WIRE__COMMITTED__INIT;
    if (run_storage_is_lost(run)) return; /* the worker ends, and not for that */
    body.channel = channel;
    body.number = number;
    if (path != NULL) body.path = (char *)path;
    if (error != NULL) body.error = (char *)error;
    peer_hold(&run->agents.peers[node]);
    peer_send(&run->agents.peers[node], &WIRE_MESSAGE(COMMITTED, committed, &body));
}

static void on_run_ended(void *context) {
    struct ty_run *run = context;
    checkpoints_clean(run->checkpoints);
    failure_make_log(run);
    run_storage_linger(run);
}

const struct run_ops act_ops = {
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

/* A limit of run/ has come. The news that it waits for may be stuck behind output that nobody takes: once
 * that is dropped, there is a little more time. */
static void on_timer(void *context) {
    struct timer_slot *slot = context;
    struct ty_run *run = slot->run;
    bool end_awaited = slot->timer == TIMER_STOP || slot->timer == TIMER_FINISH;
    if (slot->timer == TIMER_STORAGE) /* tells what hangs: from now on nobody waits for that */
        (void)storage_wait(checkpoints_storage(run->checkpoints), 0);
    if (end_awaited && output_drop(run))
        (void)loop_timer_start(run->loop, &slot->handle, OUTPUT_LIMIT);
    else
        run_timer_fired(run->core, slot->timer);
}

void act_open(struct ty_run *run) {
    for (int timer = 0; timer < RUN_TIMERS; timer++) {
        struct timer_slot *slot = &run->timers[timer];
        *slot = (struct timer_slot){run, (enum run_timer)timer, {.callback = on_timer, .context = slot}};
    }
    checkpoints_listen(run->checkpoints, take_published, run);
}

void act_close(struct ty_run *run) {
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        loop_timer_stop(run->loop, &run->timers[timer].handle);
    chaos_stop(run);
    stall_end(run);
}
