/* Why a demand of TPU slices does not fit: slices of the right type that are missing, not whole or not
 * divisible, or one host that has too little. Says the first of these that is so; the words for plain
 * workers are in explain.c. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "placement/explain.h"
#include "placement/kind.h"
#include "placement/proposal.h"

struct lack {
    uint32_t node;
    const char *resource;
    quantity need, have;
};

struct slice_view {
    struct proposal *proposal;
    const struct slice_list *list;
    struct buffer *out;
    size_t needed;
    int64_t most; /* workers that would fit */
};

static void say_pod_types(const struct cluster *cluster, struct buffer *out) {
    enum { POD_TYPES_SHOWN = 4 };
    const char *shown[POD_TYPES_SHOWN];
    size_t n = 0;
    for (size_t i = 0; i < cluster->n && n < POD_TYPES_SHOWN; i++) {
        const char *type = labels_get(&cluster->nodes[i].shape->labels, "ray.io/tpu-pod-type");
        size_t at = 0;
        while (type && at < n && !str_equal(shown[at], type))
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

/* A resource of which a host of the slice has less than its workers need; false when it holds them. */
static bool find_lack(const struct slice_view *view, const struct slice_host *host, bool with_trainer,
                      struct lack *lack) {
    const struct proposal *proposal = view->proposal;
    const struct resources *total = &proposal->cluster->nodes[host->node].shape->total;
    for (size_t i = 0; i < proposal->demand->per_worker.n; i++) {
        const struct resource *item = &proposal->demand->per_worker.items[i];
        size_t at = kind_resource_index(total, item->name);
        quantity have = at < total->n ? planner_free(proposal->planner, host->node, at) : 0;
        quantity need = item->amount * host->quota;
        if (with_trainer) need += resources_get(&proposal->demand->trainer, item->name);
        *lack = (struct lack){host->node, item->name, need, have};
        if (have < lack->need) return true;
    }
    return false;
}

/* The first host of a usable slice that cannot hold its share; else the first that would have rank 0 and cannot
 * hold the trainer beside it. */
static bool find_full_host(const struct slice_view *view, struct lack *lack) {
    for (int with_trainer = 0; with_trainer < 2; with_trainer++) {
        for (size_t h = 0; h < view->list->n_hosts; h++) {
            const struct slice_host *host = &view->list->hosts[h];
            bool first = h == 0 || host->slice != host[-1].slice;
            if (!host->usable || (with_trainer && !first)) continue;
            if (find_lack(view, host, with_trainer, lack)) return true;
        }
    }
    return false;
}

/* The first whole slice over whose hosts the workers do not divide, as when a worker wants more than one host
 * has. */
static bool say_unfit_hosts(const struct slice_view *view, struct lack *lack) {
    const struct demand *demand = view->proposal->demand;
    for (size_t s = 0; s < view->list->n; s++) {
        const struct slice *slice = &view->list->slices[s];
        if (!slice->intact || slice->usable) continue;
        quantity each = resources_get(&demand->per_worker, "TPU");
        quantity have = resources_get(&view->proposal->cluster->nodes[slice->head].shape->total, "TPU");
        *lack = (struct lack){slice->head, "TPU", each, have};
        buffer_printf(view->out, "slice %s has ", slice->name);
        say_count(view->out, slice->n_hosts, "host");
        buffer_text(view->out, " of ");
        say_amount(view->out, "TPU", have);
        buffer_text(view->out, ", among which ");
        say_count(view->out, (size_t)demand->tpu.workers_per_slice, "worker");
        buffer_text(view->out, " of ");
        say_amount(view->out, "TPU", each);
        buffer_text(view->out, " cannot be divided: ask for ");
        say_amount(view->out, "TPU", have);
        buffer_text(view->out, " per worker");
        return true;
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

/* True when one host's lack of `*lack` is the trouble. */
static bool explain(const struct slice_view *view, struct lack *lack) {
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
    } else if (usable < view->needed && (demand->strategy == PLACE_PACK || demand->strategy == PLACE_SPREAD)) {
        return say_unfit_hosts(view, lack);
    } else if (usable < view->needed) {
        buffer_printf(view->out, "%s does not go with %lld workers a slice of %s: use the strategy PACK",
                      placement_strategy_name(demand->strategy), (long long)demand->tpu.workers_per_slice,
                      demand->tpu.pod_type);
    } else {
        say_slices(view, (size_t)(view->most / demand->tpu.workers_per_slice), "free");
        bool lacks = find_full_host(view, lack);
        if (lacks) {
            buffer_printf(view->out, ", and node %s has ", view->proposal->cluster->nodes[lack->node].name);
            say_amount(view->out, lack->resource, lack->have);
            buffer_text(view->out, " where its workers need ");
            say_number(view->out, lack->resource, lack->need);
            buffer_printf(view->out, ": ask for less %s per worker or add a slice", lack->resource);
        } else {
            say_way_out(view);
        }
        return lacks;
    }
    return false;
}

int explain_slices(struct plan *plan, struct proposal *proposal) {
    CLEANUP(buffer_done) struct buffer out = {0};
    CLEANUP(slices_done) struct slice_list list = {0};
    const struct demand *demand = proposal->demand;
    if (slices_find(proposal->cluster, demand, &list) < 0) return -ENOMEM;
    struct slice_view view = {.proposal = proposal, .list = &list, .out = &out};
    struct lack lack;
    size_t per_slice = (size_t)demand->tpu.workers_per_slice;
    view.needed = (demand->min_workers + per_slice - 1) / per_slice;
    view.most = demand->min_workers > per_slice ? proposal_most(proposal, demand->min_workers - 1) : 0;
    if (view.most < 0) return (int)view.most;
    int result = explain(&view, &lack)
                     ? plan_add_short(plan, lack.resource, lack.need, lack.have)
                     : plan_add_short(plan, "TPU", (quantity)view.needed * list.units_per_slice,
                                      view.most / (int64_t)per_slice * list.units_per_slice);
    if (result < 0) return result;
    plan->reason = buffer_take(&out);
    return plan->reason ? 0 : -ENOMEM;
}
