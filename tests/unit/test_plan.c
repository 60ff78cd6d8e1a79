/* Plans: ranks, devices and what each worker sees of them (spec/train-api.md 8, vectors 55 to 76, 106, 107),
 * TPU slices, elastic demands, refusals in words, and the JSON of DESIGN.md 5.3. */
/* The tables below say of each node and request only what matters. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan.h"
#include "placement/ranks.h"

/* ---- ranks ---- */

/* Nodes and lowest device of each bundle -> bundles in rank order, as "2,3,0,1". */
static const char *order_of(const uint32_t *nodes, const int64_t *devices, size_t n, int64_t first_node) {
    static char text[128];
    struct rank_key keys[16] = {{0, NULL}};
    uint32_t order[16];
    for (size_t i = 0; i < n && devices; i++)
        keys[i].number = devices[i];
    assert_int_equal(ranks_order(nodes, keys, n, 8, first_node, order), 0);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? "," : "", order[i]);
    return text;
}

#define U32(...) ((const uint32_t[]){__VA_ARGS__})
#define I64(...) ((const int64_t[]){__VA_ARGS__})

static void test_rank_order(void **state) {
    (void)state;
    assert_string_equal(order_of(U32(1, 0, 1, 0), I64(1, 0, 0, 1), 4, -1), "2,0,1,3"); /* 56 */
    assert_string_equal(order_of(U32(2, 3, 1, 4, 2, 3, 1, 3, 2, 4), NULL, 10, 1),
                        "2,6,0,4,8,1,5,7,3,9");                                                 /* 58 */
    assert_string_equal(order_of(U32(2, 2, 1, 1, 2, 1, 1, 2), NULL, 8, -1), "0,1,4,7,2,3,5,6"); /* 59 */
    assert_string_equal(order_of(U32(2, 1, 1, 2), I64(1, 1, 0, 0), 4, -1), "3,0,2,1");          /* 61 */
    assert_string_equal(order_of(U32(0, 0), I64(10, 2), 2, -1), "1,0");
    assert_string_equal(order_of(U32(5), NULL, 1, 99), "0"); /* a first node that has no worker */
}

/* Ids that are no numbers go as text. */
static void test_rank_order_by_text(void **state) {
    (void)state;
    const struct rank_key keys[] = {{0, "GPU-b"}, {0, "GPU-10"}, {0, "GPU-2"}};
    uint32_t order[3];
    assert_int_equal(ranks_order(U32(0, 0, 0), keys, 3, 1, -1, order), 0);
    assert_memory_equal(order, U32(1, 2, 0), sizeof order);
}

static void expect_places(const uint32_t *nodes, size_t n, size_t group, const struct rank_place *expected) {
    struct rank_place places[16];
    ranks_locate(nodes, n, group, places);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(places[i].node_rank, expected[i].node_rank);
        assert_int_equal(places[i].local_rank, expected[i].local_rank);
        assert_int_equal(places[i].local_world_size, expected[i].local_world_size);
    }
}

