/* The four strategies of docs/spec/placement.md 3.2, steps 2 and 5 to 8. They choose nodes in the order of
 * placing; all but STRICT_PACK, which tries node after node, never take a choice back. What can be refused by
 * counting is refused before anything is placed. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "placement/decision.h"

/* ---- what can be said before trying ---- */

/* Step 2 when some nodes are excluded: a shape counts only if a node of it is left. */
static bool is_feasible_without(const struct decision *decision) {
    const struct classes *classes = decision->classes;
    for (size_t q = 0; q < decision->gang->n_kinds; q++) {
        const struct kind *kind = decision->queues[q].kind;
        bool fits = false;
        for (uint32_t s = 0; s < kind->n_shapes && !fits; s++) {
            uint32_t slot = classes->shapes[kind->shapes[s]].first_class;
            for (; slot != NONE && !fits; slot = class_at(classes, slot)->next)
                fits = class_at(classes, slot)->tier == TIER_UNUSED;
        }
        if (!fits && decision->queues[q].next < decision->queues[q].end) return false;
    }
    return true;
}

/* A gang that is larger than the number of classes is worth counting first: a refusal is then as cheap as a
 * look. */
static bool has_room(const struct decision *decision, bool one_each) {
    const struct classes *classes = decision->classes;
    if (decision->gang->n < classes->n_classes) return true;
    for (size_t q = 0; q < decision->gang->n_kinds; q++) {
        const struct kind_queue *queue = &decision->queues[q];
        int64_t need = queue->end - queue->next;
        for (uint32_t slot = 0; slot < classes->n_slots && need > 0; slot++) {
            const struct node_class *class = class_at(classes, slot);
            if (class->first == NONE || class->tier != TIER_UNUSED) continue;
            int64_t each = kind_count(queue->kind, classes, slot, one_each ? 1 : need);
            need -= each > need / class->n_nodes ? need : each * class->n_nodes;
        }
        if (need > 0) return false;
        if (decision->gang->n_kinds > classes->n_classes) return true;
    }
    return true;
}

static int refused(const struct decision *decision) {
    return decision->failed ? decision->failed : PLANNER_BUSY;
}

/* ---- PACK ---- */

/* The queue whose next bundle goes first among queues `from` to the end of its group that accept the open
 * node. */
static struct kind_queue *next_for_open_node(const struct decision *decision, uint32_t from) {
    struct kind_queue *best = NULL;
    for (uint32_t q = from; q < decision->queues[from].group_end; q++) {
        struct kind_queue *queue = &decision->queues[q];
        if (queue->next == queue->end || !kind_bound(queue->kind, decision->classes->open.shape)) continue;
        if (!best || decision->by_kind[queue->next] < decision->by_kind[best->next]) best = queue;
    }
    return best;
}

static struct kind *first_remaining(const struct decision *decision) {
    const struct kind_queue *best = NULL;
    for (uint32_t q = 0; q < decision->gang->n_kinds; q++) {
        const struct kind_queue *queue = &decision->queues[q];
        if (queue->next < queue->end &&
            (!best || decision->by_kind[queue->next] < decision->by_kind[best->next]))
            best = queue;
        if (best && q + 1 == queue->group_end) break;
    }
    return best->kind;
}

/* Nodes are done with one after the other, so that a node is opened once, and filled by all queues that it
 * takes. */
static int place_packed(struct decision *decision) {
    for (size_t placed = 0; placed < decision->gang->n;) {
        uint32_t node = decision_best(decision, first_remaining(decision));
        if (node == NONE) return refused(decision);
        decision_open(decision, node);
        for (uint32_t q = 0; q < decision->gang->n_kinds; q = decision->queues[q].group_end) {
            struct kind_queue *queue;
            while ((queue = next_for_open_node(decision, q)) &&
                   open_node_fits(decision->classes, queue->kind)) {
                decision_grant(decision, decision->by_kind[queue->next++]);
                placed++;
            }
        }
        classes_close(decision->classes, TIER_EXCLUDED);
    }
    return PLANNER_PLACED;
}

/* ---- SPREAD and STRICT_SPREAD ---- */

static int place_apart(struct decision *decision, enum tier then) {
    for (size_t i = 0; i < decision->gang->n; i++) {
        uint32_t bundle = decision->sequence[i];
        uint32_t node = decision_best(decision, bundle_kind(decision, bundle));
        if (node == NONE) return refused(decision);
        decision_open(decision, node);
        decision_grant(decision, bundle);
        classes_close(decision->classes, then);
    }
    return PLANNER_PLACED;
}

