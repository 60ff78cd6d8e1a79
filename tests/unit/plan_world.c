#include "plan_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resources parse_resources(const char *text) {
    struct resources resources = {0};
    ty_error err = {0};
    if (*text && resources_parse(&resources, text, &err) < 0) fail_msg("%s: %s", text, err.message);
    return resources;
}

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

void add_node(struct cluster *cluster, const struct node_text *node) {
    ty_error err = {0};
    struct node_shape shape = {.total = parse_resources(node->total)};
    if (node->type) shape.accelerator_type = strdup(node->type);
    if (node->labels) set_labels(&shape, node->labels);
    const struct node_shape *shared = NULL;
    if (cluster_shape(cluster, &shape, &shared, &err) < 0) fail_msg("%s: %s", node->total, err.message);
    struct node_use *use = NULL;
    if (node->available) {
        struct resources available = parse_resources(node->available);
        assert_int_equal(node_use_create(shared, &available, &use, &err), 0);
        resources_done(&available);
    }
    char name[32];
    (void)snprintf(name, sizeof name, "n%zu", cluster->n);
    assert_int_equal(cluster_add_node(cluster, node->name ? node->name : name, shared, &use, &err), 0);
}

struct cluster *cluster_of(const struct node_text *nodes) {
    struct cluster *cluster = cluster_create();
    for (; nodes->total; nodes++)
        add_node(cluster, nodes);
    return cluster;
}

struct cluster *alike_nodes(size_t n, const struct node_text *node) {
    struct cluster *cluster = cluster_create();
    while (n-- > 0)
        add_node(cluster, node);
    return cluster;
}

void ask_for(struct test *test, struct cluster *cluster, struct ask ask) {
    *test = (struct test){.cluster = cluster};
    struct demand *demand = &test->demand;
    demand->min_workers = ask.min;
    demand->max_workers = ask.max ? ask.max : ask.min;
    demand->elastic = ask.max != 0;
    demand->per_worker = parse_resources(ask.per_worker);
    if (ask.trainer) demand->trainer = parse_resources(ask.trainer);
    demand->strategy = ask.strategy;
    if (ask.domain) demand->domain = strdup(ask.domain);
    if (!ask.selector) return;
    demand->n_selectors = 1;
    demand->selectors = calloc(1, sizeof *demand->selectors);
    assert_int_equal(label_selector_parse(demand->selectors, ask.selector, NULL), 0);
}

void make_plan(struct test *test) {
    ty_error err = {0};
    assert_int_equal(plan_make(test->cluster, &test->demand, &test->plan, &err), 0);
}

void test_done(struct test *test) {
    plan_destroy(test->plan);
    demand_done(&test->demand);
    cluster_destroy(test->cluster);
}

char *json_of(const struct test *test) {
    struct buffer out = {0};
    plan_format_json(test->plan, test->cluster, &test->demand, &out);
    buffer_char(&out, '\0');
    return buffer_take(&out);
}

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

void expect_visible(const struct test *test, const char *variable_name, bool own, const char *const *visible,
                    const char *const *devices) {
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