static void test_rank_places(void **state) {
    (void)state;
    const struct rank_place two_nodes[] = {{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    expect_places(U32(7, 7, 3, 3), 4, 0, two_nodes); /* 62 */
    const struct rank_place groups[] = {{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2},
                                        {0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    expect_places(U32(0, 0, 1, 1, 1, 1, 2, 2), 8, 4, groups); /* 64 */
    const struct rank_place replaced[] = {{0, 0, 1}, {1, 0, 1}};
    expect_places(U32(4, 5), 2, 2, replaced); /* 65 */
}

/* ---- clusters and demands ---- */

static struct resources parse(const char *text) {
    struct resources resources = {0};
    ty_error err = {0};
    if (*text && resources_parse(&resources, text, &err) < 0) fail_msg("%s: %s", text, err.message);
    return resources;
}

struct node_text {
    const char *name, *total, *available, *type, *labels; /* labels: "k=v,k=v" */
};

static int set_label(void *shape, char *piece) {
    char *value = strchr(piece, '=');
    *value++ = '\0';
    return labels_set(&((struct node_shape *)shape)->labels, piece, value, NULL);
}

static void set_labels(struct node_shape *shape, const char *labels) {
    char *copy = strdup(labels);
    for (char *rest = copy, *piece; (piece = strsep(&rest, ","));)
        assert_int_equal(set_label(shape, piece), 0);
    free(copy);
}

static struct cluster *cluster_of(const struct node_text *nodes) {
    struct cluster *cluster = cluster_create();
    for (; nodes->name; nodes++) {
        ty_error err = {0};
        struct node_shape shape = {.total = parse(nodes->total)};
        if (nodes->type) shape.accelerator_type = strdup(nodes->type);
        if (nodes->labels) set_labels(&shape, nodes->labels);
        const struct node_shape *shared = cluster_shape(cluster, &shape, &err);
        if (!shared) fail_msg("%s: %s", nodes->name, err.message);
        struct node_use *use = NULL;
        if (nodes->available) {
            struct resources available = parse(nodes->available);
            assert_int_equal(node_use_create(shared, &available, &use, &err), 0);
            resources_done(&available);
        }
        assert_int_equal(cluster_add_node(cluster, nodes->name, shared, &use, &err), 0);
    }
    return cluster;
}

#define CLUSTER(...) cluster_of((const struct node_text[]){__VA_ARGS__, {0}})

struct ask {
    size_t min, max;
    const char *per_worker, *trainer, *selector;
    enum placement_strategy strategy;
};

struct test {
    struct cluster *cluster;
    struct demand demand;
    struct plan *plan;
};

static void ask_for(struct test *test, struct cluster *cluster, struct ask ask) {
    *test = (struct test){.cluster = cluster};
    struct demand *demand = &test->demand;
    demand->min_workers = ask.min;
    demand->max_workers = ask.max ? ask.max : ask.min;
    demand->elastic = ask.max != 0;
    demand->per_worker = parse(ask.per_worker);
    if (ask.trainer) demand->trainer = parse(ask.trainer);
    demand->strategy = ask.strategy;
    if (!ask.selector) return;
    demand->n_selectors = 1;
    demand->selectors = calloc(1, sizeof *demand->selectors);
    assert_int_equal(label_selector_parse(demand->selectors, ask.selector, NULL), 0);
}

static void make_plan(struct test *test) {
    ty_error err = {0};
    assert_int_equal(plan_make(test->cluster, &test->demand, &test->plan, &err), 0);
}

static void test_done(struct test *test) {
    plan_destroy(test->plan);
    demand_done(&test->demand);
    cluster_destroy(test->cluster);
}

/* ---- devices ---- */

struct variable {
    const char *name;
    char value[128];
};

static int keep_variable(void *context, const char *name, const char *value) {
    struct variable *variable = context;
    if (value && !strcmp(name, variable->name))
        (void)snprintf(variable->value, sizeof variable->value, "%s", value);
    return 0;
}

static void expect_visible(const struct test *test, const char *variable_name, bool own,
                           const char *const *visible, const char *const *devices) {
    for (size_t rank = 0; rank < test->plan->n_workers; rank++) {
        struct variable variable = {.name = variable_name};
        assert_int_equal(
            plan_worker_environment(test->plan, test->cluster, rank, own, keep_variable, &variable), 0);
        if (visible) assert_string_equal(variable.value, visible[rank]);
        struct buffer out = {0};
        plan_worker_devices(test->plan, test->cluster, rank, own, &out);
        buffer_char(&out, '\0');
        if (devices) assert_string_equal(out.data, devices[rank]);
        buffer_done(&out);
    }
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__})

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
    const struct node_shape *shared = cluster_shape(cluster, &shape, &err);
    assert_non_null(shared);
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
    assert_memory_equal(test.plan->node_order, U32(1, 0), 2 * sizeof(uint32_t));
    assert_int_equal(test.plan->workers[3].node_rank, 1);
    assert_int_equal(test.plan->workers[2].local_rank, 2);
    assert_int_equal(test.plan->workers[2].local_world_size, 3);
    test_done(&test);
}

static void test_a_selector_for_each_worker(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "CPU=8", .labels = "zone=east"}, {"b", "CPU=8", .labels = "zone=west"}),
            (struct ask){.min = 3, .per_worker = "CPU=1"});
    test.demand.n_selectors = 3;
    test.demand.selectors = calloc(3, sizeof *test.demand.selectors);
    static const char *const zones[] = {"zone=west", "zone=east", "zone=!east"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(label_selector_parse(&test.demand.selectors[i], zones[i], NULL), 0);
    make_plan(&test);
    static const uint32_t nodes[] = {1, 1, 0}, bundles[] = {0, 2, 1};
    for (size_t rank = 0; rank < 3; rank++) {
        assert_int_equal(test.plan->workers[rank].node, nodes[rank]);
        assert_int_equal(test.plan->workers[rank].bundle, bundles[rank]);
    }
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

static struct cluster *alike(size_t n, const char *total, const char *available) {
    struct node_text nodes[70] = {{0}};
    char names[70][24];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "n%zu", i);
        nodes[i] = (struct node_text){.name = names[i], .total = total, .available = available};
    }
    return cluster_of(nodes);
}