static int place_strictly_apart(struct decision *decision) {
    const struct gang *gang = decision->gang;
    for (size_t i = 0; i < gang->n_excluded; i++) {
        if (gang->excluded[i] >= decision->classes->cluster->n) continue;
        decision_open(decision, gang->excluded[i]);
        classes_close(decision->classes, TIER_EXCLUDED);
    }
    if (gang->n > decision->classes->cluster->n - decision->n_touched) return PLANNER_INFEASIBLE;
    if (decision->n_touched && !is_feasible_without(decision)) return PLANNER_INFEASIBLE;
    if (!has_room(decision, true)) return PLANNER_BUSY;
    return place_apart(decision, TIER_EXCLUDED);
}

/* ---- STRICT_PACK ---- */

static bool try_node(struct decision *decision, uint32_t node) {
    decision_open(decision, node);
    bool placed = true;
    for (size_t i = 0; i < decision->gang->n && placed; i++) {
        uint32_t bundle = decision->sequence[i];
        placed = open_node_fits(decision->classes, bundle_kind(decision, bundle));
        if (placed) decision_grant(decision, bundle);
    }
    /* What was granted before the first bundle that did not fit is given back. */
    for (size_t i = 0; !placed && i < decision->gang->n; i++) {
        uint32_t bundle = decision->sequence[i];
        if (decision->node_of[bundle] == NONE) break;
        open_node_return(decision->classes, bundle_kind(decision, bundle), bundle_positions(decision, bundle));
        decision->node_of[bundle] = NONE;
    }
    classes_close(decision->classes, TIER_EXCLUDED);
    return placed;
}

/* All bundles as one: the sum of what they want, every label that one of them asks for. */
static struct kind *sum_of_unlike(struct decision *decision) {
    struct resources sum = {0};
    struct label_selector all = {0};
    struct kind *kind = NULL;
    int error = 0;
    for (size_t q = 0; q < decision->gang->n_kinds && !error; q++) {
        const struct kind_queue *queue = &decision->queues[q];
        if (queue->next == queue->end) continue;
        for (size_t i = 0; i < queue->kind->n_wanted && !error; i++) {
            const struct wanted *wanted = &queue->kind->wanted[i];
            quantity need = QUANTITY_MAX, had = resources_get(&sum, wanted->name);
            if (!quantity_multiply(wanted->amount, queue->end - queue->next, &need)) need = QUANTITY_MAX;
            error = resources_set(&sum, wanted->name, need > QUANTITY_MAX - had ? QUANTITY_MAX : need + had);
        }
        const struct label_selector *selector = &queue->kind->selector;
        for (size_t i = 0; i < selector->n && !error; i++) {
            error = ARRAY_GROW(all.items, all.n);
            if (!error) all.items[all.n++] = selector->items[i]; /* borrows what the constraint points to */
        }
    }
    struct bundle_kind bundle = {.resources = &sum, .selector = &all};
    if (!error) kind = kind_find(decision->table, decision->classes, &bundle, 1, true);
    free(all.items);
    resources_done(&sum);
    return kind;
}

/* Alike bundles are counted exactly: the best node holds them. Of unlike ones the sum says where they may fit,
 * and the node that comes out is tried; one that fails is out of this decision, so that the loop ends. */
static int place_together(struct decision *decision) {
    const struct gang *gang = decision->gang;
    size_t n_kinds = 0;
    for (size_t q = 0; q < gang->n_kinds; q++)
        n_kinds += decision->queues[q].next < decision->queues[q].end;
    struct kind *kind;
    if (n_kinds == 1) {
        const struct bundle_kind *alike = &gang->kinds[gang->kind_of ? gang->kind_of[0] : 0];
        kind = kind_find(decision->table, decision->classes, alike, (int64_t)gang->n, false);
    } else {
        kind = sum_of_unlike(decision);
    }
    if (!kind) return -ENOMEM;
    if (!kind->n_shapes) return PLANNER_INFEASIBLE;
    int64_t target = gang->soft_target;
    if (target >= 0 && (uint64_t)target < decision->classes->cluster->n && try_node(decision, (uint32_t)target))
        return PLANNER_PLACED;
    for (;;) {
        uint32_t node = decision_best(decision, kind);
        if (node == NONE) return refused(decision);
        if (try_node(decision, node)) return PLANNER_PLACED;
    }
}

int strategy_place(struct decision *decision) {
    if (decision->classes->cluster->n == 0) return PLANNER_INFEASIBLE;
    /* Step 2: every bundle must fit the totals of a node at all. */
    for (size_t q = 0; q < decision->gang->n_kinds; q++)
        if (decision->queues[q].next < decision->queues[q].end && !decision->queues[q].kind->n_shapes)
            return PLANNER_INFEASIBLE;
    switch (decision->gang->strategy) {
    case PLACE_PACK:
        return has_room(decision, false) ? place_packed(decision) : PLANNER_BUSY;
    case PLACE_SPREAD:
        return has_room(decision, false) ? place_apart(decision, TIER_USED) : PLANNER_BUSY;
    case PLACE_STRICT_PACK:
        return place_together(decision);
    case PLACE_STRICT_SPREAD:
        return place_strictly_apart(decision);
    }
    return PLANNER_INFEASIBLE;
}
