/* Elastic runs: each attempt has as many workers as fit when it begins, and now and then the one that runs is
 * looked at.
 *
 * A look asks for a plan. Nodes that it wants and that have no agent get one first, so that nobody is
 * stopped for a node that does not come back. Then the workers go on until their next checkpoint, one
 * interval at most, and are told to stop; the attempt that follows is planned anew. None of this is a
 * failure. */
#include <stdio.h>
#include <string.h>

#include "run/internal.h"

/* However short the interval: to look costs a plan. */
static const nanoseconds LOOK_LEAST = 100 * NS_PER_MS;

static bool is_elastic(const struct run *run) {
    return run->config.resize_interval > 0;
}

static nanoseconds interval_of(const struct run *run) {
    return run->config.resize_interval > LOOK_LEAST ? run->config.resize_interval : LOOK_LEAST;
}

static void say(struct run *run, uint32_t to) {
    (void)snprintf(run->resize.text, sizeof run->resize.text, "resize: %u -> %u workers", run->config.n_workers,
                   to);
}

/* -- while it runs */

static void look_later(struct run *run) {
    run->resize.phase = RESIZE_NONE;
    run->ops->set_timer(run->context, TIMER_RESIZE, interval_of(run));
}

void run_resize_launched(struct run *run) {
    run->resize.saved = run->ops->now(run->context);
    run->resize.saved_number = run->report_base;
    if (is_elastic(run)) look_later(run);
}

/* Some agent was started and has not said hello. */
static bool connects(const struct run *run) {
    bool found = false;
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        found |= run->nodes[node].state == NODE_CONNECTING;
    return found;
}

/* Asks whether another number of workers would fit now. With `lost_too` nodes that were lost count as there, as
 * nothing but a start shows whether one is back: those that the plan wants are started, and the look goes on in
 * run_resize_node when all have answered. Each further look is without the nodes that could not be started, so
 * there is an end. */
static void look(struct run *run, bool lost_too) {
    for (unsigned flags = lost_too ? LAYOUT_LOST_TOO : 0;; flags = 0) {
        struct run_layout layout = {0};
        run->ops->layout(run->context, flags, &layout);
        if (layout.n_workers == 0 || layout.n_workers == run->config.n_workers) {
            look_later(run);
            return;
        }
        run->config.n_nodes = layout.n_nodes;
        if (layout.n_workers > run->config.n_workers) run_start_nodes(run, layout.node_of, layout.n_workers);
        if (connects(run)) {
            run->resize.phase = RESIZE_PROBING;
            run->ops->set_timer(run->context, TIMER_START, run->config.start_limit);
            return;
        }
        bool up = true;
        for (uint32_t rank = 0; rank < layout.n_workers; rank++) {
            enum node_state state = run->nodes[layout.node_of[rank]].state;
            up &= state == NODE_UP || state == NODE_LAUNCHED;
        }
        if (layout.n_workers > run->config.n_workers && !up) continue;
        run->resize.phase = RESIZE_AWAITING;
        run->ops->set_timer(run->context, TIMER_RESIZE, interval_of(run));
        return;
    }
}

void run_resize_node(struct run *run) {
    if (run->resize.phase != RESIZE_PROBING || connects(run)) return;
    run->ops->set_timer(run->context, TIMER_START, -1);
    look(run, false);
}

/* What would fit may have gone again meanwhile. */
static void carry_out(struct run *run) {
    struct run_layout layout = {0};
    run->ops->layout(run->context, 0, &layout);
    if (layout.n_workers == 0 || layout.n_workers == run->config.n_workers) {
        look_later(run);
        return;
    }
    say(run, layout.n_workers);
    run->resize.phase = RESIZE_STOPPING;
    run->resize.stopped = run->ops->now(run->context);
    run->ops->set_timer(run->context, TIMER_RESIZE, -1);
    run_stop_attempt(run, run->resize.text);
}

