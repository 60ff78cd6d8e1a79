/* One event after another; what goes without an event of its own is told by the one that brings it about: a
 * node takes its workers with it, and the end of an attempt finds them all gone. */
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void replay_begin(struct replay *replay, const struct run_config *config) {
    *replay = (struct replay){.config = config, .state = RUN_IDLE, .attempt = config->first_attempt - 1};
}

static void set_workers(struct replay *replay, int node, enum worker_state state) {
    for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
        if (node < 0 || replay->config->node_of[rank] == (uint32_t)node) replay->workers[rank] = state;
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
    set_workers(replay, -1, WORKER_GONE);
}

static void lose_node(struct replay *replay, int node) {
    replay->node_up[node] = false;
    if (replay->state == RUN_RUNNING || replay->state == RUN_STOPPING) set_workers(replay, node, WORKER_GONE);
}

void replay_event(struct replay *replay, const struct run_event *event) {
    switch (event->kind) {
    case EVENT_ATTEMPT:
        replay->attempt = event->attempt;
        replay->state = RUN_STARTING;
        set_workers(replay, -1, WORKER_PLANNED);
        break;
    case EVENT_NODE:
        replay->node_up[event->node] = true;
        break;
    case EVENT_NODE_LOST:
        lose_node(replay, event->node);
        break;
    case EVENT_CLEAN:
        replay->node_up[event->node] = false;
        break;
    case EVENT_ADOPTED:
        for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
            replay->node_up[replay->config->node_of[rank]] = true;
        replay->state = RUN_RUNNING;
        set_workers(replay, -1, WORKER_LAUNCHED);
        break;
    case EVENT_LAUNCHED:
        replay->state = RUN_RUNNING;
        set_workers(replay, -1, WORKER_LAUNCHED);
        break;
    case EVENT_STARTED:
        replay->workers[event->rank] = WORKER_STARTED;
        break;
    case EVENT_READY:
        replay->workers[event->rank] = WORKER_READY;
        break;
    case EVENT_EXITED:
        replay->workers[event->rank] = WORKER_EXITED;
        break;
    case EVENT_GONE:
    case EVENT_START_FAILED:
        replay->workers[event->rank] = WORKER_GONE;
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

static bool all_gone(const struct replay *replay) {
    for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
        if (replay->workers[rank] != WORKER_GONE) return false;
    return true;
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
    if (replay->attempt != run_attempt(run))
        (void)snprintf(text, sizeof text, "attempt %d, its journal says %d", run_attempt(run), replay->attempt);
    if (strcmp(replay->checkpoint, checkpoint) != 0)
        (void)snprintf(text, sizeof text, "the last checkpoint is '%s', its journal says '%s'", checkpoint,
                       replay->checkpoint);
    for (uint32_t node = 0; node < replay->config->n_nodes; node++)
        if (replay->node_up[node] != is_up(run_node_state(run, node)))
            (void)snprintf(text, sizeof text, "node %u is %s, its journal says %s", node,
                           node_state_name(run_node_state(run, node)), replay->node_up[node] ? "up" : "away");
    for (uint32_t rank = 0; rank < replay->config->n_workers; rank++)
        if (replay->workers[rank] != run_worker(run, rank)->state)
            (void)snprintf(text, sizeof text, "rank %u is %s, its journal says %s", rank,
                           worker_state_name(run_worker(run, rank)->state),
                           worker_state_name(replay->workers[rank]));
    return text[0] == '\0' ? NULL : text;
}
