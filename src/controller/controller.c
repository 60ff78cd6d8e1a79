/* A run for its owner: opened, taken a turn of its loop at a time, closed. Events come in during a turn and go
 * to the core; at its end the journal is committed, and only then what the core wanted is sent. Every face
 * comes this way: the command and ty_fit stay in controller_run, the owner of a ty_run calls turn by turn.
 *
 * SIGPIPE is held off by blocking it in this thread and taking away what came meanwhile: it is sent to the
 * thread that wrote, so that nobody else's is touched. */
#include "controller/controller.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "controller/ty_run.h"

/* Turns of one dispatch: enough for what one event leads to at once, few enough for the owner's own events to
 * have their turn. */
enum { TURNS_MAX = 16 };

/* -- a turn */

/* Rows first: what is sent behind them, and must not come before them, is held in its channel (peer_hold). */
static void end_turn(void *context) {
    struct ty_run *run = context;
    run_storage_commit(run);
    agents_flush(run);
    checkpoints_clean(run->checkpoints); /* whoever waited for a commit has been answered */
    run_storage_watch(run);
    if (run->phase == PHASE_RUNNING) progress_show(&run->output.progress);
}

static bool is_intact(const struct ty_run *run) {
    return run->phase == PHASE_OVER || (loop_intact(run->loop) && descriptors_intact(run_lock_fd(run->lock)));
}

/* Before anything is done with what the run has open: its owner was at work, and what stands under those
 * numbers now may be the owner's. Nothing is written to it. Agents end when they are alone. */
static void look_after(struct ty_run *run) {
    if (is_intact(run)) return;
    (void)ty_fail(&run->error, TY_EUSAGE,
                  "the run ended: the program that drives it closed the run's descriptors (only its own are "
                  "its to close); workers are ended%s, and what was on record can be resumed",
                  run->prepared.rendezvous != NULL ? " (on other nodes within the time of --outlive)" : "");
    run->phase = PHASE_OVER;
    run->storage.held = true;
    loop_abandon(run->loop);
    records_abandon(run->records, &run->error);
    storage_hold(usage_storage(run), true);
    storage_hold(checkpoints_storage(run->checkpoints), true);
    for (uint32_t node = 0; node < run->agents.n; node++)
        peer_lose(&run->agents.peers[node]);
}

/* A turn of the loop, which waits for something to happen or not. False once the run has ended. */
static bool step(struct ty_run *run, bool wait) {
    look_after(run);
    bool left = run->phase == PHASE_OVER || loop_turn(run->loop, wait);
    if (!left && wait) run->phase = PHASE_OVER; /* an owner who does not wait may have to take events first */
    return run->phase != PHASE_OVER;
}

/* -- open */

/* As long as this process has a run, workers whose agent dies become its children, so that they can be reaped.
 * The last run to end need not be the one that began first. */
static struct {
    pthread_mutex_t lock;
    int runs;   /* that are open */
    int before; /* what the process was without them */
} orphanage = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock_orphanage(void) {
    (void)pthread_mutex_lock(&orphanage.lock);
}

static void unlock_orphanage(void) {
    (void)pthread_mutex_unlock(&orphanage.lock);
}

static void begin_child(void) {
    (void)pthread_mutex_init(&orphanage.lock, NULL);
    orphanage.runs = 0;
}

static void watch_forks(void) {
    (void)pthread_atfork(lock_orphanage, unlock_orphanage, begin_child);
}

/* `change`: a run more, or one less. */
static void adopt_orphans(int change) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    lock_orphanage();
    if (orphanage.runs == 0) (void)prctl(PR_GET_CHILD_SUBREAPER, &orphanage.before);
    orphanage.runs += change;
    (void)prctl(PR_SET_CHILD_SUBREAPER, orphanage.runs > 0 ? 1 : orphanage.before);
    unlock_orphanage();
}

