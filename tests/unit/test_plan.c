/* Plans: devices and what each worker sees of them (docs/spec/train-api.md 8, vectors 67 to 76, 106, 107),
 * elastic demands. */
/* The tables below say of each node and request only what matters. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plan_world.h"
#include "random_test.h"

static void test_devices_are_shared_on_a_node(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "GPU=4"}), (struct ask){.min = 1, .per_worker = "GPU=1"}); /* 67 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, TEXTS("0"), TEXTS("0"));
    test_done(&test);
    ask_for(&test, CLUSTER({"a", "GPU=4"}, {"b", "GPU=2"}),
            (struct ask){.min = 3, .per_worker = "GPU=2"}); /* 68 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, TEXTS("0,1,2,3", "0,1,2,3", "0,1"),
                   TEXTS("0,1", "2,3", "0,1"));
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", true, TEXTS("0,1", "2,3", "0,1"), TEXTS("0,1", "0,1", "0,1"));
    test_done(&test);
    ask_for(&test, CLUSTER({"a", "GPU=4"}, {"b", "GPU=1"}, {"c", "GPU=1"}),
            (struct ask){.min = 6, .per_worker = "GPU=1"}); /* 71 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false,
                   TEXTS("0,1,2,3", "0,1,2,3", "0,1,2,3", "0,1,2,3", "0", "0"),
                   TEXTS("0", "1", "2", "3", "0", "0"));
    test_done(&test);
    ask_for(&test, CLUSTER({"a", "CPU=4,GPU=4"}), (struct ask){.min = 2, .per_worker = "CPU=1"}); /* 73 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, TEXTS("", ""), TEXTS("", ""));
    test_done(&test);
}

static void test_parts_of_devices(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "GPU=2"}, {"b", "GPU=2"}),
            (struct ask){.min = 8, .per_worker = "GPU=0.5"}); /* 74 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, NULL, TEXTS("0", "0", "1", "1", "0", "0", "1", "1"));
    test_done(&test);
    ask_for(&test, CLUSTER({"a", "GPU=2"}, {"b", "GPU=2"}),
            (struct ask){.min = 2, .per_worker = "GPU=2"}); /* 76 */
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, NULL, TEXTS("0,1", "0,1"));
    test_done(&test);
}

/* Devices taken by others stay out of sight; ids go by number, or as text. */
static struct cluster *named_devices(const char *const *ids, size_t n, size_t taken) {
    struct cluster *cluster = cluster_create();
    struct node_shape shape = {0};
    assert_int_equal(resources_set(&shape.total, "GPU", (quantity)n * QUANTITY_ONE), 0);
    shape.devices = calloc(1, sizeof *shape.devices);
    shape.n_devices = 1;
    *shape.devices = (struct node_devices){.resource = strdup("GPU"), .n = n, .ids = calloc(n, sizeof(char *))};
    for (size_t i = 0; i < n; i++)
        shape.devices->ids[i] = strdup(ids[i]);
    ty_error err = {0};
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, &err), 0);
    struct resources available = {0};
    assert_int_equal(resources_set(&available, "GPU", (quantity)(n - taken) * QUANTITY_ONE), 0);
    struct node_use *use = NULL;
    assert_int_equal(node_use_create(shared, &available, &use, &err), 0);
    resources_done(&available);
    assert_int_equal(cluster_add_node(cluster, "a", shared, &use, &err), 0);
    return cluster;
}

static void test_ids_are_in_order(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, named_devices(TEXTS("3", "10", "2", "7"), 4, 1),
            (struct ask){.min = 3, .per_worker = "GPU=1"});
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, TEXTS("2,7,10", "2,7,10", "2,7,10"),
                   TEXTS("0", "1", "2"));
    test_done(&test);
    ask_for(&test, named_devices(TEXTS("GPU-c", "GPU-a", "GPU-b"), 3, 0),
            (struct ask){.min = 3, .per_worker = "GPU=1"});
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false,
                   TEXTS("GPU-a,GPU-b,GPU-c", "GPU-a,GPU-b,GPU-c", "GPU-a,GPU-b,GPU-c"), TEXTS("0", "1", "2"));
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", true, TEXTS("GPU-a", "GPU-b", "GPU-c"), TEXTS("0", "0", "0"));
    test_done(&test);
}

