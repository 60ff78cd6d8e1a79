#include "gang_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plan_world.h"
#include <cmocka.h>

void gang_init(struct test_gang *test, enum placement_strategy strategy) {
    *test = (struct test_gang){0};
    test->gang =
        (struct gang){.kinds = test->kinds, .kind_of = test->kind_of, .strategy = strategy, .soft_target = -1};
}

void gang_add(struct test_gang *test, int n, const char *resources) {
    size_t kind = test->gang.n_kinds++;
    test->resources[kind] = parse_resources(resources);
    test->kinds[kind].resources = &test->resources[kind];
    while (n-- > 0)
        test->kind_of[test->gang.n++] = (uint32_t)kind;
}

void gang_done(struct test_gang *test) {
    for (size_t i = 0; i < test->gang.n_kinds; i++)
        resources_done(&test->resources[i]);
}

int gang_place(struct planner *planner, struct test_gang *test) {
    assert_true(gang_stride(&test->gang) <= MAX_STRIDE);
    return planner_place(planner, &test->gang, test->node_of, test->positions);
}

void gang_release(struct planner *planner, struct test_gang *test) {
    planner_release(planner, &test->gang, test->node_of, test->positions);
}
