/* From a request to a run that has begun: check, name, plan, directory, journal, and then the core. Nothing is
 * made before the plan stands (or the run is known to wait), so that a request which cannot be met leaves
 * nothing behind. A run that is there and is resumed is locked before anybody is waited for. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/adrift.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "controller/ty_run.h"
#include "engine/local.h"
#include "wire/channel.h"

static const nanoseconds START_LIMIT = 60 * NS_PER_S, LEFT_LIMIT = 5 * NS_PER_S;

/* Many runs of one second may have made the same name up. */
static int choose_name(struct ty_run *run, ty_error *err) {
    const struct run_settings *settings = &run->request->settings;
    char made[64];
    do {
        if (settings->name == NULL) run_directory_make_name(made);
        free(run->name);
        free(run->path);
        run->path = NULL;
        run->name = strdup(settings->name != NULL ? settings->name : made);
        if (run->name == NULL) return ty_fail_memory(err);
        run->path = run_directory_path(settings->storage_path, run->name, settings->face, err);
        if (run->path == NULL) return err->code;
    } while (settings->name == NULL && access(run->path, F_OK) == 0);
    return 0;
}

/* Plans, or learns that the run must wait for others: `why` then has a code. */
static int plan(struct ty_run *run, struct holder_list *holders, ty_error *why, ty_error *err) {
    int result = prepare_plan(run->request, run->name, &run->prepared, holders, why);
    if (result == TY_EBUSY) wait_describe(&run->prepared.demand, holders, why);
    if (result == TY_EBUSY && holders->n > 0 && !run->request->settings.no_wait) {
        log_warning("controller", "waiting: %s", why->message);
        return 0;
    }
    if (result < 0) return ty_fail(err, result, "%s", why->message);
    *why = (ty_error){0};
    return 0;
}

/* -- the journal */

/* The last ones of rank 0, until it reports again. */
static int note_past_metrics(void *context, const struct journal_report *report) {
    struct buffer *metrics = &((struct ty_run *)context)->committing.metrics;
    buffer_append(metrics, report->metrics, report->metrics_size);
    buffer_char(metrics, '\0');
    return metrics->failed ? -ENOMEM : 0;
}

/* Where an earlier controller of the run left it. */
static int read_past(struct ty_run *run, ty_error *err) {
    struct journal *journal = records_journal(run->records);
    const struct run_replay *replay = &run->replay;
    int result = journal_replay(journal, &run->replay, err);
    if (replay->id != NULL && strlen(replay->id) < sizeof run->id) strcpy(run->id, replay->id);
    run->past.attempts = replay->attempt;
    const struct event_run *began = &replay->attempt_run.event.of.run;
    if (replay->n_attempts > 0 && !str_equal(began->engine, engine_local.name)) {
        /* Agents elsewhere may not have heard yet that their controller died, or that it gave them up: also in
         * an attempt that something else had ended first. */
        const struct ty_attempt_info *last = &replay->attempts[replay->n_attempts - 1];
        bool proven = last->ended > 0 && !str_equal(last->outcome, "died") && !replay->lost_node;
        double outlive = began->outlive;
        if (!(outlive > 0 && outlive < SETTING_SECONDS_MAX)) outlive = 0;
        if (!proven) run->past.fenced_at = clock_boot() + CHANNEL_FENCED + (nanoseconds)(outlive * 1e9);
    }
    if (result >= 0) result = journal_each_report(journal, 0, 1, note_past_metrics, run, err);
    if (result >= 0) result = adoption_read(run, journal, err);
    return result < 0 ? result : journal_last_number(journal, &run->past.last_number, err);
}

/* Agents that an earlier controller had on this machine end, with their workers, when they are alone. */
static int await_left(const struct ty_run *run, ty_error *err) {
    const struct event_texts *nodes = &run->replay.plan.event.of.plan.nodes;
    if (!str_equal(run->replay.run.event.of.run.engine, engine_local.name)) return 0;
    /* One limit for all of them: others of the machine may take their places. */
    nanoseconds end = clock_monotonic() + LEFT_LIMIT;
    for (size_t i = 0; i < nodes->n; i++) {
        pid_t pid;
        uid_t user;
        if (adrift_await_end(run->path, nodes->items[i], end - clock_monotonic(), &pid, &user)) continue;
        CLEANUP_FD int held = pid > 0 ? kernel_hold(pid) : -1;
        bool killed = pid > 0 && user == geteuid() && kernel_signal(held, pid, SIGKILL) == 0;
        if (killed && !adrift_await_end(run->path, nodes->items[i], LEFT_LIMIT, &pid, &user))
            return ty_fail(
                err, TY_EEXISTS,
                "the run %s is held: the agent of node %s, process %d, which its dead controller left, does "
                "not end",
                run->path, nodes->items[i], pid);
        log_warning(
            "controller", "the agent of node %s that the controller before this one left %s", nodes->items[i],
            killed ? "did not end, and was killed" : "cannot be found: somebody else listens in its place");
    }
    return 0;
}