static void test_elastic(void **state) {
    (void)state;
    /* 106 */
    expect_workers(alike(1, "CPU=1", "CPU=0.5"), (struct ask){1, 8, "CPU=0.1"}, 5);
    expect_workers(alike(1, "CPU=1", NULL), (struct ask){1, 8, "CPU=0.2"}, 5);
    expect_workers(alike(1, "CPU=1", "CPU=0.9"), (struct ask){1, 8, "CPU=0.3"}, 3);
    expect_workers(alike(1, "CPU=4", "CPU=3.9"), (struct ask){1, 8, "CPU=1"}, 3);
    expect_workers(alike(1, "CPU=1", NULL), (struct ask){1, 8, ""}, 8);
    /* 107 */
    static const size_t nodes[] = {3, 4, 5, 64, 69}, workers[] = {0, 4, 5, 64, 64};
    for (size_t i = 0; i < 5; i++)
        expect_workers(alike(nodes[i], "CPU=8,GPU=1", NULL), (struct ask){4, 64, "CPU=8,GPU=1"}, workers[i]);
    expect_workers(alike(2, "CPU=4", NULL), (struct ask){1, 100, "CPU=1", .strategy = PLACE_STRICT_PACK}, 4);
    expect_workers(alike(2, "CPU=4", NULL), (struct ask){1, 100, "CPU=1", .strategy = PLACE_STRICT_SPREAD}, 2);
    expect_workers(alike(2, "CPU=4", NULL), (struct ask){1, 100, "CPU=2", "CPU=1"},
                   3); /* the trainer takes a place */
    expect_workers(alike(2, "CPU=4", NULL), (struct ask){4, 100, "CPU=2", "CPU=1"}, 0);
}

static void test_local_mode(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, alike(1, "CPU=1", NULL), (struct ask){.per_worker = "CPU=1"});
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

/* ---- TPU slices ---- */

enum { MAX_HOSTS = 20 };

/* Nodes of v6e-16 slices: "b0" is host 0 of slice b, in the order given; 4 chips and 8 CPUs each. */
static struct cluster *tpu_cluster(const char *const *hosts, const char *busy) {
    struct node_text nodes[MAX_HOSTS] = {{0}};
    char labels[MAX_HOSTS][160];
    for (size_t i = 0; hosts[i]; i++) {
        (void)snprintf(labels[i], sizeof labels[i],
                       "ray.io/tpu-slice-name=slice-%c,ray.io/tpu-worker-id=%s,ray.io/tpu-pod-type=v6e-16,"
                       "ray.io/tpu-topology=4x4",
                       hosts[i][0], hosts[i] + 1);
        nodes[i] = (struct node_text){hosts[i], "CPU=8,TPU=4", NULL, "TPU-V6E", labels[i]};
        if (busy && !strcmp(busy, hosts[i])) nodes[i].available = "TPU=3";
    }
    return cluster_of(nodes);
}

static void ask_for_slices(struct test *test, struct cluster *cluster, size_t min, size_t max,
                           const char *per_worker, int64_t workers_per_slice) {
    ask_for(test, cluster, (struct ask){.min = min, .max = max, .per_worker = per_worker});
    test->demand.tpu = (struct tpu_demand){.topology = strdup("4x4"),
                                           .generation = strdup("v6e"),
                                           .pod_type = strdup("v6e-16"),
                                           .chips_per_host = 4,
                                           .hosts_per_slice = 4,
                                           .chips_per_slice = 16,
                                           .workers_per_slice = workers_per_slice};
}

