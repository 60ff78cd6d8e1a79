/* The plan as the JSON object of docs/design.md 5.3, written in one pass: a plan of ten thousand workers is no
 * tree in memory. What is not feasible has the reason in the planner's words (explain.c); nothing is decided
 * here. The same plan as text is in plan_text.c. */
#include <string.h>

#include "placement/plan.h"

struct list {
    struct buffer *out;
    const char *between;
};

static void json_text(struct buffer *out, const char *text) {
    if (text) {
        buffer_json_string(out, text, strlen(text));
    } else {
        buffer_text(out, "null");
    }
}

static void add_id(void *context, const char *id, bool numbered) {
    struct list *list = context;
    buffer_text(list->out, list->between);
    if (numbered) {
        buffer_text(list->out, id);
    } else {
        json_text(list->out, id);
    }
    list->between = ", ";
}

/* Variables that are to be unset are none of what the worker sees. */
static int add_variable(void *context, const char *name, const char *value) {
    struct list *list = context;
    if (!value) return 0;
    buffer_text(list->out, list->between);
    json_text(list->out, name);
    buffer_text(list->out, ": ");
    json_text(list->out, value);
    list->between = ", ";
    return 0;
}

/* "env" holds the variables of the devices alone, by the function that a run asks for them: ports and names are
 * known only when it runs. */
static void add_worker(const struct plan *plan, const struct cluster *cluster, size_t rank,
                       struct buffer *out) {
    const struct plan_worker *worker = &plan->workers[rank];
    buffer_printf(out, "%s\n    {\"rank\": %zu, \"node\": ", rank ? "," : "", rank);
    json_text(out, cluster->nodes[worker->node].name);
    buffer_printf(out, ", \"node_rank\": %u, \"local_rank\": %u, \"local_world_size\": %u, \"devices\": ",
                  worker->node_rank, worker->local_rank, worker->local_world_size);
    const struct node_shape *shape = cluster->nodes[worker->node].shape;
    buffer_char(out, '{');
    for (uint32_t g = 0; g < worker->n_grants; g++) {
        size_t devices = plan->grants[worker->first_grant + g].devices;
        if (g) buffer_text(out, ", ");
        json_text(out, shape->devices[devices].resource);
        buffer_text(out, ": [");
        struct list list = {out, ""};
        if (plan_each_device(plan, cluster, rank, devices, add_id, &list) < 0) out->failed = true;
        buffer_char(out, ']');
    }
    buffer_char(out, '}');
    if (plan->n_slices > 0) buffer_printf(out, ", \"slice\": %d", worker->slice);
    buffer_text(out, ", \"env\": {");
    struct list list = {out, ""};
    if (plan_worker_environment(plan, cluster, rank, false, add_variable, &list) < 0) out->failed = true;
    buffer_text(out, "}}");
}

static void add_amounts(struct buffer *out, const char *key, const struct resources *resources) {
    buffer_printf(out, "  \"%s\": ", key);
    resources_format_json(resources, out);
    buffer_text(out, ",\n");
}

void plan_format_json(const struct plan *plan, const struct cluster *cluster, const struct demand *demand,
                      struct buffer *out) {
    bool feasible = plan->verdict == PLAN_FEASIBLE;
    buffer_printf(out, "{\n  \"feasible\": %s,\n", feasible ? "true" : "false");
    if (!feasible)
        buffer_printf(out, "  \"verdict\": \"%s\",\n", plan->verdict == PLAN_BUSY ? "busy" : "infeasible");
    add_amounts(out, "per_worker", &demand->per_worker);
    add_amounts(out, "total", &plan->total);
    add_amounts(out, "trainer", &demand->trainer);
    buffer_text(out, "  \"workers\": [");
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        add_worker(plan, cluster, rank, out);
    buffer_printf(out, "%s],\n  \"slices\": [", plan->n_workers ? "\n  " : "");
    for (size_t i = 0; i < plan->n_slices; i++) {
        const struct plan_slice *slice = &plan->slices[i];
        buffer_printf(out, "%s\n    {\"slice\": %zu, \"name\": ", i ? "," : "", i);
        json_text(out, slice->name);
        buffer_text(out, ", \"ranks\": [");
        for (uint32_t j = 0; j < slice->n_workers; j++)
            buffer_printf(out, "%s%u", j ? ", " : "", slice->first_worker + j);
        buffer_text(out, "]}");
    }
    buffer_printf(out, "%s],\n  \"reason\": ", plan->n_slices ? "\n  " : "");
    json_text(out, plan->reason);
    buffer_text(out, ",\n  \"short\": [");
    for (size_t i = 0; i < plan->n_shorts; i++) {
        buffer_text(out, i ? ", {\"resource\": " : "{\"resource\": ");
        json_text(out, plan->shorts[i].resource);
        buffer_text(out, ", \"need\": ");
        quantity_format(plan->shorts[i].need, out);
        buffer_text(out, ", \"have\": ");
        quantity_format(plan->shorts[i].have, out);
        buffer_char(out, '}');
    }
    buffer_text(out, "]\n}\n");
}
