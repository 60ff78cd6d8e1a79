/* Elastic runs, the controller's side: plans made anew while the run goes on. Nodes are known by their names;
 * each keeps its number for the run's life, whatever its rank in an attempt. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "controller/drive_internal.h"

#define SECOND_LOOK (50 * NS_PER_MS)
/* Longer ones are as good as for ever. */
static const double INTERVAL_MOST_S = 1e9;

nanoseconds resize_interval_of(const struct drive *drive) {
    if (!drive->config->prepared->demand.elastic) return 0;
    double interval = drive->config->request->scaling->elastic_resize_monitor_interval_s;
    nanoseconds wanted = (nanoseconds)((interval < INTERVAL_MOST_S ? interval : INTERVAL_MOST_S) * 1e9);
    return wanted > 0 ? wanted : 1;
}

/* A run never has workers on more nodes than it has workers; those that come in the place of others need room
 * as well. */
static uint32_t room_for_nodes(const struct drive *drive) {
    const struct prepared *prepared = drive->config->prepared;
    if (!prepared->demand.elastic) return (uint32_t)prepared->plan->n_nodes_used;
    size_t room = prepared->cluster->n + prepared->demand.max_workers;
    return room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
}

static struct peer *find_peer(const struct drive *drive, const char *name) {
    for (uint32_t node = 0; node < drive->n_peers; node++)
        if (strcmp(drive->peers[node].name, name) == 0) return &drive->peers[node];
    return NULL;
}

static struct peer *add_peer(struct drive *drive, const char *name) {
    if (drive->n_peers == drive->max_peers) return NULL;
    char *copy = strdup(name);
    if (copy == NULL) return NULL;
    struct peer *peer = &drive->peers[drive->n_peers];
    *peer = (struct peer){.drive = drive, .node = drive->n_peers++, .name = copy, .handle = {-1, -1, -1}};
    return peer;
}

/* The numbers of the plan's nodes by their ranks, and of each worker's node. False when there is no room for
 * another node. */
static bool number_nodes(struct drive *drive, const struct prepared *planned, uint32_t *numbers,
                         uint32_t *node_of) {
    const struct plan *plan = planned->plan;
    for (size_t rank = 0; rank < plan->n_nodes_used; rank++) {
        const char *name = planned->cluster->nodes[plan->node_order[rank]].name;
        struct peer *peer = find_peer(drive, name);
        if (peer == NULL) peer = add_peer(drive, name);
        if (peer == NULL) return false;
        peer->cluster_node = plan->node_order[rank];
        numbers[rank] = peer->node;
    }
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        node_of[rank] = numbers[plan->workers[rank].node_rank];
    return true;
}

static void rank_nodes(struct drive *drive, const uint32_t *numbers) {
    for (uint32_t node = 0; node < drive->n_peers; node++)
        drive->peers[node].node_rank = NODE_UNUSED;
    for (size_t rank = 0; rank < drive->config->prepared->plan->n_nodes_used; rank++)
        drive->peers[numbers[rank]].node_rank = (uint32_t)rank;
}

int resize_open(struct drive *drive, ty_error *err) {
    const struct prepared *prepared = drive->config->prepared;
    size_t n_workers = prepared->demand.max_workers;
    CLEANUP_FREE uint32_t *numbers = calloc(prepared->plan->n_nodes_used + 1, sizeof *numbers);
    drive->max_peers = room_for_nodes(drive);
    drive->peers = calloc(drive->max_peers, sizeof *drive->peers);
    drive->node_of = calloc(n_workers, sizeof *drive->node_of);
    drive->looked_at = calloc(n_workers, sizeof *drive->looked_at);
    if (numbers == NULL || drive->peers == NULL || drive->node_of == NULL || drive->looked_at == NULL)
        return ty_fail_memory(err);
    for (size_t rank = 0; rank < prepared->plan->n_nodes_used; rank++) { /* alike for all: no search */
        uint32_t node = prepared->plan->node_order[rank];
        struct peer *peer = add_peer(drive, prepared->cluster->nodes[node].name);
        if (peer == NULL) return ty_fail_memory(err);
        peer->cluster_node = node;
        numbers[rank] = peer->node;
    }
    for (size_t rank = 0; rank < prepared->plan->n_workers; rank++)
        drive->node_of[rank] = prepared->plan->workers[rank].node_rank;
    rank_nodes(drive, numbers);
    return 0;
}

void resize_close(struct drive *drive) {
    for (uint32_t node = 0; node < drive->n_peers; node++)
        free(drive->peers[node].name);
    free(drive->peers);
    free(drive->node_of);
    free(drive->looked_at);
}