void run_on_resize(struct run *run, const struct run_input *input) {
    (void)input;
    if (!is_elastic(run)) return;
    if (run->resize.phase == RESIZE_NONE)
        look(run, true);
    else if (run->resize.phase == RESIZE_AWAITING || run->resize.phase == RESIZE_DUE)
        carry_out(run);
}

/* A checkpoint is whole: what is done from here on is all that a stop would lose. The stop itself waits until
 * the ranks that wait for this commit have been answered (run_resize_after_report). */
void run_resize_committed(struct run *run, uint64_t number) {
    run->resize.saved = run->ops->now(run->context);
    run->resize.saved_number = number;
    if (run->resize.phase == RESIZE_AWAITING) run->resize.phase = RESIZE_DUE;
}

void run_resize_after_report(struct run *run) {
    if (run->resize.phase == RESIZE_DUE) carry_out(run);
}

/* -- between attempts */

void run_count_lost(struct run *run, nanoseconds until) {
    struct run_resize *resize = &run->resize;
    nanoseconds lost = until - resize->saved;
    resize->lost_seconds = lost > 0 ? duration_seconds(lost) : 0;
    resize->lost_reports =
        run->last_number > resize->saved_number ? run->last_number - resize->saved_number : 0;
}

bool run_resize_end(struct run *run) {
    bool stopping = run->resize.phase == RESIZE_STOPPING;
    if (is_elastic(run)) run->ops->set_timer(run->context, TIMER_RESIZE, -1);
    run->resize.phase = RESIZE_NONE;
    if (!stopping || run->failure.outcome != OUTCOME_NONE || run->interrupts > 0) return false;
    bool finished = true; /* all workers came to an end of their own before they heard that they are to stop */
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        const struct run_worker *worker = &run->workers[rank];
        finished &= worker->exited && !worker->stopped && worker->wait_status == 0;
    }
    if (finished) return false;
    struct run_resize *resize = &run->resize;
    run_count_lost(run, resize->stopped);
    size_t length = strlen(resize->text);
    (void)snprintf(resize->text + length, sizeof resize->text - length,
                   "; %.1f s of work and %llu report%s since %s are lost", resize->lost_seconds,
                   (unsigned long long)resize->lost_reports, resize->lost_reports == 1 ? "" : "s",
                   resize->saved_number > run->report_base ? "the last checkpoint" : "the launch");
    return true;
}

/* A run of one size for whose lost nodes there are no others goes on with the nodes that it had: they may come
 * back. */
void run_next_attempt(struct run *run) {
    struct run_layout layout = {0};
    if (is_elastic(run) || run->config.replaced) {
        /* Without the lost nodes, or else with them, as nothing but a start can show that one is back. */
        run->ops->layout(run->context, LAYOUT_CLAIM, &layout);
        if (layout.n_workers == 0) run->ops->layout(run->context, LAYOUT_CLAIM | LAYOUT_LOST_TOO, &layout);
    }
    bool planned = layout.n_workers > 0;
    if (is_elastic(run) && !planned) {
        /* Told once, and looked at again as often as a run that has room. */
        if (run_move(run, RUN_WAITING)) run_record_wait(run, layout.why);
        run->ops->set_timer(run->context, TIMER_PAUSE, interval_of(run));
        return;
    }
    if (!run_move(run, RUN_STARTING)) return;
    if (planned) {
        /* Workers of another attempt: all that is known of the old ones is on record. */
        run->resize.text[0] = '\0';
        if (layout.n_workers != run->config.n_workers || run->outcome == OUTCOME_RESIZED)
            say(run, layout.n_workers);
        memset(run->workers, 0, run->config.max_workers * sizeof *run->workers);
        memset(run->counts, 0, sizeof run->counts);
        run->config.n_workers = layout.n_workers;
        run->config.n_nodes = layout.n_nodes;
        run->config.node_of = layout.node_of;
        run->counts[WORKER_PLANNED] = layout.n_workers;
        run_count_nodes(run);
    }
    run_begin_attempt(run);
}
