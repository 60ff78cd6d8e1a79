/* The gang planner against the vectors of docs/spec/placement.md 6.5 and 6.6. */
/* The tables below say of each node and request only what matters. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "gang_world.h"
#include "plan_world.h"

static struct cluster *nodes_of(const char *const *totals) {
    struct cluster *cluster = cluster_create();
    for (; *totals; totals++)
        ADD_NODE(cluster, .total = *totals);
    return cluster;
}

#define NODES(...) nodes_of((const char *const[]){__VA_ARGS__, NULL})

/* What a decision answers, as the vectors write it: "0,0,1", "F" or "I". */
static const char *answer(struct planner *planner, struct test_gang *test) {
    static char text[512];
    int result = gang_place(planner, test);
    if (result == PLANNER_BUSY) return "F";
    if (result == PLANNER_INFEASIBLE) return "I";
    assert_int_equal(result, PLANNER_PLACED);
    size_t at = 0;
    for (size_t i = 0; i < test->gang.n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? "," : "", test->node_of[i]);
    return text;
}

struct bundles {
    int n;
    const char *resources;
};

/* The four answers for one gang, in the order of enum placement_strategy. */
static void expect(struct cluster *cluster, const struct bundles *bundles, const char *const answers[4]) {
    for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
        struct planner *planner = planner_create(cluster, false);
        struct test_gang test;
        gang_init(&test, (enum placement_strategy)strategy);
        for (const struct bundles *b = bundles; b->n; b++)
            gang_add(&test, b->n, b->resources);
        if (answers[strategy]) assert_string_equal(answer(planner, &test), answers[strategy]);
        gang_done(&test);
        planner_destroy(planner);
    }
    cluster_destroy(cluster);
}

#define BUNDLES(...) ((const struct bundles[]){__VA_ARGS__, {0, NULL}})
#define ANSWERS(...) ((const char *const[4]){__VA_ARGS__})

static void test_vectors_of_placement(void **state) {
    (void)state;
    /* P1 */
    expect(ALIKE(1, .total = "CPU=6"), BUNDLES({1, "CPU=1"}, {1, "CPU=2"}, {1, "CPU=3"}),
           ANSWERS("0,0,0", "0,0,0", "0,0,0", "I"));
    /* P2 */
    expect(ALIKE(1, .total = "CPU=6"), BUNDLES({1, "CPU=1"}, {1, "CPU=2"}, {1, "CPU=3"}, {1, "CPU=5"}),
           ANSWERS("F", "F", "I", "I"));
    /* P4 */
    expect(ALIKE(3, .total = "CPU=8,GPU=4"), BUNDLES({6, "GPU=2,CPU=1"}),
           ANSWERS("0,0,1,1,2,2", "0,1,2,0,1,2", "I", "I"));
    /* P5 */
    expect(NODES("CPU=8,GPU=4", "CPU=8,GPU=8"), BUNDLES({4, "GPU=2,CPU=1"}),
           ANSWERS("1,1,1,1", "1,0,1,1", "1,1,1,1", "I"));
    /* P7 */
    expect(NODES("CPU=16", "CPU=8,GPU=2"), BUNDLES({1, "CPU=1"}, {1, "GPU=1,CPU=1"}),
           ANSWERS("1,1", "0,1", "1,1", "0,1"));
    /* P8 */
    expect(NODES("CPU=8", "CPU=2", "CPU=4"), BUNDLES({2, "CPU=2"}), ANSWERS("0,0", "0,2", "0,0", "0,2"));
    /* P10 */
    expect(ALIKE(2, .total = "CPU=10"), BUNDLES({15, "CPU=1"}),
           ANSWERS("0,0,0,0,0,0,0,0,0,0,1,1,1,1,1", "0,1,0,1,0,1,0,1,0,1,0,1,0,1,0", "I", "I"));
    /* P11 */
    expect(ALIKE(3, .total = "CPU=4"), BUNDLES({1, "CPU=5"}), ANSWERS("I", "I", "I", "I"));
    /* P13 */
    expect(ALIKE(4, .total = "CPU=8,TPU=4"), BUNDLES({4, "TPU=4,CPU=1"}),
           ANSWERS("0,1,2,3", "0,1,2,3", "I", "0,1,2,3"));
    /* P14 */
    expect(ALIKE(2, .total = "CPU=4,GPU=1"), BUNDLES({4, "GPU=0.5,CPU=1"}),
           ANSWERS("0,0,1,1", "0,1,0,1", "I", "I"));
    /* P19 */
    expect(ALIKE(5, .total = "CPU=10"), BUNDLES({5, "CPU=10"}), ANSWERS(NULL, NULL, "I", NULL));
    /* P31 */
    expect(ALIKE(0, .total = ""), BUNDLES({1, "CPU=1"}), ANSWERS("I", "I", "I", "I"));
}