/* Names of the workers' nodes, in rank order. */
static const char *nodes_of(const struct test *test) {
    static char text[256];
    text[0] = '\0';
    for (size_t i = 0, at = 0; i < test->plan->n_workers; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "",
                               test->cluster->nodes[test->plan->workers[i].node].name);
    return text;
}

static void expect_slices(const char *const *hosts, const char *busy, size_t min, size_t max,
                          const char *per_worker, int64_t workers_per_slice, const char *nodes) {
    struct test test;
    ask_for_slices(&test, tpu_cluster(hosts, busy), min, max, per_worker, workers_per_slice);
    make_plan(&test);
    assert_string_equal(nodes_of(&test), nodes);
    if (test.plan->n_workers == 0) assert_non_null(test.plan->reason);
    for (size_t i = 0; i < test.plan->n_workers; i++)
        assert_int_equal(test.plan->workers[i].slice, i / (size_t)workers_per_slice);
    test_done(&test);
}

static void test_slices_are_whole(void **state) {
    (void)state;
    const char *const two[] = {"b2", "b0", "b1", "b3", "a0", "a1", "a3", "a2", NULL};
    expect_slices(two, NULL, 8, 0, "TPU=4,CPU=1", 4,
                  "a0 a1 a2 a3 b0 b1 b2 b3");                        /* by name, hosts by worker id */
    expect_slices(two, NULL, 4, 0, "TPU=4,CPU=1", 4, "b0 b1 b2 b3"); /* the first head node's slice */
    expect_slices(two, NULL, 4, 0, "TPU=2,CPU=1", 4, "b0 b1 b2 b3"); /* H: one worker a host */
    expect_slices(two, NULL, 8, 0, "TPU=2,CPU=1", 8, "b0 b0 b1 b1 b2 b2 b3 b3"); /* W */
    expect_slices(two, "b3", 4, 0, "TPU=4,CPU=1", 4, "a0 a1 a2 a3");             /* a busy chip */
    expect_slices(two, "b3", 8, 0, "TPU=4,CPU=1", 4, "");
    expect_slices(TEXTS("b0", "b1", "b2", NULL), NULL, 4, 0, "TPU=4", 4, "");       /* a host is missing */
    expect_slices(TEXTS("b4", "b1", "b2", "b3", NULL), NULL, 4, 0, "TPU=4", 4, ""); /* no worker 0 */
    expect_slices(TEXTS("b0", "b1", "a2", "a3", NULL), NULL, 4, 0, "TPU=4", 4, ""); /* halves of two */
}