/* Ranks of SPREAD are grouped by node, in the order in which bundles came to the nodes. */
static void test_spread_ranks(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "CPU=8,GPU=4"}, {"b", "CPU=8,GPU=8"}),
            (struct ask){.min = 4, .per_worker = "GPU=2,CPU=1", .strategy = PLACE_SPREAD});
    make_plan(&test); /* P5: bundles on 1,0,1,1 */
    static const uint32_t nodes[] = {1, 1, 1, 0}, bundles[] = {0, 2, 3, 1};
    for (size_t rank = 0; rank < 4; rank++) {
        assert_int_equal(test.plan->workers[rank].node, nodes[rank]);
        assert_int_equal(test.plan->workers[rank].bundle, bundles[rank]);
    }
    assert_int_equal(test.plan->n_nodes_used, 2);
    assert_memory_equal(test.plan->node_order, ((uint32_t[]){1, 0}), 2 * sizeof(uint32_t));
    assert_int_equal(test.plan->workers[3].node_rank, 1);
    assert_int_equal(test.plan->workers[2].local_rank, 2);
    assert_int_equal(test.plan->workers[2].local_world_size, 3);
    test_done(&test);
}

static void select_zones(struct test *test) {
    static const char *const zones[] = {"zone=west", "zone=east", "zone=!east"};
    test->demand.n_selectors = 3;
    test->demand.selectors = calloc(3, sizeof *test->demand.selectors);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(label_selector_parse(&test->demand.selectors[i], zones[i], NULL), 0);
}

static void test_a_selector_for_each_worker(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "CPU=8", .labels = "zone=east"}, {"b", "CPU=8", .labels = "zone=west"}),
            (struct ask){.min = 3, .per_worker = "CPU=1"});
    select_zones(&test);
    make_plan(&test);
    static const uint32_t nodes[] = {1, 1, 0}, bundles[] = {0, 2, 1};
    for (size_t rank = 0; rank < 3; rank++) {
        assert_int_equal(test.plan->workers[rank].node, nodes[rank]);
        assert_int_equal(test.plan->workers[rank].bundle, bundles[rank]);
    }
    test_done(&test);
}

/* What no node could have is refused by its number, and no memory is asked for it. */
static void test_more_devices_than_memory(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "GPU=8", .labels = "zone=east"}, {"b", "GPU=8", .labels = "zone=west"}),
            (struct ask){.min = 3, .per_worker = "GPU=100000000000000"});
    select_zones(&test);
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_INFEASIBLE);
    assert_string_equal(test.plan->shorts[0].resource, "GPU");
    test_done(&test);
}

/* A worker that holds no device sees none, whatever the trainer beside rank 0 holds. */
static void test_the_trainers_device_is_seen_by_rank_0(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "CPU=8,GPU=4"}),
            (struct ask){.min = 2, .per_worker = "CPU=1", .trainer = "GPU=1"});
    make_plan(&test);
    expect_visible(&test, "CUDA_VISIBLE_DEVICES", false, TEXTS("0", ""), NULL);
    test_done(&test);
}

/* ---- elastic ---- */

static void expect_workers(struct cluster *cluster, struct ask ask, size_t n) {
    struct test test;
    ask_for(&test, cluster, ask);
    make_plan(&test);
    assert_int_equal(test.plan->n_workers, n);
    assert_int_equal(test.plan->verdict == PLAN_FEASIBLE, n > 0);
    assert_true(n > 0 ? test.plan->reason == NULL : test.plan->reason != NULL);
    test_done(&test);
}

static void test_elastic(void **state) {
    (void)state;
    /* 106 */
    expect_workers(ALIKE(1, .total = "CPU=1", .available = "CPU=0.5"), (struct ask){1, 8, "CPU=0.1"}, 5);
    expect_workers(ALIKE(1, .total = "CPU=1"), (struct ask){1, 8, "CPU=0.2"}, 5);
    expect_workers(ALIKE(1, .total = "CPU=1", .available = "CPU=0.9"), (struct ask){1, 8, "CPU=0.3"}, 3);
    expect_workers(ALIKE(1, .total = "CPU=4", .available = "CPU=3.9"), (struct ask){1, 8, "CPU=1"}, 3);
    expect_workers(ALIKE(1, .total = "CPU=1"), (struct ask){1, 8, ""}, 8);
    /* 107 */
    static const size_t nodes[] = {3, 4, 5, 64, 69}, workers[] = {0, 4, 5, 64, 64};
    for (size_t i = 0; i < 5; i++)
        expect_workers(ALIKE(nodes[i], .total = "CPU=8,GPU=1"), (struct ask){4, 64, "CPU=8,GPU=1"}, workers[i]);
    expect_workers(ALIKE(2, .total = "CPU=4"), (struct ask){1, 100, "CPU=1", .strategy = PLACE_STRICT_PACK}, 4);
    expect_workers(ALIKE(2, .total = "CPU=4"), (struct ask){1, 100, "CPU=1", .strategy = PLACE_STRICT_SPREAD},
                   2);
    expect_workers(ALIKE(2, .total = "CPU=4"), (struct ask){1, 100, "CPU=2", "CPU=1"},
                   3); /* the trainer takes a place */
    expect_workers(ALIKE(2, .total = "CPU=4"), (struct ask){4, 100, "CPU=2", "CPU=1"}, 0);
}