static void test_vectors_of_availability(void **state) {
    (void)state;
    /* P16 */
    struct cluster *cluster = cluster_create();
    ADD_NODE(cluster, .total = "CPU=10", .available = "CPU=4");
    expect(cluster, BUNDLES({2, "CPU=4"}), ANSWERS("F", "F", "F", "I"));
    /* P17 */
    cluster = cluster_create();
    ADD_NODE(cluster, .total = "CPU=8,GPU=4", .available = "GPU=2");
    ADD_NODE(cluster, .total = "CPU=8,GPU=4");
    expect(cluster, BUNDLES({3, "GPU=1"}), ANSWERS("1,1,1", "1,0,1", "1,1,1", "I"));
    /* P26 */
    expect(NODES("CPU=2"), BUNDLES({2, "CPU=2"}), ANSWERS(NULL, NULL, NULL, "I"));
    expect(NODES("CPU=2", "CPU=1"), BUNDLES({2, "CPU=2"}), ANSWERS(NULL, NULL, NULL, "F"));
    expect(NODES("CPU=2", "CPU=1", "CPU=10"), BUNDLES({2, "CPU=2"}), ANSWERS(NULL, NULL, NULL, "2,0"));
}

/* P20: a node that hosts a bundle of the group already. */
static void test_strict_spread_excludes(void **state) {
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct cluster *cluster = ALIKE(n, .total = "CPU=6");
        struct planner *planner = planner_create(cluster, false);
        struct test_gang test;
        gang_init(&test, PLACE_STRICT_SPREAD);
        gang_add(&test, 1, "CPU=1");
        test.gang.excluded = (const uint32_t[]){0};
        test.gang.n_excluded = 1;
        assert_string_equal(answer(planner, &test), n == 1 ? "I" : "1");
        gang_done(&test);
        planner_destroy(planner);
        cluster_destroy(cluster);
    }
}

/* P22: a soft target that is too small, unknown, or good. */
static void test_soft_target(void **state) {
    (void)state;
    static const struct {
        int64_t target;
        const char *answer;
    } cases[] = {{1, "0,0"}, {7, "0,0"}, {-1, "0,0"}, {2, "2,2"}};
    for (size_t i = 0; i < 4; i++) {
        struct cluster *cluster = NODES("CPU=10", "CPU=3", "CPU=4");
        struct planner *planner = planner_create(cluster, false);
        struct test_gang test;
        gang_init(&test, PLACE_STRICT_PACK);
        gang_add(&test, 2, "CPU=2");
        test.gang.soft_target = cases[i].target;
        assert_string_equal(answer(planner, &test), cases[i].answer);
        gang_done(&test);
        planner_destroy(planner);
        cluster_destroy(cluster);
    }
}

/* P23: bundles that want different labels. */
static void test_labels(void **state) {
    (void)state;
    static const char *const answers[] = {"1,0", "1,0", "I", "1,0"};
    struct label_selector east = {0}, west = {0};
    assert_int_equal(label_selector_add(&east, "zone", "east", NULL), 0);
    assert_int_equal(label_selector_add(&west, "zone", "in(west, north)", NULL), 0);
    for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
        struct cluster *cluster = cluster_create();
        ADD_NODE(cluster, .total = "CPU=4", .labels = "zone=west");
        ADD_NODE(cluster, .total = "CPU=4", .labels = "zone=east");
        ADD_NODE(cluster, .total = "CPU=64");
        struct planner *planner = planner_create(cluster, false);
        struct test_gang test;
        gang_init(&test, (enum placement_strategy)strategy);
        gang_add(&test, 1, "CPU=1");
        gang_add(&test, 1, "CPU=1");
        test.kinds[0].selector = &east;
        test.kinds[1].selector = &west;
        assert_string_equal(answer(planner, &test), answers[strategy]);
        gang_done(&test);
        planner_destroy(planner);
        cluster_destroy(cluster);
    }
    label_selector_done(&east);
    label_selector_done(&west);
}

