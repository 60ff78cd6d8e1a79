/* The planner's life, whole decisions, label domains, and counting what fits. Each entry point begins a
 * decision, lets a strategy or the caller place, and ends it, so that a gang that is refused leaves no
 * trace. */
#include "placement/planner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "placement/decision.h"

struct planner {
    struct classes classes;
    struct kind_table table;
    struct workroom room;
};

struct planner *planner_create(const struct cluster *cluster, bool idle) {
    struct planner *planner = calloc(1, sizeof *planner);
    if (!planner) return NULL;
    planner->room.touched = malloc((cluster->n + 1) * sizeof *planner->room.touched);
    if (planner->room.touched && classes_init(&planner->classes, cluster, idle) == 0) return planner;
    free(planner->room.touched);
    free(planner);
    return NULL;
}

void planner_destroy(struct planner *planner) {
    if (!planner) return;
    classes_done(&planner->classes);
    kind_table_done(&planner->table);
    free(planner->room.words);
    free(planner->room.queues);
    free(planner->room.touched);
    free(planner);
}

size_t gang_stride(const struct gang *gang) {
    size_t most = 0;
    for (size_t k = 0; k < gang->n_kinds; k++) {
        size_t stride = resources_positions(gang->kinds[k].resources);
        if (stride > most) most = stride;
    }
    return most;
}

static struct decision decision_of(struct planner *planner, const struct gang *gang, uint32_t *node_of,
                                   uint16_t *positions) {
    return (struct decision){.classes = &planner->classes,
                             .table = &planner->table,
                             .gang = gang,
                             .node_of = node_of,
                             .positions = positions,
                             .stride = gang_stride(gang)};
}

static int place_anywhere(struct planner *planner, const struct gang *gang, uint32_t *node_of,
                          uint16_t *positions) {
    struct decision decision = decision_of(planner, gang, node_of, positions);
    if (decision_begin(&decision, &planner->room) < 0) return -ENOMEM;
    int result = strategy_place(&decision);
    decision_end(&decision, result == PLANNER_PLACED);
    return result;
}

/* ---- label domains (docs/spec/placement.md 3.2 step 9) ---- */

struct domain {
    const char *value;
    uint32_t first_node;
};

static int domain_order(const void *a, const void *b) {
    uint32_t x = ((const struct domain *)a)->first_node, y = ((const struct domain *)b)->first_node;
    return x < y ? -1 : x > y;
}

/* The values of the label, by the lowest node that carries each. `domains` has room for one a shape. */
static size_t list_domains(const struct classes *classes, const char *key, struct domain *domains) {
    size_t n = 0;
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        const struct shape_info *info = &classes->shapes[s];
        const char *value = info->n_nodes ? labels_get(&info->shape->labels, key) : NULL;
        if (value) domains[n++] = (struct domain){value, info->first_node};
    }
    qsort(domains, n, sizeof *domains, domain_order);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < kept && !str_equal(domains[at].value, domains[i].value))
            at++;
        if (at == kept) domains[kept++] = domains[i];
    }
    return kept;
}

/* The sum of what the gang wants of one resource, against the totals of the domain's nodes; in doubles, which
 * do not overflow. */
static bool domain_holds(const struct classes *classes, const struct gang *gang, const char *domain,
                         const char *resource) {
    double need = 0, have = 0;
    for (size_t i = 0; i < gang->n; i++)
        need += (double)resources_get(gang->kinds[gang->kind_of ? gang->kind_of[i] : 0].resources, resource);
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        const struct node_shape *shape = classes->shapes[s].shape;
        const char *value = labels_get(&shape->labels, gang->domain);
        if (value && !strcmp(value, domain))
            have += (double)resources_get(&shape->total, resource) * classes->shapes[s].n_nodes;
    }
    return need <= have;
}

static int place_in_domain(struct planner *planner, const struct gang *gang, const char *domain,
                           uint32_t *node_of, uint16_t *positions) {
    for (size_t k = 0; k < gang->n_kinds; k++)
        for (size_t i = 0; i < gang->kinds[k].resources->n; i++)
            if (!domain_holds(&planner->classes, gang, domain, gang->kinds[k].resources->items[i].name))
                return PLANNER_INFEASIBLE;
    struct bundle_kind *kinds = calloc(gang->n_kinds + 1, sizeof *kinds);
    struct label_selector *selectors = calloc(gang->n_kinds + 1, sizeof *selectors);
    bool restricted = kinds && selectors; /* each kind by one more constraint */
    for (size_t k = 0; k < gang->n_kinds && restricted; k++) {
        const struct label_selector *own = gang->kinds[k].selector;
        restricted = (!own || label_selector_copy(&selectors[k], own) == 0) &&
                     label_selector_add(&selectors[k], gang->domain, domain, NULL) == 0;
        kinds[k] = (struct bundle_kind){gang->kinds[k].resources, &selectors[k]};
    }
    int result = -ENOMEM;
    if (restricted) {
        struct gang inside = *gang;
        inside.kinds = kinds;
        inside.domain = NULL;
        result = place_anywhere(planner, &inside, node_of, positions);
    }
    for (size_t k = 0; selectors && k < gang->n_kinds; k++)
        label_selector_done(&selectors[k]);
    free(selectors);
    free(kinds);
    return result;
}

