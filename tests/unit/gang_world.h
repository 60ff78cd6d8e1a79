/* Gangs in words, for tests of the planner: so many bundles of "CPU=1,GPU=0.5". */
#ifndef UNIT_GANG_WORLD_H
#define UNIT_GANG_WORLD_H

#include "placement/planner.h"

enum { MAX_BUNDLES = 64, MAX_STRIDE = 8 };

struct test_gang {
    struct gang gang;
    struct resources resources[MAX_BUNDLES];
    struct bundle_kind kinds[MAX_BUNDLES];
    uint32_t kind_of[MAX_BUNDLES];
    uint32_t node_of[MAX_BUNDLES];
    uint16_t positions[MAX_BUNDLES * MAX_STRIDE];
};

void gang_init(struct test_gang *test, enum placement_strategy strategy);
void gang_add(struct test_gang *test, int n, const char *resources); /* bundles of a kind of their own */
int gang_place(struct planner *planner, struct test_gang *test);     /* as planner_place */
void gang_release(struct planner *planner, struct test_gang *test);
void gang_done(struct test_gang *test);

#endif
