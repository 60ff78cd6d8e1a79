/* The gang planner on random clusters: every placement keeps to capacities, labels and strategy, comes whole or
 * not at all, is the same each time, is given back to the last part, and is what the rules of
 * docs/spec/placement.md 3.2 give when they are followed the slow way. */
/* The tables below say of each node and request only what matters. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "gang_world.h"
#include "plan_world.h"
#include "random_test.h"

static struct cluster *random_cluster(void) {
    static const char *const totals[] = {
        "CPU=8,GPU=4", "CPU=16",      "CPU=8,GPU=8,memory=1GiB", "CPU=4,GPU=2,disk=3", "CPU=64",
        "CPU=8,TPU=4", "CPU=2,GPU=1", "CPU=8,GPU=4,disk=1"};
    static const char *const zones[] = {"zone=a", "zone=b", "zone=c"};
    struct cluster *cluster = cluster_create();
    uint32_t n = 1 + below(12), kinds = 1 + below(8);
    for (uint32_t i = 0; i < n; i++) {
        ADD_NODE(cluster, .total = totals[below(kinds)], .available = below(5) ? NULL : "CPU=2",
                 .labels = below(4) ? zones[below(3)] : NULL);
    }
    return cluster;
}

static struct label_selector zone_a_or_b;

static void random_gang(struct test_gang *test) {
    static const char *const wanted[] = {"CPU=1",       "GPU=1,CPU=1",      "GPU=2",         "GPU=0.5,CPU=1",
                                         "GPU=0.3",     "CPU=2,disk=1",     "TPU=2,CPU=1",   "CPU=3",
                                         "GPU=0.25",    "memory=1e8,CPU=1", "GPU=4,CPU=0.1", "GPU=1.5",
                                         "CPU=7,GPU=3", "CPU=0.5",          "GPU=0.7"};
    gang_init(test, (enum placement_strategy)below(4));
    uint32_t kinds = 1 + (below(3) == 0 ? below(4) : 0);
    for (uint32_t k = 0; k < kinds; k++) {
        gang_add(test, 1 + (int)below(8), wanted[below(15)]);
        if (below(4) == 0) test->kinds[k].selector = &zone_a_or_b;
    }
    for (size_t i = test->gang.n; i-- > 1;) { /* mix the kinds */
        uint32_t j = below((uint32_t)i + 1), kept = test->kind_of[i];
        test->kind_of[i] = test->kind_of[j];
        test->kind_of[j] = kept;
    }
}

/* Everything that is free, one number after the other. */
static size_t snapshot(const struct planner *planner, const struct cluster *cluster, quantity *out) {
    size_t n = 0;
    for (uint32_t node = 0; node < cluster->n; node++) {
        const struct node_shape *shape = cluster->nodes[node].shape;
        for (size_t i = 0; i < shape->total.n; i++) {
            out[n++] = planner_free(planner, node, i);
            for (size_t d = 0; d < shape->n_devices; d++)
                for (size_t p = 0;
                     !strcmp(shape->devices[d].resource, shape->total.items[i].name) && p < shape->devices[d].n;
                     p++)
                    out[n++] = planner_device_free(planner, node, i, p);
        }
    }
    return n;
}

/* Free amounts are what they were less what the gang wants; parts of devices add up to the amount. */
static void check_amounts(const struct planner *planner, const struct cluster *cluster,
                          const struct planner *before, const struct test_gang *test) {
    for (uint32_t node = 0; node < cluster->n; node++) {
        const struct resources *total = &cluster->nodes[node].shape->total;
        for (size_t i = 0; i < total->n; i++) {
            quantity taken = 0;
            for (size_t b = 0; b < test->gang.n; b++)
                if (test->node_of[b] == node)
                    taken += resources_get(&test->resources[test->kind_of[b]], total->items[i].name);
            quantity left = planner_free(planner, node, i);
            assert_true(left >= 0);
            assert_int_equal(left, planner_free(before, node, i) - taken);
        }
    }
}

static void check_strategy(const struct cluster *cluster, const struct test_gang *test) {
    for (size_t i = 0; i < test->gang.n; i++) {
        const struct bundle_kind *kind = &test->kinds[test->kind_of[i]];
        if (kind->selector)
            assert_true(label_selector_match(kind->selector, &cluster->nodes[test->node_of[i]].shape->labels));
        for (size_t j = 0; j < i; j++) {
            if (test->gang.strategy == PLACE_STRICT_PACK) assert_int_equal(test->node_of[i], test->node_of[j]);
            if (test->gang.strategy == PLACE_STRICT_SPREAD)
                assert_int_not_equal(test->node_of[i], test->node_of[j]);
        }
    }
}

