/* A refusal explained: first whether one worker fits any node at all (labels, type, amounts, devices, all
 * together), then what all of them lack. Whether it fits was decided before (planner.h); slices are explained
 * in explain_slices.c. */
#include "placement/explain.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "placement/kind.h"
#include "scaling/device.h"

/* What is being explained: one bundle, and the nodes on which it is looked at. */
struct view {
    struct proposal *proposal;
    const struct resources *wanted;
    const struct label_selector *selector; /* NULL: any */
    bool with_trainer;                     /* the bundle is worker 0 with the trainer beside it */
    struct plan *plan;
    struct buffer *out;
    int failed;
};

int plan_add_short(struct plan *plan, const char *resource, quantity need, quantity have) {
    if (ARRAY_GROW(plan->shorts, plan->n_shorts) < 0) return -ENOMEM;
    char *name = strdup(resource);
    if (!name) return -ENOMEM;
    plan->shorts[plan->n_shorts++] = (struct plan_short){name, need, have};
    return 0;
}

static void add_short(struct view *view, const char *resource, quantity need, quantity have) {
    if (plan_add_short(view->plan, resource, need, have) < 0) view->failed = -ENOMEM;
}

/* ---- words ---- */

void say_amount(struct buffer *out, const char *name, quantity amount) {
    struct resource item = {(char *)(uintptr_t)name, amount};
    resources_format(&(struct resources){&item, 1}, out);
}

void say_number(struct buffer *out, const char *name, quantity amount) {
    resources_format_amount(&(struct resource){(char *)(uintptr_t)name, amount}, out);
}

void say_resources(struct buffer *out, const struct resources *resources) {
    const char *type, *between = "";
    for (size_t i = 0; i < resources->n; i++) {
        buffer_text(out, between);
        if (str_prefix(resources->items[i].name, ACCELERATOR_TYPE_PREFIX, &type))
            buffer_printf(out, "type %s", type);
        else
            say_amount(out, resources->items[i].name, resources->items[i].amount);
        between = ", ";
    }
}

void say_count(struct buffer *out, size_t n, const char *thing) {
    buffer_printf(out, "%zu %s%s", n, thing, n == 1 ? "" : "s");
}

static const char *free_word(const struct view *view) {
    return view->proposal->idle || view->plan->verdict == PLAN_INFEASIBLE ? "" : " free";
}

static const char *per_whom(const struct view *view) {
    return view->with_trainer ? "for the two" : "per worker";
}

/* ---- looking at nodes ---- */

static quantity free_on(const struct view *view, uint32_t node, const char *name) {
    const struct node_shape *shape = view->proposal->cluster->nodes[node].shape;
    size_t i = kind_resource_index(&shape->total, name);
    return i < shape->total.n ? planner_free(view->proposal->planner, node, i) : 0;
}

static const char *wanted_type(const struct view *view) {
    const char *type = NULL;
    for (size_t i = 0; i < view->wanted->n && !type; i++)
        (void)str_prefix(view->wanted->items[i].name, ACCELERATOR_TYPE_PREFIX, &type);
    return type;
}

static bool labels_match(const struct view *view, uint32_t node) {
    return !view->selector ||
           label_selector_match(view->selector, &view->proposal->cluster->nodes[node].shape->labels);
}

/* Nodes of the right labels and type; what is short is told of these. */
static bool is_candidate(const struct view *view, uint32_t node) {
    if (!labels_match(view, node)) return false;
    const struct node_shape *shape = view->proposal->cluster->nodes[node].shape;
    for (size_t i = 0; i < view->wanted->n; i++) {
        const char *name = view->wanted->items[i].name;
        if (str_prefix(name, ACCELERATOR_TYPE_PREFIX, NULL) &&
            kind_resource_index(&shape->total, name) == shape->total.n)
            return false;
    }
    return true;
}

static size_t count_nodes(const struct view *view, bool (*is)(const struct view *, uint32_t)) {
    size_t n = 0;
    for (uint32_t i = 0; i < view->proposal->cluster->n; i++)
        n += is(view, i);
    return n;
}

/* How much of a resource one worker could get on a node: of devices, whole ones or the largest part. The sum of
 * what is free of them would promise a GPU that lies in two halves. */
