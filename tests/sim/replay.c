/* One event after another. */
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is not the core's to tell: a plan, and a controller before this one whose last attempt died with it. */
static void tell(struct replay *replay, enum run_event_kind kind, int attempt) {
    struct run_event event = run_event_new(kind);
    const struct run_config *config = replay->config;
    event.time = 1;
    event.attempt = attempt;
    if (kind == EVENT_PLAN) event.of.plan.ranks = (struct event_numbers){config->node_of, config->n_workers};
    if (kind == EVENT_ATTEMPT) event.of.attempt.workers = config->n_workers;
    replay_note(&replay->fold, &event);
}

void replay_begin(struct replay *replay, const struct run_config *config) {
    replay_done(&replay->fold);
    *replay = (struct replay){.config = config, .state = RUN_IDLE};
    if (config->first_attempt > 1) {
        tell(replay, EVENT_ATTEMPT, config->first_attempt - 1);
        tell(replay, EVENT_LAUNCHED, config->first_attempt - 1);
        tell(replay, EVENT_RUN, 0);
    }
    replay_plan(replay);
}

void replay_plan(struct replay *replay) {
    tell(replay, EVENT_PLAN, 0);
}

void replay_row(struct replay *replay, const char *checkpoint) {
    (void)snprintf(replay->row, sizeof replay->row, "%s", checkpoint);
}

static void take_checkpoint(struct replay *replay, const char *path) {
    (void)snprintf(replay->checkpoint, sizeof replay->checkpoint, "%s", path != NULL ? path : replay->row);
}

static void end_attempt(struct replay *replay, const struct event_attempt_end *end) {
    replay->unsaid = end->outcome == NULL;
    replay->retries = !isnan(end->retry);
    replay->state = replay->retries ? RUN_PAUSING : RUN_FINISHING;
}

void replay_event(struct replay *replay, const struct run_event *event) {
    replay_note(&replay->fold, event);
    switch ((int)event->kind) {
    case EVENT_ATTEMPT:
        replay->state = RUN_STARTING;
        break;
    case EVENT_NODE:
        replay->node_up[event->node] = true;
        break;
    case EVENT_NODE_LOST:
    case EVENT_CLEAN:
        replay->node_up[event->node] = false;
        break;
    case EVENT_ADOPTED:
        for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
            replay->node_up[replay->config->node_of[rank]] = true;
        replay->state = RUN_RUNNING;
        break;
    case EVENT_LAUNCHED:
        replay->state = RUN_RUNNING;
        break;
    case EVENT_STOP:
        replay->state = RUN_STOPPING;
        break;
    case EVENT_CHECKPOINT:
        take_checkpoint(replay, event->of.checkpoint.path);
        break;
    case EVENT_WAIT:
        replay->state = RUN_PAUSING;
        break;
    case EVENT_ATTEMPT_END:
        end_attempt(replay, &event->of.attempt_end);
        break;
    case EVENT_RUN_END:
        replay->state = RUN_ENDED;
        break;
    default:
        break;
    }
}

static enum worker_state told_of(const struct replay *replay, uint32_t rank) {
    return rank < replay->fold.n_workers ? replay->fold.workers[rank].state : WORKER_PLANNED;
}

static bool all_gone(const struct replay *replay) {
    for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
        if (told_of(replay, rank) != WORKER_GONE) return false;
    return true;
}

/* One that was never launched is gone without a word. */
static bool same_worker(enum worker_state told, enum worker_state live) {
    return told == live || (told == WORKER_PLANNED && live == WORKER_GONE);
}

/* A pause that is given up ends the run without a word until all agents have gone; an attempt whose last
 * checkpoint is on its way into its place is stopped without a word when nobody is left to hear it. */
static bool same_state(const struct replay *replay, enum run_state live) {
    return replay->state == live || (replay->state == RUN_PAUSING && live == RUN_FINISHING) ||
           (replay->state == RUN_RUNNING && live == RUN_STOPPING && all_gone(replay)) ||
           (replay->state == RUN_FINISHING && live == RUN_PAUSING && replay->unsaid);
}

static bool is_up(enum node_state state) {
    return state == NODE_UP || state == NODE_LAUNCHED || state == NODE_FINISHING;
}

const char *replay_differs(const struct replay *replay, const struct run *run) {
    static char text[128];
    text[0] = '\0';
    const char *checkpoint = run_checkpoint(run) == NULL ? "" : run_checkpoint(run);
    if (!same_state(replay, run_state_of(run)))
        (void)snprintf(text, sizeof text, "the run is %s, its journal says %s",
                       run_state_name(run_state_of(run)), run_state_name(replay->state));
    if (replay->fold.attempt != run_attempt(run))
        (void)snprintf(text, sizeof text, "attempt %d, its journal says %d", run_attempt(run),
                       replay->fold.attempt);
    if (strcmp(replay->checkpoint, checkpoint) != 0)
        (void)snprintf(text, sizeof text, "the last checkpoint is '%s', its journal says '%s'", checkpoint,
                       replay->checkpoint);
    if (replay->fold.failed) (void)snprintf(text, sizeof text, "the fold of its journal is not whole");
    for (uint32_t node = 0; node < replay->config->n_nodes; node++)
        if (replay->node_up[node] != is_up(run_node_state(run, node)))
            (void)snprintf(text, sizeof text, "node %u is %s, its journal says %s", node,
                           node_state_name(run_node_state(run, node)), replay->node_up[node] ? "up" : "away");
    for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
        if (!same_worker(told_of(replay, rank), run_worker(run, rank)->state))
            (void)snprintf(text, sizeof text, "rank %u is %s, its journal says %s", rank,
                           worker_state_name(run_worker(run, rank)->state),
                           worker_state_name(told_of(replay, rank)));
    return text[0] == '\0' ? NULL : text;
}