/* Vector 55: nodes and intact slices -> workers, for 4 to 12. */
static void test_elastic_slices(void **state) {
    (void)state;
    static const struct {
        const char *hosts[13];
        const char *nodes;
    } cases[] = {
        {{NULL}, ""},
        {{"a0", "a1", "a2"}, ""},
        {{"a0", "a1", "a2", "a3"}, "a0 a1 a2 a3"},
        {{"a0", "a1", "a2", "a3", "b1", "b2", "b3", "c0"}, "a0 a1 a2 a3"},
        {{"a0", "a1", "a2", "a3", "b1", "b2", "b3", "b0"}, "a0 a1 a2 a3 b0 b1 b2 b3"},
        {{"a0", "a1", "a2", "a3", "b1", "b2", "b3", "b0", "c0", "c1", "c2", "c3"},
         "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_slices(cases[i].hosts, NULL, 4, 12, "TPU=4", 4, cases[i].nodes);
}

/* A topology of one host needs neither head nor slice name. */
static void test_single_host_slices(void **state) {
    (void)state;
    struct test test;
    struct cluster *cluster = CLUSTER({"x", "CPU=8,TPU=8", .labels = "ray.io/tpu-pod-type=v6e-8"},
                                      {"y", "CPU=8,TPU=8", .labels = "ray.io/tpu-pod-type=v6e-16"},
                                      {"w", "CPU=8,TPU=8", .labels = "ray.io/tpu-pod-type=v6e-8"});
    ask_for(&test, cluster, (struct ask){.min = 4, .per_worker = "TPU=4,CPU=1"});
    test.demand.tpu = (struct tpu_demand){strdup("2x4"), strdup("v6e"), strdup("v6e-8"), 8, 1, 8, 2};
    make_plan(&test);
    assert_string_equal(nodes_of(&test), "w w x x");
    assert_string_equal(test.plan->slices[0].name, "w");
    /* A chip is open in one process only: no worker sees another one's, asked for or not. */
    const char *const *chips = TEXTS("0,1,2,3", "4,5,6,7", "0,1,2,3", "4,5,6,7");
    expect_visible(&test, "TPU_VISIBLE_CHIPS", true, chips, NULL);
    expect_visible(&test, "TPU_VISIBLE_CHIPS", false, chips, NULL);
    test_done(&test);
}

/* The trainer needs room beside rank 0, on the first slice by name. */
static void test_trainer_beside_a_slice(void **state) {
    (void)state;
    struct test test;
    ask_for_slices(&test, tpu_cluster(TEXTS("b0", "b1", "b2", "b3", "a0", "a1", "a2", "a3", NULL), NULL), 4, 0,
                   "TPU=4,CPU=2", 4);
    test.demand.trainer = parse("CPU=7");
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_INFEASIBLE);
    assert_string_equal(test.plan->shorts[0].resource, "CPU");
    assert_int_equal(test.plan->shorts[0].need, 9 * QUANTITY_ONE);
    resources_done(&test.demand.trainer);
    test.demand.trainer = parse("CPU=6");
    plan_destroy(test.plan);
    make_plan(&test);
    assert_string_equal(nodes_of(&test), "b0 b1 b2 b3");
    test_done(&test);
}

/* ---- refusals ---- */

static void expect_refusal(struct cluster *cluster, struct ask ask, enum plan_verdict verdict,
                           const char *reason, const char *shorts) {
    struct test test;
    ask_for(&test, cluster, ask);
    make_plan(&test);
    assert_int_equal(test.plan->verdict, verdict);
    assert_int_equal(test.plan->n_workers, 0);
    assert_string_equal(test.plan->reason, reason);
    struct buffer out = {0};
    for (size_t i = 0; i < test.plan->n_shorts; i++) {
        buffer_printf(&out, "%s%s ", i ? ", " : "", test.plan->shorts[i].resource);
        quantity_format(test.plan->shorts[i].need, &out);
        buffer_char(&out, '/');
        quantity_format(test.plan->shorts[i].have, &out);
    }
    buffer_char(&out, '\0');
    assert_string_equal(out.data, shorts);
    buffer_clear(&out);
    plan_format_text(test.plan, test.cluster, &test.demand, false, &out);
    buffer_char(&out, '\0');
    assert_non_null(strstr(out.data, reason));
    buffer_done(&out);
    test_done(&test);
}

static void test_refusals_of_one_worker(void **state) {
    (void)state;
    expect_refusal(CLUSTER({"a", "CPU=8"}, {"b", "CPU=4"}), (struct ask){.min = 2, .per_worker = "CPU=9"},
                   PLAN_INFEASIBLE,
                   "no node has CPU 9: the most is 8 on node a; ask for at most 8 CPU per worker", "CPU 9/8");
    expect_refusal(CLUSTER({"a", "CPU=8", "CPU=3"}, {"b", "CPU=2"}),
                   (struct ask){.min = 1, .per_worker = "CPU=4"}, PLAN_BUSY,
                   "no node has CPU 4 free: the most is 3 on node a; ask for at most 3 CPU per worker",
                   "CPU 4/3");
    expect_refusal(CLUSTER({"a", "GPU=8", .type = "A100"}, {"b", "GPU=8", .type = "A100"}),
                   (struct ask){.min = 1, .per_worker = "GPU=1,accelerator_type:H100=0.001"}, PLAN_INFEASIBLE,
                   "no node has accelerator type H100: the types here are A100 (2 nodes)",
                   "accelerator_type:H100 0.001/0");
    expect_refusal(CLUSTER({"a", "CPU=8"}), (struct ask){.min = 1, .per_worker = "CPU=1,GPU=2"},
                   PLAN_INFEASIBLE, "no node has GPU 2: there is no GPU on any; add nodes with GPU 2",
                   "GPU 2/0");
    expect_refusal(
        CLUSTER({"a", "CPU=8,GPU=1"}, {"b", "CPU=2,GPU=4"}),
        (struct ask){.min = 1, .per_worker = "CPU=8,GPU=4"}, PLAN_INFEASIBLE,
        "no node has CPU 8, GPU 4 together: node a comes nearest, with GPU 1; ask for no more than that "
        "per worker",
        "GPU 4/1");
    expect_refusal(
        CLUSTER({"a", "CPU=8", .labels = "zone=a"}),
        (struct ask){.min = 1, .per_worker = "CPU=1", .selector = "zone=b"}, PLAN_INFEASIBLE,
        "no node has the labels zone b: zone here is a (1 node); change the selector or label a node so",
        "CPU 1/0");
    expect_refusal(
        CLUSTER({"a", "CPU=8"}), (struct ask){.min = 1, .per_worker = "CPU=8", .trainer = "CPU=1"},
        PLAN_INFEASIBLE,
        "no node has CPU 9 for worker 0 and the trainer: the most is 8 on node a; ask for at most 8 CPU "
        "for the two",
        "CPU 9/8");
    expect_refusal(CLUSTER({"a", "GPU=4"}), (struct ask){.min = 1, .per_worker = "GPU=1", .trainer = "GPU=0.5"},
                   PLAN_INFEASIBLE,
                   "GPU 1.5 of worker 0 and the trainer is more than one device but not whole: ask for 1 or 2 "
                   "GPU for the two",
                   "GPU 1.5/1");
    expect_refusal(CLUSTER({"a", "CPU=8"}), (struct ask){.min = 1, .per_worker = "CPU=1", .selector = "zone=b"},
                   PLAN_INFEASIBLE,
                   "no node has the labels zone b: zone is on no node; change the selector or label a node so",
                   "CPU 1/0");
    expect_refusal(cluster_create(), (struct ask){.min = 2, .per_worker = "CPU=1"}, PLAN_INFEASIBLE,
                   "there are no nodes: add some, or leave out --cluster to use this machine", "CPU 2/0");
}

static void test_refusals_of_all_workers(void **state) {
    (void)state;
    expect_refusal(
        CLUSTER({"a", "GPU=4"}, {"b", "GPU=2"}), (struct ask){.min = 4, .per_worker = "GPU=2"}, PLAN_INFEASIBLE,
        "4 workers of GPU 2 need 8 GPU, the cluster has 6: use at most 3 workers or add 2 GPU", "GPU 8/6");
    expect_refusal(CLUSTER({"a", "GPU=4", "GPU=2"}, {"b", "GPU=4"}),
                   (struct ask){.min = 4, .per_worker = "GPU=2"}, PLAN_BUSY,
                   "4 workers of GPU 2 need 8 GPU, the cluster has 6 free: use at most 3 workers or add 2 GPU",
                   "GPU 8/6");
    expect_refusal(
        CLUSTER({"a", "CPU=4"}, {"b", "CPU=4"}), (struct ask){.min = 3, .max = 9, .per_worker = "CPU=3"},
        PLAN_INFEASIBLE,
        "at least 3 workers of CPU 3 need 9 CPU, the cluster has 8: use at most 2 workers or add 1 CPU",
        "CPU 9/8");
    expect_refusal(
        CLUSTER({"a", "CPU=5"}, {"b", "CPU=5"}), (struct ask){.min = 3, .per_worker = "CPU=3"}, PLAN_INFEASIBLE,
        "3 workers of CPU 3 do not fit on single nodes, only 2 do: use at most 2 workers or less CPU per "
        "worker",
        "CPU 9/6");
    expect_refusal(
        CLUSTER({"a", "CPU=8"}, {"b", "CPU=8"}),
        (struct ask){.min = 9, .per_worker = "CPU=1", .strategy = PLACE_STRICT_PACK}, PLAN_INFEASIBLE,
        "STRICT_PACK wants all of 9 workers of CPU 1 on one node: the most that one holds is 8; use at "
        "most 8 workers or the strategy PACK",
        "CPU 9/8");
    expect_refusal(
        CLUSTER({"a", "CPU=8"}, {"b", "CPU=8"}),
        (struct ask){.min = 3, .per_worker = "CPU=1", .strategy = PLACE_STRICT_SPREAD}, PLAN_INFEASIBLE,
        "STRICT_SPREAD wants 3 nodes, one for each worker, and 2 can hold one: use at most 2 workers or "
        "the strategy SPREAD",
        "nodes 3/2");
    expect_refusal(CLUSTER({"a", "CPU=10", "CPU=4"}), (struct ask){.min = 2, .per_worker = "CPU=4"}, PLAN_BUSY,
                   "2 workers of CPU 4 need 8 CPU, the cluster has 4 free: use at most 1 worker or add 4 CPU",
                   "CPU 8/4"); /* P16 */
    expect_refusal(
        CLUSTER({"a", "GPU=4", .type = "A100", .labels = "zone=a"}, {"b", "GPU=4", .type = "A100"}),
        (struct ask){.min = 5, .per_worker = "GPU=1,accelerator_type:A100=0.001", .selector = "zone=a"},
        PLAN_INFEASIBLE,
        "5 workers of GPU 1, type A100 need 5 GPU, the nodes of type A100 with zone a have 4: use at most 4 "
        "workers or add 1 GPU",
        "GPU 5/4");
    expect_refusal(
        CLUSTER({"a", "CPU=2000", .type = "T4"}),
        (struct ask){.min = 1001, .per_worker = "CPU=1,accelerator_type:T4=0.001"}, PLAN_INFEASIBLE,
        "1001 workers of CPU 1, type T4 need 1.001 accelerator_type:T4, the nodes of type T4 have 1: use at "
        "most 1000 workers or add a node of type T4",
        "accelerator_type:T4 1.001/1");
}

static void test_refusals_of_slices(void **state) {
    (void)state;
    static const struct {
        const char *hosts[13], *reason;
    } cases[] = {
        {{NULL},
         "no TPU slice of v6e-16 (topology 4x4) is here: no node carries the label ray.io/tpu-pod-type"},
        {{"a0", "a1", "a2", "b0", "b1", "b2", "b3"},
         "2 whole slices of v6e-16 (topology 4x4) are needed, 1 is here, and slice slice-a has 12 of 16 chips: "
         "use at "
         "most 4 workers or add a slice"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct test test;
        ask_for_slices(&test, tpu_cluster(cases[i].hosts, NULL), 8, 0, "TPU=4", 4);
        make_plan(&test);
        assert_int_equal(test.plan->verdict, PLAN_INFEASIBLE);
        assert_string_equal(test.plan->reason, cases[i].reason);
        test_done(&test);
    }
    struct test test;
    ask_for_slices(&test, tpu_cluster(TEXTS("a0", "a1", "a2", "a3", NULL), "a2"), 4, 0, "TPU=4", 4);
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_BUSY);
    test_done(&test);
    ask_for_slices(&test, tpu_cluster(TEXTS("a0", "a1", "a2", "a3", NULL), NULL), 2, 0, "TPU=8", 2);
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_INFEASIBLE);
    assert_string_equal(test.plan->reason,
                        "slice slice-a has 4 hosts of TPU 4, among which 2 workers of TPU 8 cannot be divided: "
                        "ask for TPU 4 per worker");
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

/* ---- JSON and drawing ---- */

static const char expected_json[] = "{\n"
                                    "  \"feasible\": true,\n"
                                    "  \"per_worker\": {\"CPU\": 4, \"GPU\": 2},\n"
                                    "  \"total\": {\"CPU\": 9, \"GPU\": 4},\n"
                                    "  \"trainer\": {\"CPU\": 1},\n"
                                    "  \"workers\": [\n"
                                    "    {\"rank\": 0, \"node\": \"n1\", \"node_rank\": 0, \"local_rank\": 0, "
                                    "\"local_world_size\": 2, \"devices\": {\"GPU\": [0, 1]}, "
                                    "\"env\": {\"CUDA_VISIBLE_DEVICES\": \"0,1,2,3\"}},\n"
                                    "    {\"rank\": 1, \"node\": \"n1\", \"node_rank\": 0, \"local_rank\": 1, "
                                    "\"local_world_size\": 2, \"devices\": {\"GPU\": [2, 3]}, "
                                    "\"env\": {\"CUDA_VISIBLE_DEVICES\": \"0,1,2,3\"}}\n"
                                    "  ],\n"
                                    "  \"slices\": [],\n"
                                    "  \"reason\": null,\n"
                                    "  \"short\": []\n"
                                    "}\n";

static char *json_of(const struct test *test) {
    struct buffer out = {0};
    plan_format_json(test->plan, test->cluster, &test->demand, &out);
    buffer_char(&out, '\0');
    return buffer_take(&out);
}

static void test_json_of_a_plan(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"n1", "CPU=64,GPU=8"}),
            (struct ask){.min = 2, .per_worker = "CPU=4,GPU=2", .trainer = "CPU=1"});
    make_plan(&test);
    char *text = json_of(&test);
    assert_string_equal(text, expected_json);
    free(text);
    test_done(&test);
}

