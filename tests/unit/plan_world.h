/* Clusters and demands in words, for tests of placement: a node is "CPU=8,GPU=4", a demand says only what
 * matters. What is wrong in the words themselves fails the test. */
#ifndef UNIT_PLAN_WORLD_H
#define UNIT_PLAN_WORLD_H

#include "placement/plan.h"

struct node_text {
    const char *name, *total, *available, *type, *labels; /* name: else "n" and its number; labels: "k=v,k=v" */
};

struct resources parse_resources(const char *text); /* the caller's, for resources_done; "" is none */

void add_node(struct cluster *cluster, const struct node_text *node);
#define ADD_NODE(cluster, ...) add_node(cluster, &(struct node_text){__VA_ARGS__})

/* As many as there are before one without a total. */
struct cluster *cluster_of(const struct node_text *nodes);
#define CLUSTER(...) cluster_of((const struct node_text[]){__VA_ARGS__, {0}})

struct cluster *alike_nodes(size_t n, const struct node_text *node);
#define ALIKE(n, ...) alike_nodes(n, &(struct node_text){__VA_ARGS__})

struct ask {
    size_t min, max; /* max 0: not elastic */
    const char *per_worker, *trainer, *selector;
    enum placement_strategy strategy;
    const char *domain;
};

struct test {
    struct cluster *cluster;
    struct demand demand;
    struct plan *plan;
};

void ask_for(struct test *test, struct cluster *cluster, struct ask ask); /* takes the cluster */
void make_plan(struct test *test);
char *json_of(const struct test *test); /* of the plan; for free */
void test_done(struct test *test);

#define TEXTS(...) ((const char *const[]){__VA_ARGS__})

/* Of each rank: the value of a variable of its devices, and its devices as text; NULL is not looked at. */
void expect_visible(const struct test *test, const char *variable, bool own, const char *const *values,
                    const char *const *devices);

#endif
