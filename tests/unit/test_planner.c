/* The gang planner against the vectors of spec/placement.md 6.5 and 6.6, and against random clusters: every
 * placement keeps to capacities, labels and strategy, comes whole or not at all, is the same each time, and is
 * given back to the last part. */
/* The tables below say of each node and request only what matters. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner.h"

enum { MAX_BUNDLES = 64, MAX_STRIDE = 8 };

/* ---- clusters in a line: "CPU=8,GPU=4 3x" is three alike nodes; labels after '@' ---- */

static struct resources parse(const char *text) {
    struct resources resources = {0};
    ty_error err = {0};
    if (*text && resources_parse(&resources, text, &err) < 0) fail_msg("%s: %s", text, err.message);
    return resources;
}

static void add_node(struct cluster *cluster, const char *total, const char *available, const char *key,
                     const char *value) {
    ty_error err = {0};
    struct node_shape shape = {.total = parse(total)};
    if (key) assert_int_equal(labels_set(&shape.labels, key, value, &err), 0);
    const struct node_shape *shared = cluster_shape(cluster, &shape, &err);
    if (!shared) fail_msg("%s: %s", total, err.message);
    struct node_use *use = NULL;
    if (available) {
        struct resources have = parse(available);
        assert_int_equal(node_use_create(shared, &have, &use, &err), 0);
        resources_done(&have);
    }
    char name[32];
    (void)snprintf(name, sizeof name, "n%zu", cluster->n);
    assert_int_equal(cluster_add_node(cluster, name, shared, &use, &err), 0);
}

static struct cluster *alike(int n, const char *total) {
    struct cluster *cluster = cluster_create();
    for (int i = 0; i < n; i++)
        add_node(cluster, total, NULL, NULL, NULL);
    return cluster;
}

static struct cluster *nodes_of(const char *const *totals) {
    struct cluster *cluster = cluster_create();
    for (; *totals; totals++)
        add_node(cluster, *totals, NULL, NULL, NULL);
    return cluster;
}

#define NODES(...) nodes_of((const char *const[]){__VA_ARGS__, NULL})

/* ---- gangs ---- */

struct test_gang {
    struct gang gang;
    struct resources resources[MAX_BUNDLES];
    struct bundle_kind kinds[MAX_BUNDLES];
    uint32_t kind_of[MAX_BUNDLES];
    uint32_t node_of[MAX_BUNDLES];
    uint16_t positions[MAX_BUNDLES * MAX_STRIDE];
};

static void gang_init(struct test_gang *test, enum placement_strategy strategy) {
    *test = (struct test_gang){0};
    test->gang =
        (struct gang){.kinds = test->kinds, .kind_of = test->kind_of, .strategy = strategy, .soft_target = -1};
}

static void gang_add(struct test_gang *test, int n, const char *resources) {
    size_t kind = test->gang.n_kinds++;
    test->resources[kind] = parse(resources);
    test->kinds[kind].resources = &test->resources[kind];
    while (n-- > 0)
        test->kind_of[test->gang.n++] = (uint32_t)kind;
}

static void gang_done(struct test_gang *test) {
    for (size_t i = 0; i < test->gang.n_kinds; i++)
        resources_done(&test->resources[i]);
}

static int gang_place(struct planner *planner, struct test_gang *test) {
    assert_true(gang_stride(&test->gang) <= MAX_STRIDE);
    return planner_place(planner, &test->gang, test->node_of, test->positions);
}

static void gang_release(struct planner *planner, struct test_gang *test) {
    planner_release(planner, &test->gang, test->node_of, test->positions);
}

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
    expect(alike(1, "CPU=6"), BUNDLES({1, "CPU=1"}, {1, "CPU=2"}, {1, "CPU=3"}),
           ANSWERS("0,0,0", "0,0,0", "0,0,0", "I"));
    /* P2 */
    expect(alike(1, "CPU=6"), BUNDLES({1, "CPU=1"}, {1, "CPU=2"}, {1, "CPU=3"}, {1, "CPU=5"}),
           ANSWERS("F", "F", "I", "I"));
    /* P4 */
    expect(alike(3, "CPU=8,GPU=4"), BUNDLES({6, "GPU=2,CPU=1"}),
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
    expect(alike(2, "CPU=10"), BUNDLES({15, "CPU=1"}),
           ANSWERS("0,0,0,0,0,0,0,0,0,0,1,1,1,1,1", "0,1,0,1,0,1,0,1,0,1,0,1,0,1,0", "I", "I"));
    /* P11 */
    expect(alike(3, "CPU=4"), BUNDLES({1, "CPU=5"}), ANSWERS("I", "I", "I", "I"));
    /* P13 */
    expect(alike(4, "CPU=8,TPU=4"), BUNDLES({4, "TPU=4,CPU=1"}), ANSWERS("0,1,2,3", "0,1,2,3", "I", "0,1,2,3"));
    /* P14 */
    expect(alike(2, "CPU=4,GPU=1"), BUNDLES({4, "GPU=0.5,CPU=1"}), ANSWERS("0,0,1,1", "0,1,0,1", "I", "I"));
    /* P19 */
    expect(alike(5, "CPU=10"), BUNDLES({5, "CPU=10"}), ANSWERS(NULL, NULL, "I", NULL));
    /* P31 */
    expect(alike(0, ""), BUNDLES({1, "CPU=1"}), ANSWERS("I", "I", "I", "I"));
}