/* `n` random bytes, of two digits each. */
static int draw_digits(char *text, size_t n, ty_error *err) {
    int result = kernel_random_digits(text, n);
    if (result == 0) return 0;
    return ty_fail(err, -EIO, "cannot draw random numbers for the run: %s", strerror(-result));
}

static int open_directory(struct ty_run *run, ty_error *err) {
    bool existed = false;
    run->directory = run_directory_open(run->path, run->request->settings.resume != NULL,
                                        run->request->settings.face, &existed, &run->lock, err);
    if (run->directory < 0) return run->directory;
    descriptors_withhold(run->directory);
    run->made = !existed;
    run->past.exists = existed && journal_exists(run->path) != 0;
    return 0;
}

/* What an earlier controller left here is looked for, and ended where it does not answer, by who has the run
 * alone: one that is there already is locked first, or refused, before nodes are waited for. A name that was
 * made up is nobody's yet, or another is made up for the journal. */
static int gather(struct ty_run *run, ty_error *err) {
    const struct run_settings *settings = &run->request->settings;
    bool waits = run->prepared.engine->prepare != NULL;
    bool there = settings->name != NULL && (waits || settings->resume != NULL) && access(run->path, F_OK) == 0;
    int result = there ? open_directory(run, err) : 0;
    return result < 0 ? result : prepare_gather(run->request, there ? run->path : NULL, &run->prepared, err);
}

/* From here on the run has a directory. Who drives it is settled by the lock first; the journal then says what
 * there was before, and agents that an earlier controller left on this machine are gone before checkpoints are
 * looked at. */
static int open_journal(struct ty_run *run, ty_error *err) {
    int result = run->lock == NULL ? open_directory(run, err) : 0;
    if (result < 0) return result;
    bool past = run->past.exists;
    struct journal *journal = NULL;
    result = journal_open(run->path, past ? JOURNAL_APPEND : JOURNAL_CREATE, &journal, err);
    if (result < 0 && run->made) {
        run_lock_release(TAKE(run->lock), false);
        run_directory_remove(run->path);
    }
    if (result < 0) return result;
    int lock = run_lock_fd(run->lock);
    result = records_open(&journal, run->path, lock, &run->records, err);
    if (result < 0) journal_close(journal);
    if (result >= 0) result = usage_open(run, err);
    if (result >= 0 && past) result = read_past(run, err);
    if (result >= 0 && past) result = await_left(run, err);
    if (result >= 0 && run->id[0] == '\0') result = draw_digits(run->id, 8, err);
    if (result < 0) return result;
    struct checkpoints_place place = {run->path, run->id, run->records, lock, past};
    return checkpoints_open(&place, &run->request->settings.checkpoints, &run->checkpoints, err);
}

/* -- the core */

/* sweep_clock comes before the first agent: children of this process that are older than that moment are none
 * of the run's. */
static int begin_core(struct ty_run *run, ty_error *err) {
    const struct run_settings *settings = &run->request->settings;
    const struct plan *planned = run->prepared.plan;
    int result = resize_begin(run, err);
    if (result < 0) return result;
    note_plan(run, 0);
    struct run_config config = {
        .n_workers = (uint32_t)planned->n_workers,
        .n_nodes = run->agents.n,
        .node_of = run->agents.node_of,
        .max_workers = (uint32_t)run->prepared.demand.max_workers,
        .max_nodes = run->agents.max,
        .resize_interval = resize_interval_of(run),
        .replaced = settings->spares > 0,
        .failures = settings->failures,
        .first_attempt = run->past.attempts + 1,
        .report_base = run->past.last_number,
        .checkpoint = checkpoints_latest(run->checkpoints),
        .time_limit = settings->time_limit,
        .grace = settings->grace,
        .start_limit = START_LIMIT,
    };
    run->agents.since = sweep_clock();
    result = run_create(&config, &act_ops, run, &run->core, err);
    if (result < 0) return result;
    run->phase = PHASE_RUNNING;
    progress_open(&run->output.progress, run->loop, run->core, run->name,
                  settings->quiet ? PROGRESS_NONE : (enum progress_mode)settings->progress);
    if (run->adoption.found) return adoption_begin(run, err);
    run_start(run->core);
    return 0;
}

