/* Plans in words: why a demand cannot be met, the JSON of docs/design.md 5.3, and the drawing. */
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
                   "no node has 9 CPU: the most is 8 on node a; ask for at most 8 CPU per worker", "CPU 9/8");
    expect_refusal(CLUSTER({"a", "CPU=8", "CPU=3"}, {"b", "CPU=2"}),
                   (struct ask){.min = 1, .per_worker = "CPU=4"}, PLAN_BUSY,
                   "no node has 4 CPU free: the most is 3 on node a; ask for at most 3 CPU per worker",
                   "CPU 4/3");
    expect_refusal(CLUSTER({"a", "GPU=8", .type = "A100"}, {"b", "GPU=8", .type = "A100"}),
                   (struct ask){.min = 1, .per_worker = "GPU=1,accelerator_type:H100=0.001"}, PLAN_INFEASIBLE,
                   "no node has accelerator type H100: the types here are A100 (2 nodes)",
                   "accelerator_type:H100 0.001/0");
    expect_refusal(CLUSTER({"a", "CPU=8"}), (struct ask){.min = 1, .per_worker = "CPU=1,GPU=2"},
                   PLAN_INFEASIBLE, "no node has 2 GPU: there is no GPU on any; add nodes with 2 GPU",
                   "GPU 2/0");
    expect_refusal(CLUSTER({"a", "CPU=8"}), (struct ask){.min = 2, .per_worker = "CPU=1,foo=0.75"},
                   PLAN_INFEASIBLE,
                   "no node has 0.75 foo: there is no foo on any; add nodes with 0.75 foo "
                   "(init(resources={\"foo\": 2}))",
                   "foo 0.75/0");
    expect_refusal(
        CLUSTER({"a", "CPU=8,GPU=1"}, {"b", "CPU=2,GPU=4"}),
        (struct ask){.min = 1, .per_worker = "CPU=8,GPU=4"}, PLAN_INFEASIBLE,
        "no node has 8 CPU, 4 GPU together: node a comes nearest, with 1 GPU; ask for no more than that "
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
        "no node has 9 CPU for worker 0 and the trainer: the most is 8 on node a; ask for at most 8 CPU "
        "for the two",
        "CPU 9/8");
    expect_refusal(CLUSTER({"a", "GPU=4"}), (struct ask){.min = 1, .per_worker = "GPU=1", .trainer = "GPU=0.5"},
                   PLAN_INFEASIBLE,
                   "1.5 GPU of worker 0 and the trainer is more than one device but not whole: ask for 1 or 2 "
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
        "4 workers of 2 GPU need 8 GPU, the cluster has 6: use at most 3 workers or add 2 GPU", "GPU 8/6");
    expect_refusal(CLUSTER({"a", "GPU=4", "GPU=2"}, {"b", "GPU=4"}),
                   (struct ask){.min = 4, .per_worker = "GPU=2"}, PLAN_BUSY,
                   "4 workers of 2 GPU need 8 GPU, the cluster has 6 free: use at most 3 workers or add 2 GPU",
                   "GPU 8/6");
    expect_refusal(
        CLUSTER({"a", "CPU=4"}, {"b", "CPU=4"}), (struct ask){.min = 3, .max = 9, .per_worker = "CPU=3"},
        PLAN_INFEASIBLE,
        "at least 3 workers of 3 CPU need 9 CPU, the cluster has 8: use at most 2 workers or add 1 CPU",
        "CPU 9/8");
    expect_refusal(
        CLUSTER({"a", "CPU=5"}, {"b", "CPU=5"}), (struct ask){.min = 3, .per_worker = "CPU=3"}, PLAN_INFEASIBLE,
        "3 workers of 3 CPU do not fit on single nodes, only 2 do: use at most 2 workers or less CPU per "
        "worker",
        "CPU 9/6");
    /* As many as a quantity counts, on each of two nodes: more workers than a number holds. */
    expect_refusal(
        CLUSTER({"a", "x=5,CPU=461168601842738"}, {"b", "x=5,CPU=461168601842738"}),
        (struct ask){.min = 3, .per_worker = "x=3,CPU=0.0001"}, PLAN_INFEASIBLE,
        "3 workers of 3 x, 0.0001 CPU do not fit on single nodes, only 2 do: use at most 2 workers or less x "
        "per worker",
        "x 9/6");
    expect_refusal(
        CLUSTER({"a", "CPU=8"}, {"b", "CPU=8"}),
        (struct ask){.min = 9, .per_worker = "CPU=1", .strategy = PLACE_STRICT_PACK}, PLAN_INFEASIBLE,
        "STRICT_PACK wants all of 9 workers of 1 CPU on one node: the most that one holds is 8; use at "
        "most 8 workers or the strategy PACK",
        "CPU 9/8");
    expect_refusal(
        CLUSTER({"a", "CPU=8"}, {"b", "CPU=8"}),
        (struct ask){.min = 3, .per_worker = "CPU=1", .strategy = PLACE_STRICT_SPREAD}, PLAN_INFEASIBLE,
        "STRICT_SPREAD wants 3 nodes, one for each worker, and 2 can hold one: use at most 2 workers or "
        "the strategy SPREAD",
        "nodes 3/2");
    expect_refusal(CLUSTER({"a", "CPU=10", "CPU=4"}), (struct ask){.min = 2, .per_worker = "CPU=4"}, PLAN_BUSY,
                   "2 workers of 4 CPU need 8 CPU, the cluster has 4 free: use at most 1 worker or add 4 CPU",
                   "CPU 8/4"); /* P16 */
    expect_refusal(
        CLUSTER({"a", "GPU=4", .type = "A100", .labels = "zone=a"}, {"b", "GPU=4", .type = "A100"}),
        (struct ask){.min = 5, .per_worker = "GPU=1,accelerator_type:A100=0.001", .selector = "zone=a"},
        PLAN_INFEASIBLE,
        "5 workers of 1 GPU, type A100 need 5 GPU, the nodes of type A100 with zone a have 4: use at most 4 "
        "workers or add 1 GPU",
        "GPU 5/4");
    expect_refusal(
        CLUSTER({"a", "CPU=2000", .type = "T4"}),
        (struct ask){.min = 1001, .per_worker = "CPU=1,accelerator_type:T4=0.001"}, PLAN_INFEASIBLE,
        "1001 workers of 1 CPU, type T4 need 1.001 accelerator_type:T4, the nodes of type T4 have 1: use at "
        "most 1000 workers or add a node of type T4",
        "accelerator_type:T4 1.001/1");
}

