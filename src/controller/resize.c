/* Elastic runs, the controller's side: plans made anew while the run goes on. When to look, and whether
 * another size is worth a restart, is decided in src/run/resize.c. Nodes are known by their names; each
 * keeps its number for the run's life, whatever its rank in an attempt, since its agent and its node's state
 * in the core do. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "controller/ty_run.h"

/* Longer ones are as good as for ever. */
static const double INTERVAL_MOST_S = 1e9;

nanoseconds resize_interval_of(const struct ty_run *run) {
    if (!run->prepared.demand.elastic) return 0;
    double interval = run->request->scaling->elastic_resize_monitor_interval_s;
    nanoseconds wanted = (nanoseconds)((interval < INTERVAL_MOST_S ? interval : INTERVAL_MOST_S) * 1e9);
    return wanted > 0 ? wanted : 1;
}

/* The numbers of the plan's nodes by their ranks, and of each worker's node. False when there is no room for
 * another node. */
static bool number_nodes(struct ty_run *run, const struct prepared *planned, uint32_t *numbers,
                         uint32_t *node_of) {
    const struct plan *plan = planned->plan;
    for (size_t rank = 0; rank < plan->n_nodes_used; rank++) {
        const char *name = planned->cluster->nodes[plan->node_order[rank]].name;
        struct peer *peer = agents_find(run, name);
        if (peer == NULL) peer = agents_add(run, name);
        if (peer == NULL) return false;
        peer->cluster_node = plan->node_order[rank];
        numbers[rank] = peer->node;
    }
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        node_of[rank] = numbers[plan->workers[rank].node_rank];
    return true;
}

static void rank_nodes(struct ty_run *run, const uint32_t *numbers) {
    for (uint32_t node = 0; node < run->agents.n; node++)
        run->agents.peers[node].node_rank = NODE_UNUSED;
    for (size_t rank = 0; rank < run->prepared.plan->n_nodes_used; rank++)
        run->agents.peers[numbers[rank]].node_rank = (uint32_t)rank;
}

int resize_begin(struct ty_run *run, ty_error *err) {
    const struct prepared *prepared = &run->prepared;
    const struct demand *demand = &prepared->demand;
    CLEANUP_FREE uint32_t *numbers = calloc(prepared->plan->n_nodes_used + 1, sizeof *numbers);
    /* A run never has workers on more nodes than it has workers; those that come in the place of others need
     * room as well. */
    size_t spares = (size_t)run->request->settings.spares, room = prepared->plan->n_nodes_used;
    if (demand->elastic || spares > 0) room = prepared->cluster->n + spares + demand->max_workers;
    if (room > UINT32_MAX) room = UINT32_MAX;
    if (numbers == NULL || agents_make_room(run, (uint32_t)room, demand->max_workers) < 0)
        return ty_fail_memory(err);
    for (size_t rank = 0; rank < prepared->plan->n_nodes_used; rank++) { /* alike for all: no search */
        uint32_t node = prepared->plan->node_order[rank];
        struct peer *peer = agents_add(run, prepared->cluster->nodes[node].name);
        if (peer == NULL) return ty_fail_memory(err);
        peer->cluster_node = node;
        numbers[rank] = peer->node;
    }
    for (size_t rank = 0; rank < prepared->plan->n_workers; rank++)
        run->agents.node_of[rank] = prepared->plan->workers[rank].node_rank;
    rank_nodes(run, numbers);
    return 0;
}

/* -- plans */

static bool is_lost(void *context, const char *name) {
    const struct ty_run *run = context;
    const struct peer *peer = agents_find(run, name);
    return peer != NULL && run_node_state(run->core, peer->node) == NODE_LOST;
}

/* Which nodes have workers in the next attempt in place of others that had some: told, and in the plan's
 * event. */