/* -- room that somebody else may give back */

static void on_room(void *context) {
    struct drive *drive = context;
    wait_end(drive);
    run_room_changed(drive->run);
}

/* The kernel tells of the last close a moment before it drops the lock: see wait.c. */
static void on_lease_change(void *context, unsigned events) {
    (void)events;
    struct drive *drive = context;
    on_room(drive);
    if (drive->lease_fd < 0) return;
    drive->wait_timer = (struct loop_timer){.callback = on_room, .context = drive};
    (void)loop_timer_start(drive->loop, &drive->wait_timer, SECOND_LOOK);
}

/* Without a watch the next look is after the interval. */
static void watch(struct drive *drive, const struct lease_holder *holders, size_t n) {
    wait_end(drive);
    if (n == 0) return;
    drive->lease_fd = lease_watch(holders, n, NULL);
    if (drive->lease_fd < 0) return;
    drive->lease_watch = (struct loop_watch){.callback = on_lease_change, .context = drive};
    (void)loop_watch_start(drive->loop, &drive->lease_watch, drive->lease_fd, LOOP_READABLE);
}

/* -- plans */

static bool is_lost(void *context, const char *name) {
    const struct drive *drive = context;
    const struct peer *peer = find_peer(drive, name);
    return peer != NULL && run_node_state(drive->run, peer->node) == NODE_LOST;
}

static void adopt(struct drive *drive, struct prepared *planned, const uint32_t *numbers) {
    struct prepared *prepared = drive->config->prepared;
    plan_destroy(prepared->plan);
    cluster_destroy(prepared->cluster);
    prepared->plan = TAKE(planned->plan);
    prepared->cluster = TAKE(planned->cluster);
    prepared->plan_time = planned->plan_time;
    rank_nodes(drive, numbers);
    drive_record_plan(drive, run_attempt(drive->run) + 1);
}

static void refuse(struct run_layout *layout, const char *why) {
    layout->n_workers = 0;
    (void)snprintf(layout->why, sizeof layout->why, "%.*s", (int)sizeof layout->why - 1, why);
}

void resize_layout(void *context, unsigned flags, struct run_layout *layout) {
    struct drive *drive = context;
    const struct drive_config *config = drive->config;
    bool claims = (flags & LAYOUT_CLAIM) != 0;
    struct prepare_again again = {
        .away = (flags & LAYOUT_LOST_TOO) != 0 ? NULL : is_lost, .context = drive, .claim = claims};
    ty_error err = {0};
    *layout =
        (struct run_layout){.n_nodes = drive->n_peers, .node_of = claims ? drive->node_of : drive->looked_at};
    int result = prepare_again(config->request, config->prepared, &again, &err);
    CLEANUP_FREE uint32_t *numbers =
        calloc(again.planned.plan == NULL ? 1 : again.planned.plan->n_nodes_used + 1, sizeof *numbers);
    if (result < 0 || numbers == NULL) {
        refuse(layout, result < 0 ? err.message : "out of memory");
    } else if (!number_nodes(drive, &again.planned, numbers, claims ? drive->node_of : drive->looked_at)) {
        refuse(layout, "more nodes came and went than a run can remember");
    } else {
        layout->n_workers = (uint32_t)again.planned.plan->n_workers;
        layout->n_nodes = drive->n_peers;
        if (claims) adopt(drive, &again.planned, numbers);
    }
    if (claims) watch(drive, layout->n_workers == 0 ? again.holders : NULL, again.n_holders);
    prepare_again_done(&again);
}

/* -- told */

static void tell_wait(const struct run_event *event) {
    json_t *data = event->data == NULL ? NULL : json_loads(event->data, 0, NULL);
    const char *reason = json_string_value(json_object_get(data, "reason"));
    log_warning("controller", "waiting for room: %s", reason != NULL ? reason : "?");
    json_decref(data);
}

void resize_tell(struct drive *drive, const struct run_event *event) {
    if (event->kind == EVENT_WAIT) {
        progress_hide(&drive->progress);
        tell_wait(event);
    }
    if (event->kind != EVENT_ATTEMPT) return;
    uint32_t before = drive->size_told, size = run_size(drive->run);
    drive->size_told = size;
    bool told = run_outcome(drive->run) == OUTCOME_RESIZED; /* by the end of the attempt before it */
    if (before == 0 || before == size || told) return;
    progress_hide(&drive->progress);
    log_warning("controller", "attempt %d has %u workers, that before had %u", event->attempt, size, before);
}