int controller_open_loop(struct ty_run *run, ty_error *err) {
    run->loop = run->prepared.loop != NULL ? TAKE(run->prepared.loop) : loop_create(err);
    if (run->loop == NULL) return err->code;
    adopt_orphans(1);
    loop_on_turn_end(run->loop, end_turn, run);
    agents_open(run);
    act_open(run);
    int result = run_storage_open(run, err);
    if (result < 0) return result;
    if (run->request->handle_signals) interruption_listen(run);
    control_socket_open(run);
    output_open(run);
    bool terminals = run->request->settings.pty || run->request->settings.debug >= 0;
    if (terminals && run->request->handle_signals) window_open(&run->window, run->loop, agents_send, run);
    input_open(&run->input, run->loop, run->request->settings.input, peer_send_to_rank, run);
    if (run->request->settings.pty || run->request->settings.input == run->request->settings.debug)
        input_by_key(&run->input);
    return 0;
}

/* Waits for agents that end, and for a slow reader of the output. In this order: agents may print until their
 * end, the nodes elsewhere hear the exit status last, and the loop goes when nothing of it is open. */
static void close_loop(struct ty_run *run) {
    control_socket_close(run);
    agents_close(run);
    metrics_file_close(run);
    /* What the command ends with, here and on all nodes. */
    int status = ty_error_exit_status(run->error.code < 0 ? run->error.code : TY_EINTERRUPTED);
    if (run->error.code >= 0 && run->core != NULL) status = run_exit_status(run->core);
    rendezvous_close(TAKE(run->prepared.rendezvous), status);
    wait_end(run);
    act_close(run);
    run_storage_close(run);
    interruption_close(run);
    input_close(&run->input);
    window_close(&run->window);
    output_close(run);
    loop_destroy(run->loop);
    adopt_orphans(-1);
}

/* All that needs the loop, or is of the core's. */
static void close_parts(struct ty_run *run) {
    if (run->loop != NULL) close_loop(run);
    launch_destroy(run->launched.launch);
    free(run->launched.port_numbers);
    ports_done(&run->launched.ports);
    store_destroy(run->launched.store);
    shared_release(run->committing.list);
    run_destroy(TAKE(run->core));
    agents_free(run);
    adoption_done(run);
    idset_done(&run->apart.nodes);
    buffer_done(&run->committing.metrics);
    buffer_done(&run->interruption.told);
}

static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    struct ty_run *run = context;
    const struct engine_options *options = run->request->engine_options;
    bool waits = run->loop == NULL && options != NULL && options->told_fd > 0; /* nobody takes events yet */
    if (waits && str_equal(subsystem, "join"))
        (void)dprintf(options->told_fd, "%s\n", text);
    else
        events_add_log(&run->events, level, subsystem, text);
}

static void destroy(struct ty_run *run) {
    checkpoints_close(run->checkpoints, 0);
    usage_close(run);
    records_close(run->records, 0);
    prepare_done(&run->prepared);
    run_lock_release(run->lock, run->storage.held);
    descriptors_close(&run->directory);
    events_done(&run->events);
    replay_done(&run->replay);
    request_destroy(run->read);
    free(run->name);
    free(run->path);
    free(run);
}

/* `read` is taken over, NULL when `request` is the caller's. */
static int open_run(const struct run_request *request, struct request *read, struct ty_run **out,
                    ty_error *err) {
    struct ty_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        request_destroy(read);
        return ty_fail_memory(err);
    }
    *run = (struct ty_run){.owner = getpid(),
                           .request = request,
                           .read = read,
                           .directory = -1,
                           .room.fd = -1,
                           .events = {.wanted = request->events},
                           .output.sinks = {{.fd = -1}, {.fd = -1}}};
    if ((request->events & 1u << EVENTS_LOG) != 0) {
        run->log = log_target(tell_log, run);
        (void)log_divert(run->log); /* until `leave` */
    }
    int code = opening_begin(run, err);
    if (code < 0) {
        run->error.code = code;
        close_parts(run);
        /* Of a run that has no loop yet the parts are not closed. */
        rendezvous_close(TAKE(run->prepared.rendezvous), ty_error_exit_status(code));
        destroy(run);
        return code;
    }
    /* The loop's first turn waits for an event, and none may come: the run may have ended already. */
    end_turn(run);
    *out = run;
    return 0;
}