/* ---- JSON and drawing ---- */

/* Workers that are to share one value of a label. */
static void test_refusals_of_a_domain(void **state) {
    (void)state;
    static const struct node_text racks[] = {{"a", "GPU=4", .labels = "rack=1"},
                                             {"b", "GPU=4", "GPU=2", .labels = "rack=2"},
                                             {"c", "GPU=4", .labels = "rack=2"},
                                             {"d", "GPU=64"},
                                             {0}};
    expect_refusal(
        cluster_of(racks), (struct ask){.min = 9, .per_worker = "GPU=1", .domain = "rack"}, PLAN_INFEASIBLE,
        "9 workers of 1 GPU do not fit on nodes of one rack: rack here is 1 (1 node), 2 (2 nodes); the "
        "most that one holds is 8; use at most 8 workers or leave the label out",
        "GPU 9/8");
    expect_refusal(
        cluster_of(racks), (struct ask){.min = 8, .per_worker = "GPU=1", .domain = "rack"}, PLAN_BUSY,
        "8 workers of 1 GPU do not fit on nodes of one rack now: rack here is 1 (1 node), 2 (2 nodes); "
        "the most that one holds is 6; use at most 6 workers or leave the label out",
        "GPU 8/6");
    expect_refusal(
        cluster_of(racks),
        (struct ask){.min = 3, .per_worker = "GPU=1", .domain = "rack", .strategy = PLACE_STRICT_SPREAD},
        PLAN_INFEASIBLE,
        "STRICT_SPREAD: 3 workers of 1 GPU do not fit on nodes of one rack: rack here is 1 (1 node), 2 "
        "(2 nodes); the most that one holds is 2; use at most 2 workers or leave the label out",
        "GPU 3/2");
    expect_refusal(
        cluster_of(racks), (struct ask){.min = 1, .per_worker = "GPU=1", .domain = "row"}, PLAN_INFEASIBLE,
        "1 worker of 1 GPU do not fit on nodes of one row: row is on no node; the most that one holds "
        "is 0; leave the label out",
        "GPU 1/0");
}

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
    assert_string_equal(out.data, "3 workers on 2 nodes (PACK), each 4 CPU, 2 GPU\n"
                                  "\n"
                                  "  g2     GPU [0][0][1][1]  8 of 64 CPU  ranks 0-1\n"
                                  "  gpu01  GPU [#][2][2][.]  4 of 64 CPU  rank 2\n"
                                  "\n"
                                  "  [.] stays free, [#] taken by others\n");
    buffer_done(&out);
    test_done(&test);
}

static void test_a_long_drawing_is_cut(void **state) {
    (void)state;
    struct test test;
    ask_for(&test, ALIKE(60, .total = "CPU=2"), (struct ask){.min = 120, .per_worker = "CPU=1"});
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals_of_one_worker), cmocka_unit_test(test_refusals_of_all_workers),
        cmocka_unit_test(test_refusals_of_a_domain),   cmocka_unit_test(test_json_of_a_plan),
        cmocka_unit_test(test_json_of_a_refusal),      cmocka_unit_test(test_drawing),
        cmocka_unit_test(test_a_long_drawing_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
