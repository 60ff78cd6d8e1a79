/* Why a demand of TPU slices does not fit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "placement/explain.h"
#include "placement/kind.h"
#include "placement/slices.h"

struct slice_view {
    struct proposal *proposal;
    const struct slice_list *list;
    struct buffer *out;
    size_t needed;
    int64_t most; /* workers that would fit */
};

static void say_pod_types(const struct cluster *cluster, struct buffer *out) {
    enum { SHOWN = 4 };
    const char *shown[SHOWN];
    size_t n = 0;
    for (size_t i = 0; i < cluster->n && n < SHOWN; i++) {
        const char *type = labels_get(&cluster->nodes[i].shape->labels, "ray.io/tpu-pod-type");
        size_t at = 0;
        while (type && at < n && strcmp(shown[at], type))
            at++;
        if (type && at == n) shown[n++] = type;
    }
    if (!n) buffer_text(out, "no node carries the label ray.io/tpu-pod-type");
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%s", i ? ", " : "the pod types here are ", shown[i]);
}

/* What ails the first slice that is not whole. */
static void say_broken_slice(const struct slice_view *view) {
    for (size_t s = 0; s < view->list->n; s++) {
        const struct slice *slice = &view->list->slices[s];
        if (slice->units != view->list->units_per_slice) {
            buffer_printf(view->out, ", and slice %s has %lld of %lld chips", slice->name,
                          (long long)(slice->units / QUANTITY_ONE),
                          (long long)(view->list->units_per_slice / QUANTITY_ONE));
            return;
        }
        if (!slice->has_head && slice->n_hosts > 1) {
            buffer_printf(view->out, ", and slice %s has no worker 0", slice->name);
            return;
        }
    }
}

/* The first host that cannot hold its share: which resource it lacks. */
static bool say_full_host(const struct slice_view *view, const struct slice *slice) {
    const struct cluster *cluster = view->proposal->cluster;
    for (uint32_t h = 0; h < slice->n_hosts; h++) {
        const struct slice_host *host = &view->list->hosts[slice->first_host + h];
        const struct resources *total = &cluster->nodes[host->node].shape->total;
        for (size_t i = 0; i < view->proposal->demand->per_worker.n; i++) {
            const struct resource *item = &view->proposal->demand->per_worker.items[i];
            size_t at = 0;
            while (at < total->n && !kind_same_resource(item->name, total->items[at].name))
                at++;
            quantity have = at < total->n ? planner_free(view->proposal->planner, host->node, at) : 0;
            if (have >= item->amount * host->quota) continue;
            buffer_printf(view->out, ", and node %s of slice %s has %s ", cluster->nodes[host->node].name,
                          slice->name, item->name);
            quantity_format(have, view->out);
            buffer_text(view->out, " where its workers need ");
            quantity_format(item->amount * host->quota, view->out);
            return true;
        }
    }
    return false;
}

static void say_slices(const struct slice_view *view, size_t have, const char *how) {
    const struct tpu_demand *tpu = &view->proposal->demand->tpu;
    buffer_printf(view->out, "%zu %s slice%s of %s (topology %s) %s needed, %zu %s here", view->needed, how,
                  view->needed == 1 ? "" : "s", tpu->pod_type, tpu->topology, view->needed == 1 ? "is" : "are",
                  have, have == 1 ? "is" : "are");
}

static void say_way_out(const struct slice_view *view) {
    if (view->most > 0) {
        buffer_printf(view->out, ": use at most %lld workers or add a slice", (long long)view->most);
    } else {
        buffer_text(view->out, ": add a slice");
    }
}

static void explain(const struct slice_view *view) {
    const struct demand *demand = view->proposal->demand;
    size_t usable = 0;
    for (size_t s = 0; s < view->list->n; s++)
        usable += view->list->slices[s].usable;
    if (view->list->n == 0) {
        buffer_printf(view->out, "no TPU slice of %s (topology %s) is here: ", demand->tpu.pod_type,
                      demand->tpu.topology);
        say_pod_types(view->proposal->cluster, view->out);
    } else if (view->list->n_intact < view->needed) {
        say_slices(view, view->list->n_intact, "whole");
        say_broken_slice(view);
        say_way_out(view);
    } else if (demand->strategy != PLACE_PACK && usable < view->needed) {
        buffer_printf(view->out, "%s does not go with %lld workers a slice of %s: use the strategy PACK",
                      placement_strategy_name(demand->strategy), (long long)demand->tpu.workers_per_slice,
                      demand->tpu.pod_type);
    } else {
        say_slices(view, (size_t)(view->most / demand->tpu.workers_per_slice), "free");
        for (size_t s = 0; s < view->list->n; s++)
            if (view->list->slices[s].usable && say_full_host(view, &view->list->slices[s])) break;
        say_way_out(view);
    }
}

int explain_slices(struct plan *plan, struct proposal *proposal) {
    const struct demand *demand = proposal->demand;
    CLEANUP(buffer_done)
    struct buffer out = {0};
    struct slice_list list;
    if (slices_find(proposal->cluster, demand, &list) < 0) return -ENOMEM;
    size_t per_slice = (size_t)demand->tpu.workers_per_slice;
    struct slice_view view = {.proposal = proposal, .list = &list, .out = &out};
    view.needed = (demand->min_workers + per_slice - 1) / per_slice;
    view.most = demand->min_workers > per_slice ? proposal_most(proposal, demand->min_workers - 1) : 0;
    if (view.most >= 0) explain(&view);
    size_t have = view.most > 0 ? (size_t)view.most / per_slice : 0;
    int result = view.most < 0 ? (int)view.most
                               : plan_add_short(plan, "TPU", (quantity)view.needed * list.units_per_slice,
                                                (quantity)have * list.units_per_slice);
    slices_done(&list);
    if (result < 0) return result;
    plan->reason = buffer_take(&out);
    return plan->reason ? 0 : -ENOMEM;
}
