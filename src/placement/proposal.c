/* The planner's answer for one demand, elastic or not, made of decisions that are tried and undone. Elastic
 * demands are planned at the most that fits. What fits one by one bounds that from above and is counted by
 * classes; the bound nearly always holds, else the search goes down from it in doubling steps. */
#include "placement/proposal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

/* ---- the gang ---- */

struct gang proposal_gang(const struct proposal *proposal, size_t n) {
    const struct demand *demand = proposal->demand;
    return (struct gang){.kinds = proposal->kinds,
                         .n_kinds = demand->n_selectors > 1 ? n + 1 : 2,
                         .kind_of = proposal->kind_of,
                         .n = n,
                         .strategy = demand->strategy,
                         .domain = demand->domain,
                         .soft_target = -1};
}

int proposal_init(struct proposal *proposal, const struct cluster *cluster, const struct demand *demand,
                  bool idle) {
    *proposal = (struct proposal){.cluster = cluster, .demand = demand, .idle = idle};
    proposal->planner = planner_create(cluster, idle);
    if (!proposal->planner) return -ENOMEM;
    if (resources_copy(&proposal->first, &demand->per_worker) < 0) return -ENOMEM;
    for (size_t i = 0; i < demand->trainer.n; i++) {
        const struct resource *item = &demand->trainer.items[i];
        if (!item->amount) continue;
        quantity sum = resources_get(&proposal->first, item->name) + item->amount; /* both at most 2^62 */
        if (resources_set(&proposal->first, item->name, sum > QUANTITY_MAX ? QUANTITY_MAX : sum) < 0)
            return -ENOMEM;
    }
    /* kinds[0] is bundle 0's; then one a selector, or one for all. */
    size_t n = demand->n_selectors > 1 ? demand->n_selectors : 1;
    proposal->kinds = calloc(n + 1, sizeof *proposal->kinds);
    if (!proposal->kinds) return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        proposal->kinds[i + 1] =
            (struct bundle_kind){&demand->per_worker, demand->n_selectors ? &demand->selectors[i] : NULL};
    proposal->kinds[0] = (struct bundle_kind){&proposal->first, proposal->kinds[1].selector};
    struct gang gang = proposal_gang(proposal, 0);
    proposal->stride = gang_stride(&gang);
    return 0;
}

void proposal_done(struct proposal *proposal) {
    planner_destroy(proposal->planner);
    resources_done(&proposal->first);
    free(proposal->kinds);
    free(proposal->kind_of);
    free(proposal->node_of);
    free(proposal->positions);
    free(proposal->slices);
    *proposal = (struct proposal){0};
}

/* ---- placing ---- */

/* Room for the kinds, nodes and positions of n workers. Kinds go on from where they were: those of earlier
 * workers stay. */
static int make_room(struct proposal *proposal, size_t n) {
    if (n > proposal->n_kind_of) {
        if (ARRAY_RESIZE(proposal->kind_of, n) < 0) return -ENOMEM;
        for (size_t i = proposal->n_kind_of; i < n; i++)
            proposal->kind_of[i] = i == 0 ? 0 : proposal->demand->n_selectors > 1 ? (uint32_t)i + 1 : 1;
        proposal->n_kind_of = n;
    }
    if (ARRAY_RESIZE(proposal->node_of, n + 1) < 0) return -ENOMEM;
    return ARRAY_RESIZE(proposal->positions, n * proposal->stride + 1);
}

/* 1, 0 or -ENOMEM, as proposal_place. */
static int place(struct proposal *proposal, size_t n) {
    if (make_room(proposal, n) < 0) return -ENOMEM;
    struct gang gang = proposal_gang(proposal, n);
    int result = planner_place(proposal->planner, &gang, proposal->node_of, proposal->positions);
    if (result == PLANNER_PLACED) proposal->n = n;
    return result < 0 ? result : result == PLANNER_PLACED;
}

void proposal_withdraw(struct proposal *proposal) {
    if (!proposal->n) return;
    struct gang gang = proposal_gang(proposal, proposal->n);
    planner_release(proposal->planner, &gang, proposal->node_of, proposal->positions);
    proposal->n = 0;
    proposal->n_slices = 0;
}

/* Between `fits` (placed when tried) and `fails`. */
static int bisect(struct proposal *proposal, size_t fits, size_t fails) {
    while (fails - fits > 1) {
        size_t middle = fits + (fails - fits) / 2;
        int result = place(proposal, middle);
        if (result < 0) return result;
        if (result) proposal_withdraw(proposal);
        *(result ? &fits : &fails) = middle;
    }
    return place(proposal, fits);
}

static int search_down(struct proposal *proposal, size_t least, size_t most) {
    size_t fails = most + 1;
    for (size_t step = 1, n = most;; step *= 2) {
        int result = place(proposal, n);
        if (result < 0 || (!result && n == least)) return result;
        if (result && fails - n == 1) return 1;
        if (result) {
            proposal_withdraw(proposal);
            return bisect(proposal, n, fails);
        }
        fails = n;
        n = n - least > step ? n - step : least;
    }
}

/* With a selector for each worker nothing bounds it from above: a worker more is another selector, and may fit
 * where the one before does not. In one domain there is no more room than on all nodes. */
int proposal_place(struct proposal *proposal, size_t least, size_t most) {
    const struct demand *demand = proposal->demand;
    if (demand->tpu.workers_per_slice > 0) {
        if (make_room(proposal, slices_bound(proposal, most)) < 0) return -ENOMEM;
        return slices_place(proposal, least, most);
    }
    if (demand->n_selectors <= 1) {
        int64_t bound =
            planner_capacity(proposal->planner, &proposal->kinds[1], demand->strategy, (int64_t)most);
        if (bound < 0) return (int)bound;
        if ((size_t)bound < most) most = (size_t)bound;
    }
    return most < least ? 0 : search_down(proposal, least, most);
}

int64_t proposal_most(struct proposal *proposal, size_t most) {
    const struct demand *demand = proposal->demand;
    if (most == 0) return 0;
    if (demand->tpu.workers_per_slice == 0 && demand->n_selectors <= 1 && demand->trainer.n == 0 &&
        demand->domain == NULL)
        return planner_capacity(proposal->planner, &proposal->kinds[1], demand->strategy, (int64_t)most);
    int result = proposal_place(proposal, 1, most);
    if (result <= 0) return result;
    int64_t n = (int64_t)proposal->n;
    proposal_withdraw(proposal);
    return n;
}