/* The best node for each bundle, said again the slow way: PACK and SPREAD of 3.2, node by node. */
static double slow_score(const struct planner *planner, const struct cluster *cluster, uint32_t node,
                         const struct resources *wanted) {
    const struct resources *total = &cluster->nodes[node].shape->total;
    double score = 0;
    for (size_t w = 0; w < wanted->n; w++)
        for (size_t i = 0; i < total->n; i++) {
            if (strcmp(total->items[i].name, wanted->items[w].name)) continue;
            double have = (double)planner_free(planner, node, i);
            score += (have - (double)wanted->items[w].amount) / have;
        }
    return score;
}

/* A single bundle goes to the best node; a node fits when a gang of one that is held to it is placed. */
static void check_choice(const struct cluster *cluster, struct planner *planner) {
    struct test_gang test;
    random_gang(&test);
    test.gang.n = 1;
    test.gang.strategy = (enum placement_strategy)below(4);
    int result = gang_place(planner, &test);
    uint32_t chosen = test.node_of[0], best = UINT32_MAX;
    if (result == PLANNER_PLACED) gang_release(planner, &test);
    double best_score = -1;
    for (uint32_t node = 0; node < cluster->n; node++) {
        const struct bundle_kind *kind = &test.kinds[test.kind_of[0]];
        if (kind->selector && !label_selector_match(kind->selector, &cluster->nodes[node].shape->labels))
            continue;
        if (planner_place_at(planner, &test.gang, &node, test.positions) != PLANNER_PLACED) continue;
        planner_release(planner, &test.gang, &node, test.positions);
        double score = slow_score(planner, cluster, node, kind->resources);
        if (score <= best_score + 1e-12) continue;
        best = node;
        best_score = score;
    }
    assert_int_equal(result == PLANNER_PLACED, best != UINT32_MAX);
    if (result == PLANNER_PLACED) assert_int_equal(chosen, best);
    gang_done(&test);
}

static void try_gang(const struct cluster *cluster, struct planner *planner, struct planner *twin,
                     struct test_gang *test, bool *placed) {
    static quantity before[4096], after[4096];
    size_t n = snapshot(planner, cluster, before);
    struct test_gang again = *test;
    again.gang.kinds = again.kinds;
    again.gang.kind_of = again.kind_of;
    int result = gang_place(planner, test);
    *placed = result == PLANNER_PLACED;
    if (*placed) {
        check_strategy(cluster, test);
        check_amounts(planner, cluster, twin, test);
    } else {
        assert_int_equal(snapshot(planner, cluster, after), n);
        assert_memory_equal(before, after, n * sizeof *before);
    }
    assert_int_equal(gang_place(twin, &again), result);
    if (!*placed) return;
    assert_memory_equal(test->node_of, again.node_of, test->gang.n * sizeof *test->node_of);
    assert_memory_equal(test->positions, again.positions,
                        test->gang.n * gang_stride(&test->gang) * sizeof *test->positions);
}

/* ---- PACK, SPREAD and STRICT_SPREAD said again the slow way: node by node, bundle by bundle ---- */

static int custom_first(const struct resources *a, const struct resources *b) {
    static const char *const customs[] = {"TPU", "disk"}; /* those that occur here, in byte order */
    for (size_t i = 0; i < 2; i++) {
        quantity x = resources_get(a, customs[i]), y = resources_get(b, customs[i]);
        if (x != y) return x > y ? -1 : 1;
    }
    return 0;
}

static int slow_order(const struct test_gang *test, uint32_t a, uint32_t b) {
    const struct resources *x = &test->resources[test->kind_of[a]], *y = &test->resources[test->kind_of[b]];
    static const char *const names[] = {"GPU", NULL, "memory", "CPU"};
    for (size_t i = 0; i < 4; i++) {
        quantity p = names[i] ? resources_get(x, names[i]) : 0, q = names[i] ? resources_get(y, names[i]) : 0;
        if (p != q) return p > q ? -1 : 1;
        int custom = names[i] ? 0 : custom_first(x, y);
        if (custom) return custom;
    }
    return a < b ? -1 : a > b;
}

static bool slow_put(struct planner *model, struct test_gang *test, uint32_t bundle, uint32_t node) {
    struct gang one = test->gang;
    one.kind_of = &test->kind_of[bundle];
    one.n = 1;
    size_t stride = gang_stride(&test->gang);
    return planner_place_at(model, &one, &node, test->positions + bundle * stride) == PLANNER_PLACED;
}

static void slow_take_back(struct planner *model, const struct test_gang *test, uint32_t bundle,
                           uint32_t node) {
    struct gang one = test->gang;
    one.kind_of = &test->kind_of[bundle];
    one.n = 1;
    planner_release(model, &one, &node, test->positions + bundle * gang_stride(&test->gang));
}

/* The best of the nodes for which `allowed` holds, or UINT32_MAX. */
static uint32_t slow_best(struct planner *model, const struct cluster *cluster, struct test_gang *test,
                          uint32_t bundle, const bool *barred, bool want_barred) {
    uint32_t best = UINT32_MAX;
    double best_score = -1;
    const struct bundle_kind *kind = &test->kinds[test->kind_of[bundle]];
    for (uint32_t node = 0; node < cluster->n; node++) {
        if (barred[node] != want_barred) continue;
        if (kind->selector && !label_selector_match(kind->selector, &cluster->nodes[node].shape->labels))
            continue;
        if (!slow_put(model, test, bundle, node)) continue;
        slow_take_back(model, test, bundle, node);
        double score = slow_score(model, cluster, node, kind->resources);
        if (score <= best_score + 1e-12) continue;
        best = node;
        best_score = score;
    }
    return best;
}

