/* A plan from a proposal: bundles become ranks, rows of positions become grants by resource, slices get
 * their ranks. A demand that does not fit now is tried on the same nodes with nothing taken, which tells
 * busy from infeasible; the reason in words is explain.c's. */
#include "placement/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "placement/explain.h"
#include "placement/kind.h"
#include "placement/proposal.h"
#include "placement/ranks.h"
#include "scaling/device.h"

/* ---- grants: rows of positions turned into lists by resource ---- */

/* The device resources of a bundle as its row of positions has them: by name. */
struct grant_part {
    const char *resource;
    uint16_t n;
};

struct grant_row {
    struct grant_part *parts;
    size_t n;
};

static int part_order(const void *a, const void *b) {
    return strcmp(((const struct grant_part *)a)->resource, ((const struct grant_part *)b)->resource);
}

static int row_of(const struct resources *resources, struct grant_row *row) {
    row->n = 0;
    row->parts = calloc(resources->n + 1, sizeof *row->parts);
    if (!row->parts) return -ENOMEM;
    for (size_t i = 0; i < resources->n; i++) {
        const struct resource *item = &resources->items[i];
        if (!item->amount || !accelerator_is_device(item->name)) continue;
        quantity n = item->amount < QUANTITY_ONE ? 1 : item->amount / QUANTITY_ONE;
        row->parts[row->n++] = (struct grant_part){item->name, (uint16_t)n};
    }
    qsort(row->parts, row->n, sizeof *row->parts, part_order);
    return 0;
}

static uint16_t devices_index(const struct node_shape *shape, const char *resource) {
    size_t d = 0;
    while (d < shape->n_devices && !str_equal(shape->devices[d].resource, resource))
        d++;
    return (uint16_t)d;
}

/* ---- ranks ---- */

/* Numbers where all ids of the node are numbers, so that 10 comes behind 9; else texts, for a node whose
 * variable names some devices by UUID. */
static struct rank_key lowest_id(const struct node_devices *devices, const uint16_t *positions, size_t n) {
    struct rank_key key = {.number = INT64_MAX};
    bool numbers = true;
    for (size_t i = 0; devices->ids && i < devices->n && numbers; i++) {
        int64_t number;
        numbers = str_to_int64(devices->ids[i], 0, INT64_MAX, &number);
    }
    for (size_t i = 0; i < n; i++) {
        const char *id = devices->ids ? devices->ids[positions[i]] : NULL;
        int64_t number = positions[i];
        if (!numbers && (!key.text || strcmp(id, key.text) < 0)) key.text = id;
        if (numbers && id) (void)str_to_int64(id, 0, INT64_MAX, &number);
        if (numbers && number < key.number) key.number = number;
    }
    return key;
}

/* The key goes by the GPU where there is one, else by the first device resource. */
static struct rank_key key_of(const struct grant_row *row, const struct node_shape *shape,
                              const uint16_t *positions) {
    struct rank_key key = {0};
    for (size_t i = 0; i < row->n; i++) {
        bool gpu = !strcmp(row->parts[i].resource, "GPU");
        if (i == 0 || gpu)
            key = lowest_id(&shape->devices[devices_index(shape, row->parts[i].resource)], positions,
                            row->parts[i].n);
        positions += row->parts[i].n;
    }
    return key;
}

struct grant_rows {
    struct grant_row first, other;
};

static const struct grant_row *row_for(const struct grant_rows *rows, uint32_t bundle) {
    return bundle == 0 ? &rows->first : &rows->other;
}

static int order_ranks(const struct proposal *proposal, const struct grant_rows *rows, uint32_t *order) {
    struct rank_key *keys = calloc(proposal->n + 1, sizeof *keys);
    if (!keys) return -ENOMEM;
    for (uint32_t i = 0; i < proposal->n; i++)
        keys[i] = key_of(row_for(rows, i), proposal->cluster->nodes[proposal->node_of[i]].shape,
                         proposal->positions + i * proposal->stride);
    int result = ranks_order(proposal->node_of, keys, proposal->n, proposal->cluster->n, order);
    free(keys);
    return result;
}

/* Where the next worker's grants and positions go. */
struct write_head {
    uint32_t grant, position;
};

static void write_worker(struct plan *plan, const struct proposal *proposal, const struct grant_row *row,
                         struct plan_worker *worker, struct write_head *at) {
    worker->node = proposal->node_of[worker->bundle];
    worker->slice = -1;
    worker->first_grant = at->grant;
    worker->n_grants = (uint32_t)row->n;
    const uint16_t *positions = proposal->positions + worker->bundle * proposal->stride;
    for (size_t i = 0; i < row->n; i++) {
        const struct grant_part *part = &row->parts[i];
        uint16_t devices = devices_index(proposal->cluster->nodes[worker->node].shape, part->resource);
        plan->grants[at->grant++] = (struct grant){devices, part->n, at->position};
        memcpy(plan->positions + at->position, positions, part->n * sizeof *positions);
        at->position += part->n;
        positions += part->n;
    }
}