static void test_json_of_a_refusal(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"a", "CPU=8"}), (struct ask){.min = 2, .per_worker = "CPU=9"});
    make_plan(&test);
    char *text = json_of(&test);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_true(json_is_false(json_object_get(root, "feasible")));
    assert_string_equal(json_string_value(json_object_get(root, "verdict")), "infeasible");
    assert_int_equal(json_array_size(json_object_get(root, "workers")), 0);
    const json_t *item = json_array_get(json_object_get(root, "short"), 0);
    assert_string_equal(json_string_value(json_object_get(item, "resource")), "CPU");
    assert_int_equal(json_integer_value(json_object_get(item, "need")), 9);
    assert_int_equal(json_integer_value(json_object_get(item, "have")), 8);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "total"), "CPU")), 18);
    json_decref(root);
    free(text);
    test_done(&test);
}

static void test_drawing(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, CLUSTER({"gpu01", "CPU=64,GPU=4", "GPU=3"}, {"g2", "CPU=64,GPU=4"}),
            (struct ask){.min = 3, .per_worker = "CPU=4,GPU=2"});
    make_plan(&test);
    struct buffer out = {0};
    plan_format_text(test.plan, test.cluster, &test.demand, false, &out);
    buffer_char(&out, '\0');
    assert_string_equal(out.data, "3 workers on 2 nodes (PACK), each CPU 4, GPU 2\n"
                                  "\n"
                                  "  g2     GPU [0][0][1][1]  CPU 8 of 64  ranks 0-1\n"
                                  "  gpu01  GPU [#][2][2][.]  CPU 4 of 64  rank 2\n"
                                  "\n"
                                  "  [.] stays free, [#] taken by others\n");
    buffer_done(&out);
    test_done(&test);
}