static bool slow_pack(struct planner *model, const struct cluster *cluster, struct test_gang *test,
                      const uint32_t *order) {
    bool dropped[64] = {false};
    for (size_t i = 0; i < test->gang.n; i++) {
        if (test->node_of[order[i]] != UINT32_MAX) continue;
        uint32_t node = slow_best(model, cluster, test, order[i], dropped, false);
        if (node == UINT32_MAX) return false;
        dropped[node] = true;
        for (size_t j = i; j < test->gang.n; j++) {
            const struct bundle_kind *kind = &test->kinds[test->kind_of[order[j]]];
            if (test->node_of[order[j]] != UINT32_MAX) continue;
            if (kind->selector && !label_selector_match(kind->selector, &cluster->nodes[node].shape->labels))
                continue;
            if (slow_put(model, test, order[j], node)) test->node_of[order[j]] = node;
        }
    }
    return true;
}

static bool slow_spread(struct planner *model, const struct cluster *cluster, struct test_gang *test,
                        const uint32_t *order) {
    bool used[64] = {false};
    for (size_t i = 0; i < test->gang.n; i++) {
        uint32_t node = slow_best(model, cluster, test, order[i], used, false);
        if (node == UINT32_MAX && test->gang.strategy == PLACE_SPREAD)
            node = slow_best(model, cluster, test, order[i], used, true);
        if (node == UINT32_MAX) return false;
        used[node] = true;
        assert_true(slow_put(model, test, order[i], node));
        test->node_of[order[i]] = node;
    }
    return true;
}

static void compare_with_slow(uint64_t seed) {
    dice_seed(&dice, seed + 1000000);
    struct cluster *cluster = random_cluster();
    struct planner *planner = planner_create(cluster, false), *model = planner_create(cluster, false);
    struct test_gang test, slow;
    random_gang(&test);
    slow = test;
    slow.gang.kinds = slow.kinds;
    slow.gang.kind_of = slow.kind_of;
    uint32_t order[MAX_BUNDLES];
    for (uint32_t i = 0; i < slow.gang.n; i++) {
        uint32_t at = i;
        for (; at > 0 && slow_order(&slow, i, order[at - 1]) < 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
        slow.node_of[i] = UINT32_MAX;
    }
    if (test.gang.strategy != PLACE_STRICT_PACK) {
        bool placed = test.gang.strategy == PLACE_PACK ? slow_pack(model, cluster, &slow, order)
                                                       : slow_spread(model, cluster, &slow, order);
        assert_int_equal(gang_place(planner, &test) == PLANNER_PLACED, placed);
        if (placed) assert_memory_equal(test.node_of, slow.node_of, test.gang.n * sizeof *test.node_of);
    }
    gang_done(&test);
    planner_destroy(planner);
    planner_destroy(model);
    cluster_destroy(cluster);
}

enum { HELD = 6 };

static void run_seed(uint64_t seed) {
    static quantity first[4096], last[4096];
    static struct test_gang gangs[HELD];
    bool placed[HELD] = {false};
    dice_seed(&dice, seed);
    struct cluster *cluster = random_cluster();
    struct planner *planner = planner_create(cluster, false), *twin = planner_create(cluster, false);
    size_t n = snapshot(planner, cluster, first);
    for (int step = 0; step < 40; step++) {
        uint32_t g = below(HELD);
        if (placed[g]) {
            gang_release(planner, &gangs[g]);
            gang_release(twin, &gangs[g]);
            gang_done(&gangs[g]);
            placed[g] = false;
            continue;
        }
        random_gang(&gangs[g]);
        try_gang(cluster, planner, twin, &gangs[g], &placed[g]);
        if (!placed[g]) gang_done(&gangs[g]);
        check_choice(cluster, planner);
    }
    for (int g = 0; g < HELD; g++) {
        if (!placed[g]) continue;
        gang_release(planner, &gangs[g]);
        gang_done(&gangs[g]);
    }
    assert_int_equal(snapshot(planner, cluster, last), n);
    assert_memory_equal(first, last, n * sizeof *first);
    planner_destroy(planner);
    planner_destroy(twin);
    cluster_destroy(cluster);
}

static void test_random_clusters(void **state) {
    (void)state;
    assert_int_equal(label_selector_add(&zone_a_or_b, "zone", "in(a,b)", NULL), 0);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        seed_in_test = seed;
        run_seed(seed);
        compare_with_slow(seed);
    }
    seed_in_test = 0;
    label_selector_done(&zone_a_or_b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_clusters, tell_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