/* -- close */

/* A run that goes on is ended by force, with its output dropped, since nobody takes it. What is still to be
 * written gets its time; then the result is made, of a run that is over and whose journal is whole. */
static int close_run(struct ty_run *run, ty_result **result, ty_error *err) {
    look_after(run);
    if (run->phase != PHASE_OVER) {
        /* Bounded by the limits of run/. */
        events_drop_output(&run->events);
        if (!output_drop(run)) output_go_on(run);
        interrupt_by_force(run);
        end_turn(run);
        while (step(run, true)) {
        }
    }
    if (run->core == NULL) result_note_unbegun(run);
    nanoseconds limit = run_storage_limit(run);
    records_finish(run->records); /* last, since no word of it can go on record any more */
    records_wait(run->records, limit);
    if (run->loop != NULL) close_loop(run);
    run->loop = NULL;
    int code = run->error.code;
    if (code < 0)
        *err = run->error;
    else
        code = result_tell(run, result, err);
    close_parts(run);
    checkpoints_close(TAKE(run->checkpoints), limit);
    destroy(run);
    return code;
}

/* -- the owner's calls */

/* What a call found, and leaves as it was. */
struct entry {
    sigset_t only, saved; /* only: SIGPIPE */
    bool was_pending;
    struct log_target log;
};

static bool is_pending(void) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

/* Until `leave`, writing to somebody who went away is an error and nothing else, and messages of this thread
 * are those of the run, where its owner wants them. NULL: it is not open yet. */
static struct entry enter(const struct ty_run *run) {
    struct entry entry = {.was_pending = is_pending(), .log = log_divert((struct log_target){0})};
    (void)log_divert(run != NULL && run->log.sink != NULL ? run->log : entry.log);
    (void)sigemptyset(&entry.only);
    (void)sigaddset(&entry.only, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &entry.only, &entry.saved);
    return entry;
}

static void leave(const struct entry *entry) {
    static const struct timespec at_once = {0};
    if (!entry->was_pending && is_pending()) (void)sigtimedwait(&entry->only, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &entry->saved, NULL);
    (void)log_divert(entry->log);
}

/* A child that was forked has a copy of the run's memory, and nothing else of it. */
static int check_owner(const struct ty_run *run, ty_error *err) {
    if (run->owner == getpid()) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "this run belongs to process %d, which opened it: a child that was forked can neither drive nor "
        "end it",
        (int)run->owner);
}

/* Events to the function that wants them, which may fork: in its child, where TY_EUSAGE comes back, nothing
 * of the run is touched. Its first word that the run is to end is obeyed; another one must not end it by
 * force. */
static int tell_owner(struct ty_run *run, bool *stopped, ty_error *err) {
    const struct run_request *request = run->request;
    char *text;
    while (events_take(&run->events, &text) > 0) {
        progress_hide(&run->output.progress);
        int answer = request->on_event(request->event_context, text);
        free(text);
        if (check_owner(run, err) < 0) return TY_EUSAGE;
        look_after(run);
        if (answer == 0 || *stopped || run->phase == PHASE_OVER) continue;
        *stopped = true;
        interrupt_run(run, 0);
        end_turn(run);
    }
    return 0;
}