static quantity usable_on(const struct view *view, uint32_t node, const struct resource *wanted) {
    quantity have = free_on(view, node, wanted->name);
    if (!accelerator_is_device(wanted->name) || have == 0) return have;
    const struct node_shape *shape = view->proposal->cluster->nodes[node].shape;
    size_t i = kind_resource_index(&shape->total, wanted->name),
           n = (size_t)(shape->total.items[i].amount / QUANTITY_ONE);
    quantity whole = 0, largest = 0;
    for (size_t p = 0; p < n; p++) {
        quantity part = planner_device_free(view->proposal->planner, node, i, p);
        whole += part == QUANTITY_ONE ? QUANTITY_ONE : 0;
        if (part > largest) largest = part;
    }
    return wanted->amount < QUANTITY_ONE ? largest : whole;
}

struct most {
    quantity amount;
    uint32_t node;
};

static struct most most_of(const struct view *view, const struct resource *wanted) {
    struct most most = {.amount = -1};
    for (uint32_t i = 0; i < view->proposal->cluster->n; i++) {
        if (!is_candidate(view, i)) continue;
        quantity here = usable_on(view, i, wanted);
        if (here > most.amount) most = (struct most){here, i};
    }
    return most;
}

/* ---- one worker ---- */

struct tally {
    const char *value;
    size_t n;
};

/* "a (2 nodes), b (1 node)": what `value_of` says of the nodes, up to some. False when it says nothing of
 * any. */
static bool say_values(const struct view *view,
                       const char *(*value_of)(const struct node_shape *, const char *), const char *key) {
    enum { VALUES_SHOWN = 6 };
    struct tally tallies[VALUES_SHOWN];
    size_t n = 0, others = 0;
    for (uint32_t i = 0; i < view->proposal->cluster->n; i++) {
        const char *value = value_of(view->proposal->cluster->nodes[i].shape, key);
        size_t at = 0;
        while (value && at < n && !str_equal(tallies[at].value, value))
            at++;
        if (value && at < n) tallies[at].n++;
        if (value && at == n && n < VALUES_SHOWN)
            tallies[n++] = (struct tally){value, 1};
        else if (value && at == n)
            others++;
    }
    for (size_t i = 0; i < n; i++) {
        buffer_printf(view->out, "%s%s (", i ? ", " : "", tallies[i].value);
        say_count(view->out, tallies[i].n, "node");
        buffer_char(view->out, ')');
    }
    if (others) buffer_printf(view->out, " and others");
    return n > 0;
}

static const char *label_of(const struct node_shape *shape, const char *key) {
    return labels_get(&shape->labels, key);
}

static const char *type_of(const struct node_shape *shape, const char *key) {
    (void)key;
    if (shape->accelerator_type) return shape->accelerator_type;
    const char *type = NULL;
    for (size_t i = 0; i < shape->total.n && !type; i++)
        (void)str_prefix(shape->total.items[i].name, ACCELERATOR_TYPE_PREFIX, &type);
    return type;
}

/* True when it has said something, as of the parts below: the first of them that does is the sentence. */
static bool explain_labels(struct view *view) {
    if (count_nodes(view, labels_match)) return false;
    buffer_text(view->out, "no node has the labels ");
    label_selector_format(view->selector, view->out);
    for (size_t i = 0; i < view->selector->n; i++) {
        const char *key = view->selector->items[i].key;
        buffer_text(view->out, i ? "; " : ": ");
        size_t before = view->out->size;
        buffer_printf(view->out, "%s here is ", key);
        if (say_values(view, label_of, key)) continue;
        view->out->size = before;
        buffer_printf(view->out, "%s is on no node", key);
    }
    buffer_text(view->out, "; change the selector or label a node so");
    for (size_t i = 0; i < view->wanted->n; i++)
        add_short(view, view->wanted->items[i].name, view->wanted->items[i].amount, 0);
    return true;
}