/* P25: ten groups one after the other. */
static void test_groups_in_turn(void **state) {
    (void)state;
    struct cluster *cluster = ALIKE(2, .total = "CPU=10");
    struct planner *planner = planner_create(cluster, false);
    int on[2] = {0, 0};
    for (int i = 0; i < 10; i++) {
        struct test_gang test;
        gang_init(&test, PLACE_STRICT_PACK);
        gang_add(&test, 2, "CPU=1");
        assert_int_equal(gang_place(planner, &test), PLANNER_PLACED);
        assert_int_equal(test.node_of[0], test.node_of[1]);
        on[test.node_of[0]]++;
        gang_done(&test);
    }
    assert_int_equal(on[0], 5);
    assert_int_equal(on[1], 5);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

/* P28 and P29: all in one domain, which must hold all. */
static void test_domains(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    ADD_NODE(cluster, .total = "CPU=8,GPU=4");
    for (int i = 0; i < 2; i++)
        ADD_NODE(cluster, .total = "CPU=8,GPU=4", .labels = "gpu-domain=rack-2");
    for (int i = 0; i < 18; i++)
        ADD_NODE(cluster, .total = "CPU=8,GPU=4", .labels = "gpu-domain=rack-1");
    struct planner *planner = planner_create(cluster, false);
    static const int sizes[] = {15, 3};
    static const int results[] = {PLANNER_PLACED, PLANNER_PLACED};
    bool taken[21] = {false};
    for (int g = 0; g < 2; g++) {
        struct test_gang test;
        gang_init(&test, PLACE_PACK);
        gang_add(&test, sizes[g], "GPU=4,CPU=2");
        test.gang.domain = "gpu-domain";
        assert_int_equal(gang_place(planner, &test), results[g]);
        for (size_t i = 0; i < test.gang.n; i++) {
            assert_true(test.node_of[i] >= 3 && !taken[test.node_of[i]]);
            taken[test.node_of[i]] = true;
        }
        gang_done(&test);
    }
    struct test_gang test;
    gang_init(&test, PLACE_PACK);
    gang_add(&test, 3, "GPU=4,CPU=2");
    test.gang.domain = "gpu-domain";
    assert_int_equal(gang_place(planner, &test),
                     PLANNER_BUSY); /* rack-1 could hold three, once others have gone */
    test.gang.domain = "row";
    assert_int_equal(gang_place(planner, &test), PLANNER_INFEASIBLE);
    test.gang.domain = "gpu-domain";
    test.gang.n = 2;
    assert_string_equal(answer(planner, &test), "1,2");
    gang_done(&test);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

/* P32: the node of a group dies, another joins. */
static void test_another_cluster(void **state) {
    (void)state;
    struct test_gang test;
    gang_init(&test, PLACE_STRICT_PACK);
    gang_add(&test, 1, "CPU=1");
    gang_add(&test, 1, "CPU=2");
    gang_add(&test, 1, "CPU=3");
    static const char *const answers[] = {"I", "0,0,0"};
    for (int n = 0; n < 2; n++) {
        struct cluster *cluster = ALIKE(n, .total = "CPU=6");
        struct planner *planner = planner_create(cluster, false);
        assert_string_equal(answer(planner, &test), answers[n]);
        planner_destroy(planner);
        cluster_destroy(cluster);
    }
    gang_done(&test);
}

/* ---- devices on one node: docs/spec/placement.md 6.6 ---- */

static struct cluster *one_node(const char *total, int n, const double *free_parts) {
    struct cluster *cluster = ALIKE(1, .total = total);
    if (!free_parts) return cluster;
    const struct node_shape *shape = cluster->nodes[0].shape;
    ty_error err = {0};
    struct node_use *use = NULL;
    struct resources all = {0};
    assert_int_equal(node_use_create(shape, &all, &use, &err), 0);
    quantity sum = 0;
    for (int i = 0; i < n; i++)
        sum += use->device_free[0][i] = (quantity)(free_parts[i] * QUANTITY_ONE + 0.5);
    assert_int_equal(resources_set(&use->available, "GPU", sum), 0);
    cluster->nodes[0].use = use;
    return cluster;
}

/* The devices granted for `demand`, as "0,1", "F" or "I"; then what is free, as "0,0.5". */
static void expect_devices(const char *total, int n, const double *free_parts, const char *demand,
                           const char *granted, const char *after) {
    struct cluster *cluster = one_node(total, n, free_parts);
    struct planner *planner = planner_create(cluster, false);
    struct test_gang test;
    gang_init(&test, PLACE_PACK);
    gang_add(&test, 1, demand);
    int result = gang_place(planner, &test);
    char text[128] = "";
    for (size_t i = 0, at = 0; i < gang_stride(&test.gang) && result == PLANNER_PLACED; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? "," : "", test.positions[i]);
    if (result != PLANNER_PLACED) (void)strcpy(text, result == PLANNER_BUSY ? "F" : "I");
    assert_string_equal(text, granted);
    struct buffer out = {0};
    for (int i = 0; i < n; i++) {
        if (i) buffer_char(&out, ',');
        size_t gpu = 0;
        while (strcmp(cluster->nodes[0].shape->total.items[gpu].name, "GPU"))
            gpu++;
        quantity_format(planner_device_free(planner, 0, gpu, (size_t)i), &out);
    }
    buffer_char(&out, '\0');
    assert_string_equal(out.data, after);
    buffer_done(&out);
    gang_done(&test);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

#define PARTS(...) ((const double[]){__VA_ARGS__})

static void test_vectors_of_devices(void **state) {
    (void)state;
    expect_devices("GPU=4", 4, NULL, "GPU=2", "0,1", "0,0,1,1");                    /* F1 */
    expect_devices("GPU=4", 4, PARTS(0, 0, 1, 1), "GPU=3", "F", "0,0,1,1");         /* F2 */
    expect_devices("GPU=4", 4, PARTS(0, 0, 0.6, 1), "GPU=0.7", "3", "0,0,0.6,0.3"); /* F4 */
    expect_devices("GPU=4", 4, PARTS(0, 0, 0.6, 0.3), "GPU=0.3", "3", "0,0,0.6,0"); /* F5 */
    expect_devices("GPU=2", 2, PARTS(0.5, 1), "GPU=1", "1", "0.5,0");               /* F7 */
    expect_devices("GPU=1", 1, NULL, "GPU=1.5", "I", "1");                          /* F8 */
    expect_devices("GPU=4", 4, NULL, "GPU=1.5", "I", "1,1,1,1");
    expect_devices("CPU=4,GPU=4", 4, PARTS(1, 0, 0, 1), "CPU=1,GPU=3", "F", "1,0,0,1"); /* F10 */
    expect_devices("GPU=2", 2, PARTS(0.1, 0.5), "GPU=0.1", "0", "0,0.5");               /* F14 */
    expect_devices("GPU=2", 2, PARTS(0.5, 0.5), "GPU=1", "F", "0.5,0.5"); /* a whole one is not two halves */
    expect_devices("GPU=2", 2, PARTS(0.4, 0.4), "GPU=0.5", "F", "0.4,0.4");
}

/* F11: ten workers of a tenth, then one of a half; and back again in another order. */
static void test_fractions_fill_one_device_first(void **state) {
    (void)state;
    struct cluster *cluster = ALIKE(1, .total = "GPU=2");
    struct planner *planner = planner_create(cluster, false);
    struct test_gang tenths, half;
    gang_init(&tenths, PLACE_PACK);
    gang_add(&tenths, 10, "GPU=0.1");
    gang_init(&half, PLACE_PACK);
    gang_add(&half, 1, "GPU=0.5");
    assert_int_equal(gang_place(planner, &tenths), PLANNER_PLACED);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(tenths.positions[i], 0);
    assert_int_equal(gang_place(planner, &half), PLANNER_PLACED);
    assert_int_equal(half.positions[0], 1);
    assert_int_equal(planner_free(planner, 0, 0), QUANTITY_ONE / 2);
    gang_release(planner, &tenths);
    assert_int_equal(planner_device_free(planner, 0, 0, 0), QUANTITY_ONE);
    assert_int_equal(planner_device_free(planner, 0, 0, 1), QUANTITY_ONE / 2);
    gang_done(&tenths);
    gang_done(&half);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

/* L10, L11 and an alias of an accelerator type. */
static void test_types_are_resources(void **state) {
    (void)state;
    expect(NODES("CPU=2"), BUNDLES({1, "CPU=1,object_store_memory=1"}), ANSWERS("I", "I", "I", "I"));
    expect(NODES("GPU=2"), BUNDLES({1, "GPU=1,accelerator_type:A100=0.001"}), ANSWERS("I", "I", "I", "I"));
    expect(NODES("GPU=2", "GPU=2,accelerator_type:A100=1"), BUNDLES({1, "GPU=1,accelerator_type:A100=0.001"}),
           ANSWERS("1", "1", "1", "1"));
    expect(NODES("GPU=2", "GPU=2,accelerator_type:AMD-Instinct-MI308X=1"),
           BUNDLES({1, "GPU=1,accelerator_type:AMD-Instinct-MI308X-OAM=0.001"}), ANSWERS("1", "1", "1", "1"));
}

static void test_idle_ignores_use(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    ADD_NODE(cluster, .total = "CPU=10", .available = "CPU=4");
    struct resources wanted = parse_resources("CPU=4");
    struct bundle_kind kind = {.resources = &wanted};
    for (int idle = 0; idle < 2; idle++) {
        struct planner *planner = planner_create(cluster, idle);
        assert_int_equal(planner_capacity(planner, &kind, PLACE_PACK, 100), idle ? 2 : 1);
        planner_destroy(planner);
    }
    resources_done(&wanted);
    cluster_destroy(cluster);
}

static void test_capacity(void **state) {
    (void)state;
    static const int64_t expected[] = {7, 7, 4, 2};
    struct cluster *cluster = NODES("CPU=16,GPU=4", "CPU=3,GPU=4", "CPU=64");
    struct planner *planner = planner_create(cluster, false);
    struct resources wanted = parse_resources("CPU=1,GPU=1");
    struct bundle_kind kind = {.resources = &wanted};
    for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
        assert_int_equal(planner_capacity(planner, &kind, (enum placement_strategy)strategy, 100),
                         expected[strategy]);
        assert_int_equal(planner_capacity(planner, &kind, (enum placement_strategy)strategy, 1), 1);
    }
    resources_done(&wanted);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

/* Very many kinds of bundles: one selector a worker, each naming another node. */
static void test_a_selector_for_each_worker(void **state) {
    (void)state;
    enum { N = 200 };
    struct cluster *cluster = cluster_create();
    struct label_selector selectors[N] = {0};
    struct bundle_kind kinds[N];
    uint32_t kind_of[N], node_of[N];
    struct resources wanted = parse_resources("CPU=1");
    for (uint32_t i = 0; i < N; i++) {
        char host[16], label[32];
        (void)snprintf(host, sizeof host, "h%u", i);
        (void)snprintf(label, sizeof label, "host=%s", host);
        ADD_NODE(cluster, .total = "CPU=2", .labels = label);
        assert_int_equal(label_selector_add(&selectors[N - 1 - i], "host", host, NULL), 0);
        kinds[i] = (struct bundle_kind){&wanted, &selectors[i]};
        kind_of[i] = i;
    }
    struct planner *planner = planner_create(cluster, false);
    for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
        struct gang gang = {.kinds = kinds, .n_kinds = N, .kind_of = kind_of, .n = N, .soft_target = -1};
        gang.strategy = (enum placement_strategy)strategy;
        int result = planner_place(planner, &gang, node_of, NULL);
        assert_int_equal(result, strategy == PLACE_STRICT_PACK ? PLANNER_INFEASIBLE : PLANNER_PLACED);
        if (result != PLANNER_PLACED) continue;
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(node_of[i], N - 1 - i);
        planner_release(planner, &gang, node_of, NULL);
    }
    for (uint32_t i = 0; i < N; i++)
        label_selector_done(&selectors[i]);
    resources_done(&wanted);
    planner_destroy(planner);
    cluster_destroy(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_placement),
        cmocka_unit_test(test_vectors_of_availability),
        cmocka_unit_test(test_strict_spread_excludes),
        cmocka_unit_test(test_soft_target),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_groups_in_turn),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_another_cluster),
        cmocka_unit_test(test_vectors_of_devices),
        cmocka_unit_test(test_fractions_fill_one_device_first),
        cmocka_unit_test(test_types_are_resources),
        cmocka_unit_test(test_idle_ignores_use),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_a_selector_for_each_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