static void test_vectors_of_availability(void **state) {
    (void)state;
    /* P16 */
    struct cluster *cluster = cluster_create();
    add_node(cluster, "CPU=10", "CPU=4", NULL, NULL);
    expect(cluster, BUNDLES({2, "CPU=4"}), ANSWERS("F", "F", "F", "I"));
    /* P17 */
    cluster = cluster_create();
    add_node(cluster, "CPU=8,GPU=4", "GPU=2", NULL, NULL);
    add_node(cluster, "CPU=8,GPU=4", NULL, NULL, NULL);
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
        struct cluster *cluster = alike(n, "CPU=6");
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
        add_node(cluster, "CPU=4", NULL, "zone", "west");
        add_node(cluster, "CPU=4", NULL, "zone", "east");
        add_node(cluster, "CPU=64", NULL, NULL, NULL);
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
    struct cluster *cluster = alike(2, "CPU=10");
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
    add_node(cluster, "CPU=8,GPU=4", NULL, NULL, NULL);
    for (int i = 0; i < 2; i++)
        add_node(cluster, "CPU=8,GPU=4", NULL, "gpu-domain", "rack-2");
    for (int i = 0; i < 18; i++)
        add_node(cluster, "CPU=8,GPU=4", NULL, "gpu-domain", "rack-1");
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
        struct cluster *cluster = alike(n, "CPU=6");
        struct planner *planner = planner_create(cluster, false);
        assert_string_equal(answer(planner, &test), answers[n]);
        planner_destroy(planner);
        cluster_destroy(cluster);
    }
    gang_done(&test);
}

/* ---- devices on one node: spec/placement.md 6.6 ---- */

static struct cluster *one_node(const char *total, int n, const double *free_parts) {
    struct cluster *cluster = alike(1, total);
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
    struct cluster *cluster = alike(1, "GPU=2");
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
    add_node(cluster, "CPU=10", "CPU=4", NULL, NULL);
    struct resources wanted = parse("CPU=4");
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
    struct resources wanted = parse("CPU=1,GPU=1");
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

/* ---- random clusters ---- */

static uint64_t random_state, seed_in_test;

static uint32_t below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % n;
}

static struct cluster *random_cluster(void) {
    static const char *const totals[] = {
        "CPU=8,GPU=4", "CPU=16",      "CPU=8,GPU=8,memory=1GiB", "CPU=4,GPU=2,disk=3", "CPU=64",
        "CPU=8,TPU=4", "CPU=2,GPU=1", "CPU=8,GPU=4,disk=1"};
    static const char *const zones[] = {"a", "b", "c"};
    struct cluster *cluster = cluster_create();
    uint32_t n = 1 + below(12), kinds = 1 + below(8);
    for (uint32_t i = 0; i < n; i++) {
        const char *zone = below(4) ? zones[below(3)] : NULL;
        add_node(cluster, totals[below(kinds)], below(5) ? NULL : "CPU=2", zone ? "zone" : NULL, zone);
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
    random_state = seed * UINT64_C(0xD1B54A32D192ED03) + 1;
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
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
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

static int tell_seed(void **state) {
    (void)state;
    if (seed_in_test) print_error("failed with seed %llu\n", (unsigned long long)seed_in_test);
    return 0;
}

/* Very many kinds of bundles: one selector a worker, each naming another node. */
static void test_a_selector_for_each_worker(void **state) {
    (void)state;
    enum { N = 200 };
    struct cluster *cluster = cluster_create();
    struct label_selector selectors[N] = {0};
    struct bundle_kind kinds[N];
    uint32_t kind_of[N], node_of[N];
    struct resources wanted = parse("CPU=1");
    for (uint32_t i = 0; i < N; i++) {
        char host[16];
        (void)snprintf(host, sizeof host, "h%u", i);
        add_node(cluster, "CPU=2", NULL, "host", host);
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
        cmocka_unit_test_teardown(test_random_clusters, tell_seed),
        cmocka_unit_test(test_a_selector_for_each_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