static bool explain_type(struct view *view) {
    const char *type = wanted_type(view);
    if (!type || count_nodes(view, is_candidate)) return false;
    buffer_printf(view->out, "no node has accelerator type %s: ", type);
    size_t before = view->out->size;
    buffer_text(view->out, "the types here are ");
    if (!say_values(view, type_of, NULL)) {
        view->out->size = before;
        buffer_text(view->out, "no node here has a known type");
    }
    for (size_t i = 0; i < view->wanted->n; i++)
        if (str_prefix(view->wanted->items[i].name, ACCELERATOR_TYPE_PREFIX, NULL))
            add_short(view, view->wanted->items[i].name, view->wanted->items[i].amount, 0);
    return true;
}

/* The nodes that the sentence is about, when these are not all. */
static void say_which_nodes(const struct view *view) {
    const char *type = wanted_type(view);
    if (type) buffer_printf(view->out, " of type %s", type);
    if (!view->selector || !view->selector->n) return;
    buffer_text(view->out, " with ");
    label_selector_format(view->selector, view->out);
}

static bool is_this_machine(const struct view *view) {
    return !view->proposal->cluster->logical && view->proposal->cluster->n == 1;
}

/* How this machine is said to have more of what is no device. */
static void say_more(const struct view *view, const char *name, quantity need) {
    CLEANUP(buffer_done) struct buffer all = {0};
    bool command = view->proposal->demand->face == FACE_COMMAND;
    if (!is_this_machine(view) || accelerator_is_device(name)) return;
    quantity_format((need + QUANTITY_ONE - 1) / QUANTITY_ONE * QUANTITY_ONE, &all);
    buffer_char(&all, '\0');
    if (all.failed) return;
    if (str_equal(name, "CPU"))
        buffer_printf(view->out, command ? " (--num-cpus %s)" : " (init(num_cpus=%s))", all.data);
    else
        buffer_printf(view->out, command ? " (--node-resources %s=%s)" : " (init(resources={\"%s\": %s}))",
                      name, all.data);
}

static void say_lack(const struct view *view, const struct resource *wanted, struct most most) {
    const char *name = wanted->name;
    bool whole = accelerator_is_device(name) && wanted->amount >= QUANTITY_ONE;
    buffer_text(view->out, "no node");
    say_which_nodes(view);
    buffer_text(view->out, " has ");
    say_amount(view->out, name, wanted->amount);
    buffer_text(view->out, free_word(view));
    if (whole && *free_word(view)) buffer_text(view->out, " in whole devices");
    if (view->with_trainer) buffer_text(view->out, " for worker 0 and the trainer");
    buffer_text(view->out, ": ");
    if (most.amount <= 0) {
        buffer_printf(view->out, "there is no %s%s on any; add nodes with ", name, free_word(view));
        say_amount(view->out, name, wanted->amount);
        bool all = view->plan->verdict == PLAN_INFEASIBLE && view->proposal->demand->trainer.n == 0;
        if (all && !str_prefix(name, ACCELERATOR_TYPE_PREFIX, NULL))
            say_more(view, name, wanted->amount * (quantity)view->proposal->demand->min_workers);
        return;
    }
    buffer_text(view->out, "the most is ");
    say_number(view->out, name, most.amount);
    buffer_printf(view->out, " on node %s; ask for at most ", view->proposal->cluster->nodes[most.node].name);
    say_number(view->out, name, most.amount);
    buffer_printf(view->out, " %s %s", name, per_whom(view));
}

static bool explain_amounts(struct view *view) {
    bool said = false;
    for (size_t i = 0; i < view->wanted->n; i++) {
        const struct resource *wanted = &view->wanted->items[i];
        struct most most = most_of(view, wanted);
        bool broken = accelerator_is_device(wanted->name) && wanted->amount > QUANTITY_ONE &&
                      wanted->amount % QUANTITY_ONE != 0;
        if (!broken && (wanted->amount == 0 || most.amount >= wanted->amount)) continue;
        quantity have = most.amount < 0 ? 0 : most.amount,
                 whole = wanted->amount - wanted->amount % QUANTITY_ONE;
        add_short(view, wanted->name, wanted->amount, broken && whole < have ? whole : have);
        if (!said && broken) {
            long long below = (long long)(wanted->amount / QUANTITY_ONE);
            say_amount(view->out, wanted->name, wanted->amount);
            if (view->with_trainer) buffer_text(view->out, " of worker 0 and the trainer");
            buffer_printf(view->out, " is more than one device but not whole: ask for %lld or %lld %s %s",
                          below, below + 1, wanted->name, per_whom(view));
        }
        if (!said && !broken) say_lack(view, wanted, most);
        said = true;
    }
    return said;
}

