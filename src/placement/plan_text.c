/* The plan drawn for a person: a row for each node, a cell for each device with the rank that holds it.
 *
 *     8 workers on 2 nodes (PACK), each CPU 4, GPU 1
 *
 *       gpu01  GPU [0][1][2][3][#][.]  CPU 16 of 64  ranks 0-3
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "placement/explain.h"
#include "placement/plan.h"
#include "scaling/device.h"

enum { SHOWN_NODES = 20, SHOWN_DEVICES = 32, HUES = 6 };

struct plan_drawing {
    const struct plan *plan;
    const struct cluster *cluster;
    const struct demand *demand;
    bool colour;
    struct buffer *out;
    int name_width, cell_width;
    bool has_free, has_taken;
};

/* ---- colours ---- */

static void paint(const struct plan_drawing *drawing, const char *code) {
    if (drawing->colour) buffer_printf(drawing->out, "\033[%sm", code);
}

/* ---- cells ---- */

static bool holds(const struct plan_drawing *drawing, const struct plan_worker *worker, size_t devices,
                  size_t position) {
    for (uint32_t g = 0; g < worker->n_grants; g++) {
        const struct grant *grant = &drawing->plan->grants[worker->first_grant + g];
        for (uint16_t i = 0; grant->devices == devices && i < grant->n; i++)
            if (drawing->plan->positions[grant->first + i] == position) return true;
    }
    return false;
}

/* "3", "3+4", or "3..9" for more than two that share; "" when no worker of the plan holds it. Returns the first
 * rank. */
static size_t label_cell(const struct plan_drawing *drawing, size_t first, size_t n, size_t devices,
                         size_t position, char label[48]) {
    size_t holders = 0, lowest = 0, highest = 0;
    for (size_t rank = first; rank < first + n; rank++) {
        if (!holds(drawing, &drawing->plan->workers[rank], devices, position)) continue;
        if (holders++ == 0) lowest = rank;
        highest = rank;
    }
    label[0] = '\0';
    if (holders == 1) (void)snprintf(label, 48, "%zu", lowest);
    if (holders > 1) (void)snprintf(label, 48, holders == 2 ? "%zu+%zu" : "%zu..%zu", lowest, highest);
    return lowest;
}

static void draw_cell(struct plan_drawing *drawing, const struct node *node, size_t first, size_t n,
                      size_t devices, size_t position) {
    char label[48];
    size_t rank = label_cell(drawing, first, n, devices, position, label);
    const char *text = label;
    if (!label[0]) {
        bool taken = node->use && node->use->device_free[devices][position] < QUANTITY_ONE;
        text = taken ? "#" : ".";
        *(taken ? &drawing->has_taken : &drawing->has_free) = true;
        paint(drawing, "2");
    } else if (drawing->colour) { /* neighbouring ranks get unlike colours */
        buffer_printf(drawing->out, "\033[%zum", 31 + rank % HUES);
    }
    buffer_printf(drawing->out, "[%*s]", drawing->cell_width, text);
    paint(drawing, "0");
}

static void draw_devices(struct plan_drawing *drawing, const struct node *node, size_t first, size_t n) {
    for (size_t d = 0; d < node->shape->n_devices; d++) {
        const struct node_devices *devices = &node->shape->devices[d];
        if (!resources_get(&drawing->demand->per_worker, devices->resource)) continue;
        buffer_printf(drawing->out, "  %s ", devices->resource);
        for (size_t p = 0; p < devices->n && p < SHOWN_DEVICES; p++)
            draw_cell(drawing, node, first, n, d, p);
        if (devices->n > SHOWN_DEVICES)
            buffer_printf(drawing->out, " and %zu more", devices->n - SHOWN_DEVICES);
    }
}

/* ---- rows ---- */

/* The `n` ranks from `first` on, which are one node's; the title of a slice stands above its first node. */
static void draw_node(struct plan_drawing *drawing, size_t first, size_t n) {
    const struct plan *plan = drawing->plan;
    const struct node *node = &drawing->cluster->nodes[plan->workers[first].node];
    int32_t slice = plan->workers[first].slice;
    if (slice >= 0 && plan->slices[slice].first_worker == first)
        buffer_printf(drawing->out, "  slice %d: %s (%s)\n", slice, plan->slices[slice].name,
                      drawing->demand->tpu.pod_type);
    buffer_text(drawing->out, "  ");
    paint(drawing, "1");
    buffer_printf(drawing->out, "%-*s", drawing->name_width, node->name);
    paint(drawing, "0");
    draw_devices(drawing, node, first, n);
    for (size_t i = 0; i < drawing->demand->per_worker.n; i++) {
        const struct resource *item = &drawing->demand->per_worker.items[i];
        if (accelerator_is_device(item->name) || str_prefix(item->name, ACCELERATOR_TYPE_PREFIX, NULL))
            continue;
        quantity taken = item->amount * (quantity)n;
        if (first == 0) taken += resources_get(&drawing->demand->trainer, item->name);
        buffer_text(drawing->out, "  ");
        say_number(drawing->out, item->name, taken);
        buffer_text(drawing->out, " of ");
        say_amount(drawing->out, item->name, resources_get(&node->shape->total, item->name));
    }
    if (n == 1) buffer_printf(drawing->out, "  rank %zu\n", first);
    if (n > 1) buffer_printf(drawing->out, "  ranks %zu-%zu\n", first, first + n - 1);
}