static void test_local_mode(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, ALIKE(1, .total = "CPU=1"), (struct ask){.per_worker = "CPU=1"});
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_FEASIBLE);
    assert_int_equal(test.plan->n_workers, 0);
    struct buffer out = {0};
    plan_format_text(test.plan, test.cluster, &test.demand, false, &out);
    plan_format_json(test.plan, test.cluster, &test.demand, &out);
    assert_false(out.failed);
    buffer_done(&out);
    test_done(&test);
}

/* ---- random demands: the most that fits is what trying every number finds ---- */

static void random_test(struct test *test) {
    static const char *const totals[] = {"CPU=8,GPU=4", "CPU=3", "CPU=16,GPU=2", "CPU=5,GPU=1"};
    static const char *const wanted[] = {"CPU=1", "CPU=2,GPU=1",     "GPU=0.5",
                                         "CPU=3", "CPU=0.5,GPU=0.3", "GPU=2"};
    struct node_text nodes[7] = {{0}};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    uint32_t n = 1 + below(6);
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = (struct node_text){.name = names[i],
                                      .total = totals[below(4)],
                                      .available = below(4) ? NULL : "CPU=2",
                                      .labels = below(2) ? "zone=a" : NULL};
    struct ask ask = {
        .min = 1 + below(4), .per_worker = wanted[below(6)], .strategy = (enum placement_strategy)below(4)};
    ask.max = ask.min + below(30);
    if (below(3) == 0) ask.trainer = "CPU=1";
    if (below(4) == 0) ask.selector = "zone=a";
    ask_for(test, cluster_of(nodes), ask);
}

static bool fits_exactly(const struct test *test, size_t n) {
    struct test fixed = *test;
    fixed.demand.min_workers = fixed.demand.max_workers = n;
    make_plan(&fixed);
    bool fits = fixed.plan->n_workers == n;
    plan_destroy(fixed.plan);
    return fits;
}

static void check_plan(const struct test *test) {
    const struct plan *plan = test->plan;
    uint32_t node_rank = 0, local_rank = 0;
    for (size_t rank = 0; rank < plan->n_workers; rank++) {
        const struct plan_worker *worker = &plan->workers[rank];
        if (rank && worker->node != plan->workers[rank - 1].node) node_rank++, local_rank = 0;
        assert_int_equal(worker->node_rank, node_rank);
        assert_int_equal(worker->local_rank, local_rank++);
        assert_int_equal(plan->node_order[node_rank], worker->node);
        assert_true(local_rank <= worker->local_world_size);
    }
    if (plan->n_workers) assert_int_equal(plan->n_nodes_used, node_rank + 1);
}

static void test_random_demands(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        seed_in_test = seed;
        dice_seed(&dice, seed);
        struct test test;
        random_test(&test);
        make_plan(&test);
        size_t most = test.demand.max_workers;
        while (most >= test.demand.min_workers && !fits_exactly(&test, most))
            most--;
        assert_int_equal(test.plan->n_workers, most >= test.demand.min_workers ? most : 0);
        check_plan(&test);
        char *json = json_of(&test);
        json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        if (test.plan->verdict != PLAN_FEASIBLE)
            assert_true(strlen(json_string_value(json_object_get(root, "reason"))) > 20);
        json_decref(root);
        free(json);
        test_done(&test);
    }
    seed_in_test = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_shared_on_a_node),
        cmocka_unit_test(test_parts_of_devices),
        cmocka_unit_test(test_ids_are_in_order),
        cmocka_unit_test(test_spread_ranks),
        cmocka_unit_test(test_a_selector_for_each_worker),
        cmocka_unit_test(test_more_devices_than_memory),
        cmocka_unit_test(test_the_trainers_device_is_seen_by_rank_0),
        cmocka_unit_test(test_elastic),
        cmocka_unit_test(test_local_mode),
        cmocka_unit_test_teardown(test_random_demands, tell_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
