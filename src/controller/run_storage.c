/* The run's storage: one thread at work on its files, one on its journal (base/storage.h). What they have
 * done is taken on the loop; what hangs is told, and at some point not waited for any longer. A run that has
 * ended lingers here until both are idle, or for a while. What is done there is decided elsewhere
 * (checkpoints.h, records.h). */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "controller/ty_run.h"

static const nanoseconds STORAGE_SLOW = 5 * NS_PER_S;   /* from then on it is told that it hangs */
static const nanoseconds STORAGE_LIMIT = 30 * NS_PER_S; /* see run_storage_limit */

/* -- agents' logs */

/* While an agent's logs hang, our own threads keep off the same storage: a thread that hangs with them could
 * not be ended, and this process not either. */
static void hold(struct ty_run *run) {
    run->storage.held = false;
    for (uint32_t node = 0; node < run->agents.n; node++)
        run->storage.held |= run->agents.peers[node].storage_hangs;
    for (size_t i = 0; i < ARRAY_SIZE(run->storage.watches); i++)
        storage_hold(run->storage.watches[i].storage, run->storage.held);
}

void run_storage_note(struct peer *peer, bool hangs) {
    peer->storage_hangs = hangs;
    hold(peer->run);
}

/* -- the end */

nanoseconds run_storage_limit(const struct ty_run *run) {
    nanoseconds grace = run->interruption.level == HURRIED ? 0 : run->request->settings.grace;
    return run->interruption.level != UNINTERRUPTED && grace < STORAGE_LIMIT ? grace : STORAGE_LIMIT;
}

/* What the end of the run waits for: rows, and files that get on. */
static bool is_busy(const struct ty_run *run) {
    struct storage *files = checkpoints_storage(run->checkpoints);
    return records_busy(run->records) || (storage_busy(files) && !storage_hangs(files));
}

void run_storage_stop_lingering(void *context) {
    struct ty_run *run = context;
    struct storage *files = checkpoints_storage(run->checkpoints);
    records_wait(run->records, 0);
    checkpoints_clean(run->checkpoints);
    (void)storage_wait(files, storage_patience(files, 0));
    run->phase = PHASE_OVER;
}

void run_storage_linger(struct ty_run *run) {
    if (run->interruption.level == UNINTERRUPTED) { /* one more try, since no agent tells of it any more */
        for (uint32_t node = 0; node < run->agents.n; node++)
            run->agents.peers[node].storage_hangs = false;
        hold(run);
    }
    records_finish(run->records);
    run->phase = is_busy(run) ? PHASE_LINGERING : PHASE_OVER;
    if (run->storage.held)
        run_storage_stop_lingering(run);
    else if (run->phase == PHASE_LINGERING)
        (void)loop_timer_start(run->loop, &run->storage.linger_timer, run_storage_limit(run));
}

/* -- what is written */

bool run_storage_is_lost(const struct ty_run *run) {
    return run->storage.lost || records_error(run->records)->code == TY_EEXISTS ||
           (run->lock != NULL && run_lock_is_lost(run->lock));
}

void run_storage_commit(struct ty_run *run) {
    records_commit(run->records);
    usage_commit(run);
    /* A journal that cannot be written does not stop the training; the run's end tells it. Another attempt
     * would be on no record, nor would its checkpoints. */
    const ty_error *error = records_error(run->records);
    if (run->phase >= PHASE_LINGERING || run->error.code < 0) return;
    if (run_storage_is_lost(run)) {
        /* Nothing of it is this controller's any more: its workers end. */
        (void)ty_fail(&run->error, TY_EEXISTS,
                      "the run %s ends here: another controller has taken it over while this one stood still, "
                      "see %s/" LOCK_NAME,
                      run->path, run->path);
        progress_hide(&run->output.progress);
        interrupt_by_force(run);
        return;
    }
    if (error->code == 0 || run->storage.unrecorded) return;
    run->storage.unrecorded = true;
    progress_hide(&run->output.progress);
    if (run->phase == PHASE_RUNNING) run_retry_no_more(run->core);
    log_error("journal", "%s; the run goes on without it, and is not begun again should it fail",
              error->message);
}

