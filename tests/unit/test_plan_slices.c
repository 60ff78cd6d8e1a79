/* Plans on TPU slices: whole ones only, elastic by slices, chips that each worker sees, and what is short in
 * words. */
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

#include "plan_world.h"

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
    test.demand.trainer = parse_resources("CPU=7");
    make_plan(&test);
    assert_int_equal(test.plan->verdict, PLAN_INFEASIBLE);
    assert_string_equal(test.plan->shorts[0].resource, "CPU");
    assert_int_equal(test.plan->shorts[0].need, 9 * QUANTITY_ONE);
    resources_done(&test.demand.trainer);
    test.demand.trainer = parse_resources("CPU=6");
    plan_destroy(test.plan);
    make_plan(&test);
    assert_string_equal(nodes_of(&test), "b0 b1 b2 b3");
    test_done(&test);
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
                        "slice slice-a has 4 hosts of 4 TPU, among which 2 workers of 8 TPU cannot be divided: "
                        "ask for 4 TPU per worker");
    test_done(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_are_whole),   cmocka_unit_test(test_elastic_slices),
        cmocka_unit_test(test_single_host_slices), cmocka_unit_test(test_trainer_beside_a_slice),
        cmocka_unit_test(test_refusals_of_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