static void tell_replaced(struct ty_run *run, const struct plan *plan, const uint32_t *numbers) {
    CLEANUP(buffer_done) struct buffer gone = {0};
    CLEANUP(buffer_done) struct buffer come = {0};
    CLEANUP_FREE bool *chosen = calloc(run->agents.n + 1, sizeof *chosen);
    struct buffer *told = &run->agents.replaced;
    buffer_clear(told);
    for (size_t rank = 0; rank < plan->n_nodes_used && chosen != NULL; rank++) {
        const struct peer *peer = &run->agents.peers[numbers[rank]];
        chosen[numbers[rank]] = true;
        if (peer->node_rank == NODE_UNUSED) buffer_printf(&come, "%s%s", come.size > 0 ? ", " : "", peer->name);
    }
    for (uint32_t node = 0; node < run->agents.n && chosen != NULL; node++) {
        const struct peer *peer = &run->agents.peers[node];
        if (!chosen[node] && peer->node_rank != NODE_UNUSED)
            buffer_printf(&gone, "%s%s", gone.size > 0 ? ", " : "", peer->name);
    }
    if (come.size == 0 || gone.size == 0 || come.failed || gone.failed) return;
    buffer_printf(told, "%s for %s", come.data, gone.data);
    log_warning("controller", "spare nodes take over: %s", told->failed ? "?" : told->data);
}

/* The plan is the next attempt's from here on, and with it the cluster whose nodes it numbers. */
static void adopt(struct ty_run *run, struct prepared *planned, const uint32_t *numbers) {
    struct prepared *prepared = &run->prepared;
    if (run->request->settings.spares > 0) tell_replaced(run, planned->plan, numbers);
    plan_destroy(prepared->plan);
    cluster_destroy(prepared->cluster);
    prepared->plan = TAKE(planned->plan);
    prepared->cluster = TAKE(planned->cluster);
    prepared->plan_time = planned->plan_time;
    rank_nodes(run, numbers);
    note_plan(run, run_attempt(run->core) + 1);
}

/* Somebody may have given room back. */
static void look_for_room(struct ty_run *run) {
    run_room_changed(run->core);
}

static void refuse(struct run_layout *layout, const char *why) {
    layout->n_workers = 0;
    (void)snprintf(layout->why, sizeof layout->why, "%.*s", (int)sizeof layout->why - 1, why);
}

/* A layout that is only looked at has an array of its own, so that the current attempt's ranks stay known. One
 * that is claimed takes their place, and `node_of` of the core with it. Where nothing fits, somebody else's
 * holding is watched: it is looked at again at once when that lets go. */
void resize_layout(void *context, unsigned flags, struct run_layout *layout) {
    struct ty_run *run = context;
    bool claims = (flags & LAYOUT_CLAIM) != 0;
    struct prepare_again again = {
        .away = (flags & LAYOUT_LOST_TOO) != 0 ? NULL : is_lost, .context = run, .claim = claims};
    ty_error err = {0};
    *layout = (struct run_layout){.n_nodes = run->agents.n,
                                  .node_of = claims ? run->agents.node_of : run->agents.looked_at};
    int result = prepare_again(run->request, &run->prepared, &again, &err);
    CLEANUP_FREE uint32_t *numbers =
        calloc(again.planned.plan == NULL ? 1 : again.planned.plan->n_nodes_used + 1, sizeof *numbers);
    if (result < 0 || numbers == NULL) {
        refuse(layout, result < 0 ? err.message : "out of memory");
    } else if (!number_nodes(run, &again.planned, numbers,
                             claims ? run->agents.node_of : run->agents.looked_at)) {
        refuse(layout, "more nodes came and went than a run can remember");
    } else {
        layout->n_workers = (uint32_t)again.planned.plan->n_workers;
        layout->n_nodes = run->agents.n;
        if (claims) adopt(run, &again.planned, numbers);
    }
    if (claims) wait_end(run);
    if (claims && layout->n_workers == 0 && again.holders.n > 0) /* else the next look is after the interval */
        (void)wait_watch(run, &again.holders, look_for_room, NULL);
    prepare_again_done(&again);
}