void opening_fenced(struct ty_run *run) {
    if (run->phase == PHASE_OPENING && begin_core(run, &run->error) < 0) run->phase = PHASE_OVER;
}

/* The remains of an earlier controller are in order, or cannot be brought into it. */
static void on_opened(void *context, const ty_error *why_not) {
    struct ty_run *run = context;
    if (run->phase != PHASE_OPENING) return; /* interrupted meanwhile */
    nanoseconds left = why_not == NULL ? agents_fence(run) : 0;
    if (why_not != NULL) {
        run->error = *why_not;
        run->phase = PHASE_OVER;
    } else if (left > 0) {
        log_warning(
            "controller",
            "waiting %lld s at most: until then workers of the attempt in which the controller before this one "
            "was lost may live on nodes that it cannot reach",
            (long long)(left / NS_PER_S + 1));
    } else {
        opening_fenced(run);
    }
}

int opening_go_on(struct ty_run *run, ty_error *err) {
    const struct lease *lease = run->prepared.lease;
    if (lease != NULL) descriptors_withhold(lease_fd(lease));
    if (adoption_find(run)) {
        checkpoints_leave_past(run->checkpoints);
        return begin_core(run, err);
    }
    if (run->prepared.rendezvous != NULL) {
        /* What was adrift has gone on while the run waited, and hears of it late where the network is cut. */
        nanoseconds counted = rendezvous_send_away(run->prepared.rendezvous), fence = counted + CHANNEL_FENCED;
        if (counted > 0 && run->past.fenced_at < fence) run->past.fenced_at = fence;
    }
    if (!checkpoints_begin(run->checkpoints, on_opened, run)) return begin_core(run, err);
    run->phase = PHASE_OPENING;
    return 0;
}

/* -- from the request to the first turn */

/* Without it agents would look for another controller where there is none. */
static void keep_meeting(struct ty_run *run) {
    ty_error err = {0};
    if (run->prepared.outlive <= 0 || run->prepared.rendezvous == NULL ||
        rendezvous_keep(run->prepared.rendezvous, run->path, &err) >= 0)
        return;
    log_warning("controller", "workers will not outlive the controller: %s", err.message);
    run->prepared.outlive = 0;
}

int opening_begin(struct ty_run *run, ty_error *err) {
    CLEANUP(holder_list_done) struct holder_list holders = {0};
    ty_error why_wait = {0};
    int code = prepare_check(run->request, &run->prepared, err);
    if (code >= 0) code = choose_name(run, err);
    if (code >= 0) code = gather(run, err);
    if (code >= 0) code = plan(run, &holders, &why_wait, err);
    if (code < 0) return code;
    code = open_journal(run, err);
    /* Another run may have drawn the same name, and was first. */
    while (code == TY_EEXISTS && run->request->settings.name == NULL) {
        code = choose_name(run, err);
        if (code >= 0) code = open_journal(run, err);
    }
    if (code < 0) return code;
    const struct demand *demand = &run->prepared.demand;
    /* A program that always resumes does so in its first run as well, so it is no error; but a mistyped name
     * must be seen. */
    if (run->request->settings.resume != NULL && !run->past.exists) {
        CLEANUP_FREE char *near = run_directory_nearest(run->request->settings.storage_path, run->name);
        log_warning("controller", "nothing to resume under %s: a new run begins%s%s%s", run->path,
                    near != NULL ? "; did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "");
    }
    const char *sharing = demand_sharing_warning(demand, run->request->settings.backend);
    if (demand->deprecation != NULL) log_warning("scaling", "%s", demand->deprecation);
    if (demand->warning != NULL) log_warning("scaling", "%s", demand->warning);
    if (sharing != NULL) log_warning("backend", "%s", sharing);
    keep_meeting(run);
    note_run(run);
    note_network(run);
    code = draw_digits(run->token, 16, err);
    if (code >= 0) code = controller_open_loop(run, err);
    if (code < 0) return code;
    metrics_file_open(run);
    return why_wait.code != 0 ? wait_begin(run, why_wait.message, &holders, err) : opening_go_on(run, err);
}