/* ---- whole decisions ---- */

/* With a label of domains: in the first that takes all of the gang; busy where one could, once others have
 * finished. */
int planner_place(struct planner *planner, const struct gang *gang, uint32_t *node_of, uint16_t *positions) {
    if (!gang->domain) return place_anywhere(planner, gang, node_of, positions);
    struct domain *domains = calloc(planner->classes.n_shapes + 1, sizeof *domains);
    if (!domains) return -ENOMEM;
    size_t n = list_domains(&planner->classes, gang->domain, domains);
    int verdict = PLANNER_INFEASIBLE;
    for (size_t i = 0; i < n; i++) {
        int result = place_in_domain(planner, gang, domains[i].value, node_of, positions);
        if (result == PLANNER_BUSY) verdict = PLANNER_BUSY;
        if (result == PLANNER_INFEASIBLE || result == PLANNER_BUSY) continue;
        verdict = result;
        break;
    }
    free(domains);
    return verdict;
}

/* Bundles of one node mostly follow each other: the node is opened once for them. */
void planner_release(struct planner *planner, const struct gang *gang, const uint32_t *node_of,
                     const uint16_t *positions) {
    struct classes *classes = &planner->classes;
    size_t stride = gang_stride(gang);
    uint32_t held = NONE;
    for (size_t i = 0; i < gang->n; i++) {
        if (node_of[i] != held) {
            if (held != NONE) classes_close(classes, TIER_UNUSED);
            held = node_of[i];
            classes_open(classes, held);
        }
        const struct bundle_kind *kind = &gang->kinds[gang->kind_of ? gang->kind_of[i] : 0];
        open_node_return_resources(classes, kind->resources, positions + i * stride);
    }
    if (held != NONE) classes_close(classes, TIER_UNUSED);
}

/* What is placed is noted apart from `node_of`: by that a decision that fails is taken back. */
int planner_place_at(struct planner *planner, const struct gang *gang, const uint32_t *node_of,
                     uint16_t *positions) {
    uint32_t *placed = malloc((gang->n + 1) * sizeof *placed);
    if (!placed) return -ENOMEM;
    struct decision decision = decision_of(planner, gang, placed, positions);
    int result = decision_begin(&decision, &planner->room);
    if (result == 0) {
        result = PLANNER_PLACED;
        for (uint32_t i = 0; i < gang->n && result == PLANNER_PLACED; i++) {
            decision_open(&decision, node_of[i]);
            if (open_node_fits(decision.classes, bundle_kind(&decision, i)))
                decision_grant(&decision, i);
            else
                result = PLANNER_BUSY;
            classes_close(decision.classes, TIER_USED);
        }
        decision_end(&decision, result == PLANNER_PLACED);
    }
    free(placed);
    return result;
}

/* ---- counting ---- */

/* Class by class: what one node holds, times its nodes, without a product that could overflow. */
int64_t planner_capacity(struct planner *planner, const struct bundle_kind *bundle,
                         enum placement_strategy strategy, int64_t limit) {
    const struct classes *classes = &planner->classes;
    kind_table_trim(&planner->table);
    const struct kind *kind = kind_find(&planner->table, classes, bundle, 1, false);
    if (!kind) return -ENOMEM;
    int64_t capacity = 0;
    for (uint32_t slot = 0; slot < classes->n_slots && capacity < limit; slot++) {
        if (class_at(classes, slot)->first == NONE) continue;
        int64_t each = kind_count(kind, classes, slot, strategy == PLACE_STRICT_SPREAD ? 1 : limit);
        int64_t nodes = strategy == PLACE_STRICT_PACK ? 1 : class_at(classes, slot)->n_nodes;
        int64_t here = each > limit / nodes ? limit : each * nodes;
        if (strategy == PLACE_STRICT_PACK) {
            capacity = here > capacity ? here : capacity;
        } else {
            capacity = here > limit - capacity ? limit : capacity + here;
        }
    }
    return capacity;
}

quantity planner_free(const struct planner *planner, uint32_t node, size_t resource) {
    const struct classes *classes = &planner->classes;
    return class_amounts(class_at(classes, classes->class_of[node]))[resource];
}

quantity planner_device_free(const struct planner *planner, uint32_t node, size_t resource, size_t position) {
    const struct classes *classes = &planner->classes;
    const struct node_class *class = class_at(classes, classes->class_of[node]);
    int32_t at = classes->devices_at[classes->shapes[class->shape].first_resource + resource];
    return classes->devices[classes->first_position[node] + (size_t)at + position];
}