int controller_run(const struct run_request *request, ty_result **result, ty_error *err) {
    CLEANUP(leave) struct entry entry = enter(NULL);
    struct ty_run *run;
    ty_error own = {0};
    if (err == NULL) err = &own;
    *result = NULL;
    sink_hurry(true);
    int code = open_run(request, NULL, &run, err);
    bool goes_on = code >= 0, stopped = false, owned = true;
    while (goes_on && owned) {
        goes_on = step(run, true);
        if (request->on_event != NULL) owned = tell_owner(run, &stopped, err) == 0;
    }
    if (!owned)
        code = TY_EUSAGE;
    else if (code >= 0)
        code = close_run(run, result, err);
    sink_hurry(code == TY_EINTERRUPTED || code == TY_EPREEMPTED);
    return code;
}

int controller_open(const char *request_json, const void *payload, size_t payload_size, ty_run **out,
                    ty_error *err) {
    CLEANUP(leave) struct entry entry = enter(NULL);
    struct request *read;
    ty_error own = {0};
    if (err == NULL) err = &own;
    int code = request_read(request_json, payload, payload_size, &read, err);
    return code < 0 ? code : open_run(run_request_of(read), read, out, err);
}

int controller_fd(const ty_run *run) {
    return check_owner(run, NULL) < 0 ? -1 : loop_fd(run->loop);
}

int controller_timeout_ms(const ty_run *run) {
    if (check_owner(run, NULL) < 0 || run->phase == PHASE_OVER || !is_intact(run)) return 0;
    return loop_timeout_ms(run->loop);
}

int controller_dispatch(ty_run *run, ty_error *err) {
    bool more;
    int turns = 0;
    if (check_owner(run, err) < 0) return TY_EUSAGE;
    CLEANUP(leave) struct entry entry = enter(run);
    do
        more = step(run, false);
    while (more && ++turns < TURNS_MAX && loop_timeout_ms(run->loop) == 0);
    return more;
}

int controller_next_event(ty_run *run, char **event_json) {
    if (check_owner(run, NULL) < 0) return TY_EUSAGE;
    CLEANUP(leave) struct entry entry = enter(run);
    int result = events_take(&run->events, event_json);
    if (result > 0) progress_hide(&run->output.progress); /* the owner may have something to say of it */
    /* Agents that waited for room are heard again. */
    if (run->output.paused && run->events.size <= EVENTS_LOW) output_go_on(run);
    return result;
}

int controller_stop(ty_run *run, int signal_number) {
    if (signal_number < 0 || signal_number >= SIGRTMAX || check_owner(run, NULL) < 0) return TY_EUSAGE;
    look_after(run);
    if (run->phase == PHASE_OVER) return 0;
    CLEANUP(leave) struct entry entry = enter(run);
    interrupt_run(run, signal_number);
    end_turn(run); /* as at the end of a turn of the loop, which knows nothing of it */
    return 0;
}

int controller_checkpoint_metrics(ty_run *run, uint64_t number, const char *metrics, ty_error *err) {
    CLEANUP(buffer_done) struct buffer corrected = {0};
    int result = metrics_check(metrics, strlen(metrics), &corrected, err);
    if (result < 0) {
        (void)ty_wrap(err, "ty_run_checkpoint_metrics");
        return result;
    }
    if (result > 0) metrics = corrected.data;
    if (check_owner(run, err) < 0) return TY_EUSAGE;
    CLEANUP(leave) struct entry entry = enter(run);
    look_after(run);
    result = checkpoints_set_metrics(run->checkpoints, number, metrics, err);
    if (run->phase != PHASE_OVER) end_turn(run);
    return result;
}

int controller_close(ty_run *run, ty_result **result, ty_error *err) {
    ty_result *own_result = NULL;
    ty_error own = {0};
    if (result != NULL) *result = NULL;
    if (check_owner(run, err) < 0) return TY_EUSAGE;
    CLEANUP(leave) struct entry entry = enter(run);
    int code = close_run(run, &own_result, err != NULL ? err : &own);
    if (result != NULL)
        *result = own_result;
    else
        ty_result_free(own_result);
    return code;
}