/* Widths of the names and cells that will be drawn. */
static void measure(struct plan_drawing *drawing) {
    const struct plan *plan = drawing->plan;
    drawing->cell_width = 1;
    for (size_t i = 0, first = 0; i < plan->n_nodes_used && i < SHOWN_NODES; i++) {
        const struct node *node = &drawing->cluster->nodes[plan->node_order[i]];
        size_t n = plan->workers[first].local_world_size;
        int width = (int)strlen(node->name);
        if (width > drawing->name_width) drawing->name_width = width;
        for (size_t d = 0; d < node->shape->n_devices; d++)
            for (size_t p = 0; p < node->shape->devices[d].n && p < SHOWN_DEVICES; p++) {
                char label[48];
                (void)label_cell(drawing, first, n, d, p, label);
                width = (int)strlen(label);
                if (width > drawing->cell_width) drawing->cell_width = width;
            }
        first += n;
    }
}

static void draw_plan(struct plan_drawing *drawing) {
    const struct plan *plan = drawing->plan;
    measure(drawing);
    const struct demand *demand = drawing->demand;
    say_count(drawing->out, drawing->plan->n_workers, "worker");
    buffer_text(drawing->out, " on ");
    say_count(drawing->out, drawing->plan->n_nodes_used, "node");
    buffer_printf(drawing->out, " (%s%s%s)", placement_strategy_name(demand->strategy),
                  demand->domain ? " in one " : "", demand->domain ? demand->domain : "");
    if (demand->per_worker.n) buffer_text(drawing->out, ", each ");
    say_resources(drawing->out, &demand->per_worker);
    if (demand->trainer.n) buffer_text(drawing->out, "; beside rank 0 the trainer: ");
    say_resources(drawing->out, &demand->trainer);
    if (demand->elastic)
        buffer_printf(drawing->out, "; from %zu to %zu were asked for", demand->min_workers,
                      demand->max_workers);
    buffer_text(drawing->out, "\n\n");
    size_t first = 0, shown = 0;
    for (; shown < plan->n_nodes_used && shown < SHOWN_NODES; shown++) {
        size_t n = plan->workers[first].local_world_size;
        draw_node(drawing, first, n);
        first += n;
    }
    if (shown < plan->n_nodes_used)
        buffer_printf(drawing->out, "  ... and %zu more nodes with ranks %zu-%zu (--format json lists all)\n",
                      plan->n_nodes_used - shown, first, plan->n_workers - 1);
    if (drawing->has_free || drawing->has_taken)
        buffer_printf(drawing->out, "\n  %s%s%s\n", drawing->has_free ? "[.] stays free" : "",
                      drawing->has_free && drawing->has_taken ? ", " : "",
                      drawing->has_taken ? "[#] taken by others" : "");
}

static void draw_refusal(const struct plan_drawing *drawing) {
    const struct plan *plan = drawing->plan;
    paint(drawing, "1");
    buffer_text(drawing->out, "does not fit");
    paint(drawing, "0");
    buffer_printf(drawing->out, ": %s\n", plan->reason);
    for (size_t i = 0; i < plan->n_shorts; i++) {
        const struct plan_short *item = &plan->shorts[i];
        buffer_printf(drawing->out, "\n  %s: need ", item->resource);
        say_number(drawing->out, item->resource, item->need);
        buffer_text(drawing->out, ", have ");
        say_number(drawing->out, item->resource, item->have);
    }
    buffer_printf(drawing->out, "\n\n%s\n",
                  plan->verdict == PLAN_BUSY ? "It fits once others have finished."
                                             : "It never fits these nodes.");
}

void plan_format_text(const struct plan *plan, const struct cluster *cluster, const struct demand *demand,
                      bool colour, struct buffer *out) {
    struct plan_drawing drawing = {
        .plan = plan, .cluster = cluster, .demand = demand, .colour = colour, .out = out};
    if (plan->verdict != PLAN_FEASIBLE) {
        draw_refusal(&drawing);
    } else if (plan->n_workers == 0) {
        buffer_text(out, "local mode: the training function runs in the caller, no worker is placed\n");
    } else {
        draw_plan(&drawing);
    }
}