static int write_places(struct plan *plan, size_t n) {
    uint32_t *nodes = malloc((n + 1) * sizeof *nodes);
    struct rank_place *places = malloc((n + 1) * sizeof *places);
    for (size_t i = 0; nodes && places && i < n; i++)
        nodes[i] = plan->workers[i].node;
    if (nodes && places) ranks_locate(nodes, n, places);
    for (size_t i = 0; nodes && places && i < n; i++) {
        plan->workers[i].node_rank = places[i].node_rank;
        plan->workers[i].local_rank = places[i].local_rank;
        plan->workers[i].local_world_size = places[i].local_world_size;
        plan->node_order[places[i].node_rank] = plan->workers[i].node;
        plan->n_nodes_used = places[i].node_rank + (size_t)1;
    }
    int result = nodes && places ? 0 : -ENOMEM;
    free(nodes);
    free(places);
    return result;
}

static int write_plan(struct plan *plan, const struct proposal *proposal) {
    struct grant_rows rows = {0};
    struct write_head at = {0};
    uint32_t *order = malloc(proposal->n * sizeof *order);
    int result = order ? row_of(&proposal->first, &rows.first) : -ENOMEM;
    if (result == 0) result = row_of(&proposal->demand->per_worker, &rows.other);
    if (result == 0) result = order_ranks(proposal, &rows, order);
    if (result == 0) {
        size_t workers = proposal->n, n_grants = rows.first.n + (workers - 1) * rows.other.n;
        plan->workers = calloc(workers, sizeof *plan->workers);
        plan->node_order = calloc(workers, sizeof *plan->node_order);
        plan->grants = calloc(n_grants + 1, sizeof *plan->grants);
        plan->positions = malloc((workers * proposal->stride + 1) * sizeof *plan->positions);
        plan->slices = calloc(proposal->n_slices + 1, sizeof *plan->slices);
        result =
            plan->workers && plan->node_order && plan->grants && plan->positions && plan->slices ? 0 : -ENOMEM;
    }
    for (size_t rank = 0; result == 0 && rank < proposal->n; rank++) {
        plan->workers[rank].bundle = order[rank];
        write_worker(plan, proposal, row_for(&rows, order[rank]), &plan->workers[rank], &at);
    }
    if (result == 0) result = write_places(plan, proposal->n);
    if (result == 0) {
        /* Bundles of a slice are consecutive, and so are their ranks: no two slices share a node. */
        plan->n_slices = proposal->n_slices;
        for (size_t s = 0; s < proposal->n_slices; s++) {
            const struct chosen_slice *chosen = &proposal->slices[s];
            plan->slices[s] = (struct plan_slice){chosen->name, chosen->first_bundle, chosen->n_bundles};
            for (uint32_t i = 0; i < chosen->n_bundles; i++)
                plan->workers[chosen->first_bundle + i].slice = (int32_t)s;
        }
        plan->n_workers = proposal->n;
    }
    free(order);
    free(rows.first.parts);
    free(rows.other.parts);
    return result;
}

/* ---- the verdict ---- */

/* Not now. Would it fit with nothing taken? Either way the reason is told of the nodes as they are then. */
static int refuse(struct plan *plan, struct proposal *proposal) {
    const struct demand *demand = proposal->demand;
    bool taken = false;
    for (size_t i = 0; i < proposal->cluster->n && !taken; i++)
        taken = proposal->cluster->nodes[i].use != NULL;
    plan->verdict = PLAN_INFEASIBLE;
    if (!taken) return explain_refusal(plan, proposal);
    struct proposal idle;
    int result = proposal_init(&idle, proposal->cluster, demand, true);
    if (result == 0) result = proposal_place(&idle, demand->min_workers, demand->min_workers);
    if (result > 0) plan->verdict = PLAN_BUSY;
    proposal_withdraw(&idle);
    if (result >= 0) result = explain_refusal(plan, result > 0 ? proposal : &idle);
    proposal_done(&idle);
    return result;
}

int plan_make(const struct cluster *cluster, const struct demand *demand, struct plan **plan, ty_error *err) {
    struct plan *made = calloc(1, sizeof *made);
    if (!made) return ty_fail_memory(err);
    size_t n = 0;
    int result = 0;
    if (demand->max_workers > 0) { /* otherwise it is local mode, without a worker to place */
        struct proposal proposal;
        result = proposal_init(&proposal, cluster, demand, false);
        if (result == 0) result = proposal_place(&proposal, demand->min_workers, demand->max_workers);
        if (result > 0)
            result = write_plan(made, &proposal);
        else if (result == 0)
            result = refuse(made, &proposal);
        proposal_done(&proposal);
        if (result < 0) result = ty_fail_memory(err);
        n = made->n_workers ? made->n_workers : demand->min_workers;
    }
    if (result >= 0) result = demand_total(demand, n, &made->total, err);
    if (result < 0) {
        plan_destroy(made);
        return result;
    }
    *plan = made;
    return 0;
}

void plan_destroy(struct plan *plan) {
    if (!plan) return;
    free(plan->workers);
    free(plan->grants);
    free(plan->positions);
    free(plan->node_order);
    free(plan->slices);
    free(plan->reason);
    for (size_t i = 0; i < plan->n_shorts; i++)
        free(plan->shorts[i].resource);
    free(plan->shorts);
    resources_done(&plan->total);
    free(plan);
}