static void test_a_long_drawing_is_cut(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, alike(60, "CPU=2", NULL), (struct ask){.min = 120, .per_worker = "CPU=1"});
    make_plan(&test);
    struct buffer out = {0};
    plan_format_text(test.plan, test.cluster, &test.demand, true, &out);
    buffer_char(&out, '\0');
    assert_non_null(strstr(out.data, "and 40 more nodes with ranks 40-119"));
    size_t lines = 0;
    for (const char *at = out.data; (at = strchr(at, '\n')); at++)
        lines++;
    assert_true(lines < 30);
    buffer_done(&out);
    test_done(&test);
}

/* ---- random demands: the most that fits is what trying every number finds ---- */

static uint64_t random_state, seed_in_test;

static uint32_t below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % n;
}

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
        random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
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

static int tell_seed(void **state) {
    (void)state;
    if (seed_in_test) print_error("failed with seed %llu\n", (unsigned long long)seed_in_test);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_order),
        cmocka_unit_test(test_rank_order_by_text),
        cmocka_unit_test(test_rank_places),
        cmocka_unit_test(test_devices_are_shared_on_a_node),
        cmocka_unit_test(test_parts_of_devices),
        cmocka_unit_test(test_ids_are_in_order),
        cmocka_unit_test(test_spread_ranks),
        cmocka_unit_test(test_a_selector_for_each_worker),
        cmocka_unit_test(test_elastic),
        cmocka_unit_test(test_local_mode),
        cmocka_unit_test(test_slices_are_whole),
        cmocka_unit_test(test_elastic_slices),
        cmocka_unit_test(test_single_host_slices),
        cmocka_unit_test(test_trainer_beside_a_slice),
        cmocka_unit_test(test_refusals_of_one_worker),
        cmocka_unit_test(test_refusals_of_all_workers),
        cmocka_unit_test(test_refusals_of_slices),
        cmocka_unit_test(test_the_trainers_device_is_seen_by_rank_0),
        cmocka_unit_test(test_json_of_a_plan),
        cmocka_unit_test(test_json_of_a_refusal),
        cmocka_unit_test(test_drawing),
        cmocka_unit_test(test_a_long_drawing_is_cut),
        cmocka_unit_test_teardown(test_random_demands, tell_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