/* Each amount is somewhere, but no node has all: told of the node that lacks least. */
static void explain_together(struct view *view) {
    uint32_t nearest = 0;
    double least = -1;
    for (uint32_t i = 0; i < view->proposal->cluster->n; i++) {
        if (!is_candidate(view, i)) continue;
        double lack = 0; /* of the whole wish, each resource as a share */
        for (size_t w = 0; w < view->wanted->n; w++) {
            const struct resource *wanted = &view->wanted->items[w];
            quantity have = usable_on(view, i, wanted);
            if (have < wanted->amount) lack += (double)(wanted->amount - have) / (double)wanted->amount;
        }
        if (least >= 0 && lack >= least) continue;
        nearest = i;
        least = lack;
    }
    buffer_text(view->out, "no node");
    say_which_nodes(view);
    buffer_text(view->out, " has ");
    say_resources(view->out, view->wanted);
    buffer_printf(view->out, "%s together: node %s comes nearest, with ", free_word(view),
                  view->proposal->cluster->nodes[nearest].name);
    const char *between = "";
    for (size_t i = 0; i < view->wanted->n; i++) {
        const struct resource *wanted = &view->wanted->items[i];
        quantity have = usable_on(view, nearest, wanted);
        if (have >= wanted->amount) continue;
        buffer_text(view->out, between);
        say_amount(view->out, wanted->name, have);
        add_short(view, wanted->name, wanted->amount, have);
        between = ", ";
    }
    buffer_printf(view->out, "; ask for no more than that %s", per_whom(view));
}

/* ---- all workers ---- */

/* Sums are clipped, not refused: a sentence about what is short must come of any amounts. */
static quantity add_clipped(quantity a, quantity b) {
    return b > QUANTITY_MAX - a ? QUANTITY_MAX : a + b;
}

static quantity total_need(const struct demand *demand, const char *name, size_t n) {
    quantity need, trainer = resources_get(&demand->trainer, name);
    if (!quantity_multiply(resources_get(&demand->per_worker, name), (int64_t)n, &need)) return QUANTITY_MAX;
    return need > QUANTITY_MAX ? QUANTITY_MAX : add_clipped(need, trainer);
}

static quantity sum_of(const struct view *view, const char *name) {
    quantity sum = 0;
    for (uint32_t i = 0; i < view->proposal->cluster->n; i++)
        if (is_candidate(view, i)) sum = add_clipped(sum, free_on(view, i, name));
    return sum;
}

static void say_workers(const struct view *view, size_t n) {
    const struct demand *demand = view->proposal->demand;
    if (demand->elastic) buffer_text(view->out, "at least ");
    say_count(view->out, n, "worker");
    if (demand->per_worker.n) buffer_text(view->out, " of ");
    say_resources(view->out, &demand->per_worker);
    if (!demand->trainer.n) return;
    buffer_text(view->out, " and the trainer's ");
    say_resources(view->out, &demand->trainer);
}

static void say_fewer(const struct view *view, int64_t most) {
    if (most > 0) buffer_printf(view->out, "use at most %lld worker%s", (long long)most, most == 1 ? "" : "s");
}

/* The largest amount for each of n workers that this machine, which has `have`, holds; 0: none. */
static quantity share_of(const char *name, quantity have, size_t n) {
    if (!accelerator_is_device(name)) return have / (quantity)n;
    quantity devices = have / QUANTITY_ONE;
    if (devices == 0) return 0;
    quantity whole = devices / (quantity)n, sharers = ((quantity)n + devices - 1) / devices;
    quantity share = whole > 0 ? whole * QUANTITY_ONE : QUANTITY_ONE / sharers;
    return accelerator_check_amount(name, share, NULL) == 0 ? share : 0;
}

