/* The planner and the plan when memory is short: every allocation of each scenario fails once; the answer is
 * -ENOMEM, nothing stays taken and nothing leaks. Linked with --wrap for the allocating functions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing_memory.h"
#include "placement/plan.h"
#include "placement/planner.h"

/* ---- the setting: two zones of GPU nodes, one slice; made before memory runs short ---- */

static struct cluster *cluster;

static void add_node(const char *name, const char *total, const char *const *labels) {
    ty_error err = {0};
    struct node_shape shape = {0};
    assert_int_equal(resources_parse(&shape.total, total, &err), 0);
    for (; *labels; labels += 2)
        assert_int_equal(labels_set(&shape.labels, labels[0], labels[1], &err), 0);
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, &err), 0);
    assert_int_equal(cluster_add_node(cluster, name, shared, NULL, &err), 0);
}

static int set_up(void **state) {
    (void)state;
    cluster = cluster_create();
    add_node("a", "CPU=8,GPU=4", (const char *const[]){"zone", "a", NULL});
    add_node("b", "CPU=8,GPU=4", (const char *const[]){"zone", "b", NULL});
    add_node("t", "CPU=8,TPU=8", (const char *const[]){"ray.io/tpu-pod-type", "v6e-8", NULL});
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    cluster_destroy(cluster);
    return 0;
}

/* ---- the planner ---- */

static void check_idle(const struct planner *planner) {
    for (uint32_t node = 0; node < cluster->n; node++)
        for (size_t i = 0; i < cluster->nodes[node].shape->total.n; i++)
            assert_int_equal(planner_free(planner, node, i), cluster->nodes[node].shape->total.items[i].amount);
}

/* Places with the k-th allocation failing; then the planner still works, and holds nothing of the first try. */
static int place_with_failure(const struct gang *gang, long k) {
    uint32_t node_of[4];
    uint16_t positions[16];
    struct planner *planner = planner_create(cluster, false);
    (void)memory_fails_after(k, false);
    int result = planner_place(planner, gang, node_of, positions);
    (void)memory_fails_after(-1, false);
    if (result == -ENOMEM) {
        check_idle(planner);
        assert_int_equal(planner_place(planner, gang, node_of, positions), PLANNER_PLACED);
    }
    planner_release(planner, gang, node_of, positions);
    check_idle(planner);
    planner_destroy(planner);
    return result;
}

static void test_planner(void **state) {
    (void)state;
    struct resources worker = {0}, with_trainer = {0};
    struct label_selector zone = {0};
    assert_int_equal(resources_parse(&worker, "CPU=1,GPU=1", NULL), 0);
    assert_int_equal(resources_parse(&with_trainer, "CPU=3,GPU=1", NULL), 0);
    assert_int_equal(label_selector_parse(&zone, "zone=in(a,b)", NULL), 0);
    const struct bundle_kind kinds[] = {{&with_trainer, NULL}, {&worker, &zone}};
    struct gang gang = {
        .kinds = kinds, .n_kinds = 2, .kind_of = (const uint32_t[]){0, 1}, .n = 2, .soft_target = -1};
    for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
        for (int domain = 0; domain < 2; domain++) {
            gang.strategy = (enum placement_strategy)strategy;
            gang.domain = domain ? "zone" : NULL;
            if (domain && strategy == PLACE_STRICT_SPREAD) continue; /* one node a zone */
            long k = 0;
            while (place_with_failure(&gang, k) == -ENOMEM)
                k++;
            assert_true(k > 5);
        }
    }
    resources_done(&worker);
    resources_done(&with_trainer);
    label_selector_done(&zone);
}

static void test_planner_create(void **state) {
    (void)state;
    struct planner *planner = NULL;
    for (long k = 0; !planner; k++) {
        (void)memory_fails_after(k, false);
        planner = planner_create(cluster, false);
        (void)memory_fails_after(-1, false);
    }
    planner_destroy(planner);
}

/* ---- plans ---- */

/* The plan and both of its forms, with ever later failures. */
static void exhaust(const struct demand *demand, enum plan_verdict verdict) {
    for (long k = 0;; k++) {
        struct plan *plan = NULL;
        ty_error err = {0};
        (void)memory_fails_after(k, false);
        int result = plan_make(cluster, demand, &plan, &err);
        (void)memory_fails_after(-1, false);
        if (result == 0) {
            assert_true(k > 10);
            assert_int_equal(plan->verdict, verdict);
            plan_destroy(plan);
            return;
        }
        assert_int_equal(result, -ENOMEM);
        assert_null(plan);
        assert_string_equal(err.message, "out of memory");
    }
}

static void test_plans(void **state) {
    (void)state;
    static const struct {
        const char *per_worker, *trainer;
        size_t min, max;
        enum plan_verdict verdict;
    } cases[] = {
        {"CPU=1,GPU=1", "CPU=1", 3, 3, PLAN_FEASIBLE},    {"CPU=1,GPU=2", NULL, 1, 9, PLAN_FEASIBLE},
        {"CPU=1,GPU=1", "CPU=1", 2, 90, PLAN_FEASIBLE},   {"CPU=9", NULL, 1, 1, PLAN_INFEASIBLE},
        {"CPU=3,GPU=1", NULL, 9, 9, PLAN_INFEASIBLE},     {"CPU=5,GPU=1", "CPU=1", 4, 4, PLAN_INFEASIBLE},
        {"CPU=1,nothing=1", NULL, 1, 1, PLAN_INFEASIBLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct demand demand = {.min_workers = cases[i].min, .max_workers = cases[i].max};
        assert_int_equal(resources_parse(&demand.per_worker, cases[i].per_worker, NULL), 0);
        if (cases[i].trainer) assert_int_equal(resources_parse(&demand.trainer, cases[i].trainer, NULL), 0);
        exhaust(&demand, cases[i].verdict);
        demand_done(&demand);
    }
}

static void test_plans_of_slices(void **state) {
    (void)state;
    for (size_t slices = 1; slices <= 2; slices++) {
        struct demand demand = {.min_workers = 2 * slices, .max_workers = 2 * slices};
        demand.tpu = (struct tpu_demand){strdup("2x4"), strdup("v6e"), strdup("v6e-8"), 8, 1, 8, 2};
        assert_int_equal(resources_parse(&demand.per_worker, "CPU=1,TPU=4", NULL), 0);
        exhaust(&demand, slices == 1 ? PLAN_FEASIBLE : PLAN_INFEASIBLE);
        demand_done(&demand);
    }
}

/* A text that could not be written whole says so. */
static void test_forms(void **state) {
    (void)state;
    struct demand demand = {.min_workers = 3, .max_workers = 3};
    assert_int_equal(resources_parse(&demand.per_worker, "CPU=1,GPU=1", NULL), 0);
    struct plan *plan = NULL;
    assert_int_equal(plan_make(cluster, &demand, &plan, NULL), 0);
    for (int form = 0; form < 2; form++) {
        bool failed = true;
        for (long k = 0; failed; k++) {
            struct buffer out = {0};
            (void)memory_fails_after(k, false);
            if (form)
                plan_format_text(plan, cluster, &demand, true, &out);
            else
                plan_format_json(plan, cluster, &demand, &out);
            failed = memory_fails_after(-1, false) < 0;
            assert_int_equal(out.failed, failed);
            buffer_done(&out);
        }
    }
    plan_destroy(plan);
    demand_done(&demand);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planner_create),  cmocka_unit_test(test_planner), cmocka_unit_test(test_plans),
        cmocka_unit_test(test_plans_of_slices), cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