/* Messages that were held for rows that are written now go at the end of the turn. */
static void on_written(void *context) {
    struct ty_run *run = context;
    if (run_storage_is_lost(run)) return; /* nothing begins */
    for (uint32_t node = 0; node < run->agents.n; node++)
        if (records_have(run->records, run->agents.peers[node].held_for)) peer_let_go(&run->agents.peers[node]);
    if (run->output.paused) output_go_on(run);
}

static void on_storage(void *context, unsigned events) {
    const struct storage_watch *watch = context;
    (void)events;
    storage_take(watch->storage);
}

static void start_timer(struct ty_run *run, nanoseconds delay) {
    run->storage.due = clock_monotonic() + delay;
    (void)loop_timer_start(run->loop, &run->storage.timer, delay);
}

/* A look that is late tells nothing: the controller stood still, and with it the threads that write. */
static void on_timer(void *context) {
    struct ty_run *run = context;
    nanoseconds soonest = STORAGE_SLOW;
    bool idle = true, late = clock_monotonic() - run->storage.due >= NS_PER_S;
    progress_hide(&run->output.progress);
    for (size_t i = 0; i < ARRAY_SIZE(run->storage.watches); i++) {
        struct storage *storage = run->storage.watches[i].storage;
        if (!late) storage_tell_slow(storage, STORAGE_SLOW);
        nanoseconds age = storage_age(storage), next = STORAGE_SLOW - age % STORAGE_SLOW;
        idle = idle && age < 0;
        if (age >= 0 && next < soonest) soonest = next;
    }
    /* No row is waited for for ever: a launch may wait for it, or a worker that made a checkpoint. */
    if (!late && records_busy(run->records) && storage_age(records_storage(run->records)) >= STORAGE_LIMIT)
        records_wait(run->records, 0);
    if (!idle) start_timer(run, soonest);
}

/* Only while something is under way does the loop wake for it. The timer finds out by itself that there is
 * nothing to tell: the journal is written many times a second. */
void run_storage_watch(struct ty_run *run) {
    for (size_t i = 0; i < ARRAY_SIZE(run->storage.watches); i++) {
        struct storage_watch *watch = &run->storage.watches[i];
        bool busy = storage_busy(watch->storage);
        if (busy == watch->watched) continue;
        watch->watched = busy;
        (void)loop_watch_start(run->loop, &watch->watch, storage_fd(watch->storage), busy ? LOOP_READABLE : 0);
        if (busy && run->storage.timer.state == NULL) start_timer(run, STORAGE_SLOW);
    }
    if (run->phase == PHASE_LINGERING && !is_busy(run)) run_storage_stop_lingering(run);
}

/* The watches are started once, to rest: later that takes no memory. */
int run_storage_open(struct ty_run *run, ty_error *err) {
    struct storage *storages[] = {checkpoints_storage(run->checkpoints), records_storage(run->records),
                                  usage_storage(run)};
    run->storage.timer = (struct loop_timer){.callback = on_timer, .context = run};
    run->storage.linger_timer = (struct loop_timer){.callback = run_storage_stop_lingering, .context = run};
    for (size_t i = 0; i < ARRAY_SIZE(run->storage.watches); i++) {
        struct storage_watch *watch = &run->storage.watches[i];
        *watch = (struct storage_watch){storages[i], {.callback = on_storage, .context = watch}, false};
        int code = loop_watch_start(run->loop, &watch->watch, storage_fd(storages[i]), LOOP_READABLE);
        if (code < 0) return ty_fail(err, code, "cannot watch an eventfd: %s", strerror(-code));
        (void)loop_watch_start(run->loop, &watch->watch, storage_fd(storages[i]), 0);
    }
    records_listen(run->records, on_written, run);
    return 0;
}

void run_storage_close(struct ty_run *run) {
    loop_timer_stop(run->loop, &run->storage.linger_timer);
    loop_timer_stop(run->loop, &run->storage.timer);
    for (size_t i = 0; i < ARRAY_SIZE(run->storage.watches); i++)
        loop_watch_stop(run->loop, &run->storage.watches[i].watch);
    records_listen(run->records, NULL, NULL);
}