static void say_less(struct view *view, const char *name, quantity have, size_t n) {
    CLEANUP(buffer_done) struct buffer share = {0};
    quantity each = share_of(name, have, n);
    if (!is_this_machine(view) || each == 0) return;
    quantity_format(each, &share);
    buffer_char(&share, '\0');
    if (share.failed) return;
    buffer_printf(view->out,
                  view->proposal->demand->face == FACE_COMMAND
                      ? ", or ask for less (--resources %s=%s)"
                      : ", or ask for less (resources_per_worker={\"%s\": %s})",
                  name, share.data);
}

/* A resource of which all candidates together have too little. */
static bool explain_sums(struct view *view, size_t n, int64_t most) {
    bool said = false;
    for (size_t i = 0; i < view->proposal->first.n; i++) {
        const char *type, *name = view->proposal->first.items[i].name;
        quantity need = total_need(view->proposal->demand, name, n), have = sum_of(view, name);
        if (need <= have) continue;
        add_short(view, name, need, have);
        if (said) continue;
        said = true;
        say_workers(view, n);
        buffer_text(view->out, " need ");
        say_number(view->out, name, need);
        buffer_printf(view->out, " %s, ", name);
        bool all = !wanted_type(view) && (!view->selector || !view->selector->n);
        buffer_text(view->out, all ? "the cluster" : "the nodes");
        say_which_nodes(view);
        buffer_text(view->out, all ? " has " : " have ");
        say_number(view->out, name, have);
        buffer_printf(view->out, "%s: ", free_word(view));
        say_fewer(view, most);
        buffer_text(view->out, most > 0 ? " or add " : "add ");
        if (str_prefix(name, ACCELERATOR_TYPE_PREFIX, &type)) {
            buffer_printf(view->out, "a node of type %s", type);
        } else {
            say_number(view->out, name, need - have);
            buffer_printf(view->out, " %s", name);
        }
        if (view->plan->verdict == PLAN_INFEASIBLE && view->proposal->demand->trainer.n == 0 &&
            !str_prefix(name, ACCELERATOR_TYPE_PREFIX, NULL)) {
            say_more(view, name, need);
            say_less(view, name, have, n);
        }
    }
    return said;
}

/* Enough in sum, but in pieces that no worker can use. Told of the resource that holds fewest workers; counts
 * of workers are clipped as sums are. */
static void explain_pieces(struct view *view, size_t n, int64_t most) {
    const struct resources *wanted = view->wanted;
    const struct resource *scarce = NULL;
    int64_t fewest = INT64_MAX;
    for (size_t i = 0; i < wanted->n; i++) {
        int64_t holds = 0;
        for (uint32_t node = 0; node < view->proposal->cluster->n; node++) {
            quantity here = is_candidate(view, node) ? free_on(view, node, wanted->items[i].name) : 0;
            holds = add_clipped(holds, here / wanted->items[i].amount);
        }
        if (holds >= fewest) continue;
        fewest = holds;
        scarce = &wanted->items[i];
    }
    say_workers(view, n);
    buffer_printf(view->out, " do not fit on single nodes, only %lld %s%s: ", (long long)most,
                  most == 1 ? "does" : "do", *free_word(view) ? " now" : "");
    say_fewer(view, most);
    if (!scarce) return;
    buffer_printf(view->out, "%s%s per worker", most > 0 ? " or less " : "use less ", scarce->name);
    quantity have;
    if (quantity_multiply(scarce->amount, most, &have))
        add_short(view, scarce->name, total_need(view->proposal->demand, scarce->name, n), have);
}

/* All of them may fit the nodes, but not those of one value of the label. Told of a worker's first resource. */
static void explain_domain(struct view *view, size_t n, int64_t most) {
    const struct demand *demand = view->proposal->demand;
    if (demand->strategy != PLACE_PACK)
        buffer_printf(view->out, "%s: ", placement_strategy_name(demand->strategy));
    say_workers(view, n);
    buffer_printf(view->out, " do not fit on nodes of one %s%s: ", demand->domain,
                  *free_word(view) ? " now" : "");
    size_t before = view->out->size;
    buffer_printf(view->out, "%s here is ", demand->domain);
    if (!say_values(view, label_of, demand->domain)) {
        view->out->size = before;
        buffer_printf(view->out, "%s is on no node", demand->domain);
    }
    buffer_printf(view->out, "; the most that one holds is %lld; ", (long long)most);
    say_fewer(view, most);
    buffer_printf(view->out, "%sleave the label out", most > 0 ? " or " : "");
    const struct resource *first = view->wanted->items;
    quantity have;
    if (view->wanted->n > 0 && quantity_multiply(first->amount, most, &have))
        add_short(view, first->name, total_need(demand, first->name, n), have);
}

/* Every worker fits some node, but not all of them fit together: told by strategy. With a selector for each
 * worker the nodes that count are not those of one of them, and all are spoken of. */
static int explain_many(struct view *view) {
    const struct demand *demand = view->proposal->demand;
    size_t n = demand->min_workers;
    int64_t most = proposal_most(view->proposal, n - 1);
    if (most < 0) return (int)most;
    if (demand->n_selectors > 1) view->selector = NULL;
    if (demand->domain != NULL) {
        explain_domain(view, n, most);
    } else if (demand->strategy == PLACE_STRICT_PACK) {
        buffer_text(view->out, "STRICT_PACK wants all of ");
        say_workers(view, n);
        buffer_printf(view->out, " on one node%s: ", *free_word(view) ? " now" : "");
        for (size_t i = 0; i < view->proposal->first.n; i++) {
            const struct resource *item = &view->proposal->first.items[i];
            quantity need = total_need(view->proposal->demand, item->name, n);
            struct most have = most_of(view, &(struct resource){item->name, QUANTITY_ONE});
            if (need > have.amount) add_short(view, item->name, need, have.amount < 0 ? 0 : have.amount);
        }
        buffer_printf(view->out, "the most that one holds is %lld; ", (long long)most);
        say_fewer(view, most);
        buffer_text(view->out, most > 0 ? " or the strategy PACK" : "use the strategy PACK");
    } else if (demand->strategy == PLACE_STRICT_SPREAD) {
        buffer_printf(view->out,
                      "STRICT_SPREAD wants %zu nodes, one for each worker, and %lld can hold one%s: ", n,
                      (long long)most, *free_word(view) ? " now" : "");
        say_fewer(view, most);
        buffer_text(view->out, most > 0 ? " or the strategy SPREAD" : "use the strategy SPREAD");
        add_short(view, "nodes", (quantity)n * QUANTITY_ONE, most * QUANTITY_ONE);
    } else if (!explain_sums(view, n, most)) {
        explain_pieces(view, n, most);
    }
    return view->failed;
}

/* ---- the whole ---- */

static int explain(struct view *view) {
    struct proposal *proposal = view->proposal;
    if (proposal->cluster->n == 0) {
        buffer_text(view->out, "there are no nodes: add some, or leave out --cluster to use this machine");
        for (size_t i = 0; i < view->wanted->n; i++)
            add_short(view, view->wanted->items[i].name,
                      total_need(proposal->demand, view->wanted->items[i].name, proposal->demand->min_workers),
                      0);
        return view->failed;
    }
    size_t n_kinds = 1 + (proposal->demand->n_selectors > 1 ? proposal->demand->min_workers : 1);
    for (size_t k = 1; k <= n_kinds;
         k++) { /* the trainer's bundle last: most often the worker alone is the trouble */
        const struct bundle_kind *kind = &proposal->kinds[k % n_kinds];
        int64_t fits = planner_capacity(proposal->planner, kind, PLACE_PACK, 1);
        if (fits < 0) return (int)fits;
        if (fits) continue;
        view->wanted = kind->resources;
        view->selector = kind->selector;
        view->with_trainer = k == n_kinds && proposal->demand->trainer.n > 0;
        if (!explain_labels(view) && !explain_type(view) && !explain_amounts(view)) explain_together(view);
        return view->failed;
    }
    return explain_many(view);
}

int explain_refusal(struct plan *plan, struct proposal *proposal) {
    if (proposal->demand->tpu.workers_per_slice > 0) return explain_slices(plan, proposal);
    CLEANUP(buffer_done) struct buffer out = {0};
    struct view view = {.proposal = proposal,
                        .wanted = proposal->kinds[1].resources,
                        .selector = proposal->kinds[1].selector,
                        .plan = plan,
                        .out = &out};
    int result = explain(&view);
    if (result < 0) return result;
    plan->reason = buffer_take(&out);
    return plan->reason ? 0 : -ENOMEM;
}
