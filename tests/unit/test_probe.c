/* This machine as a node, with accelerators made up here: overrides, masks that are inherited, refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cluster/cluster.h"

/* -- the accelerator room, as this test would have it -- */

static const struct accelerator nvidia = {
    .vendor = "nvidia", .resource = "GPU", .visible = "CUDA_VISIBLE_DEVICES"};
static const struct accelerator google = {
    .vendor = "google", .resource = "TPU", .visible = "TPU_VISIBLE_CHIPS"};
static struct inventory present;

int accelerator_probe(struct inventory **inventories, size_t *n, ty_error *err) {
    (void)err;
    *inventories = &present;
    *n = present.vendor != NULL ? 1 : 0;
    return 0;
}

void accelerator_inventories_free(struct inventory *inventories, size_t n) {
    (void)inventories;
    (void)n;
}

const struct accelerator *accelerator_for(const char *resource, const char *accelerator_type) {
    (void)accelerator_type;
    return strcmp(resource, "GPU") == 0 ? &nvidia : strcmp(resource, "TPU") == 0 ? &google : NULL;
}

int accelerator_visible_entries(const char *value, struct buffer *entries) {
    if (value == NULL) return -1;
    int n = 0;
    for (; *value != '\0'; n++) {
        size_t size = strcspn(value, ",");
        buffer_append(entries, value, size);
        buffer_append(entries, "", 1);
        value += size + (value[size] == ',');
    }
    return n;
}

static struct device devices[] = {
    {.id = "GPU-a", .uuid = "GPU-a", .bus_id = "0000:01:00.0"}, {.id = "1"}, {.id = "2", .uuid = "GPU-c"}};

static int nothing_present(void **state) {
    (void)state;
    present = (struct inventory){0};
    return unsetenv("CUDA_VISIBLE_DEVICES");
}

static void three_present(void) {
    present = (struct inventory){.vendor = &nvidia, .type = "A100", .devices = devices, .n = 3};
}

/* -- probing -- */

static struct cluster_overrides with(double num_cpus, double num_gpus, const char *resources) {
    struct cluster_overrides overrides = {.num_cpus = num_cpus, .num_gpus = num_gpus};
    assert_int_equal(resources_parse(&overrides.node_resources, resources, NULL), 0);
    return overrides;
}

static struct cluster *probe(double num_cpus, double num_gpus, const char *resources) {
    struct cluster_overrides overrides = with(num_cpus, num_gpus, resources);
    struct cluster *cluster = NULL;
    ty_error err = {0};
    if (cluster_probe(&overrides, &cluster, &err) < 0) fail_msg("%s", err.message);
    resources_done(&overrides.node_resources);
    assert_int_equal(cluster->n, 1);
    assert_false(cluster->logical);
    assert_null(cluster->nodes[0].use);
    return cluster;
}

static void expect_refused(double num_cpus, double num_gpus, const char *resources, const char *part) {
    struct cluster_overrides overrides = with(num_cpus, num_gpus, resources);
    struct cluster *cluster = NULL;
    ty_error err = {0};
    assert_int_equal(cluster_probe(&overrides, &cluster, &err), TY_EUSAGE);
    if (strstr(err.message, part) == NULL) fail_msg("no \"%s\" in: %s", part, err.message);
    assert_null(cluster);
    resources_done(&overrides.node_resources);
}

static quantity total(const struct cluster *cluster, const char *resource) {
    return resources_get(&cluster->nodes[0].shape->total, resource);
}

static void expect_ids(const struct cluster *cluster, const char *ids) {
    char all[256] = "", number[24];
    assert_int_equal(cluster->nodes[0].shape->n_devices, 1);
    const struct node_devices *of = &cluster->nodes[0].shape->devices[0];
    for (size_t i = 0; i < of->n; i++) {
        if (i > 0) strcat(all, ",");
        strcat(all, node_device_id(of, i, number));
    }
    assert_string_equal(all, ids);
}

static void test_refusals(void **state) {
    (void)state;
    expect_refused(NAN, -1, "", "num_cpus");
    expect_refused(-1, INFINITY, "", "num_gpus");
    expect_refused(1.5, -1, "", "CPU must be a whole number");
    expect_refused(-1, 0.5, "", "GPU must be a whole number");
    expect_refused(-1, 4097, "", "4096");
    expect_refused(4, -1, "CPU=5", "CPU is given");
    expect_refused(-1, 4, "GPU=5", "GPU is given");
    expect_refused(-1, -1, "node:here=1", "node:");
}

static void test_bare_machine(void **state) {
    (void)state;
    struct cluster *cluster = NULL;
    char host[256] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_int_equal(cluster_probe(NULL, &cluster, NULL), 0);
    assert_string_equal(cluster->nodes[0].name, host);
    assert_int_equal(total(cluster, "CPU"), usable_quota_cores("", usable_affinity_cores()) * QUANTITY_ONE);
    assert_int_equal(total(cluster, "memory"), usable_memory("") * QUANTITY_ONE);
    assert_int_equal(cluster->nodes[0].shape->n_devices, 0);
    cluster_destroy(cluster);
}

static void test_logical(void **state) {
    (void)state;
    struct cluster *cluster = probe(64, 4, "memory=1GiB,disk=2,other=0");
    assert_int_equal(total(cluster, "CPU"), 64 * QUANTITY_ONE);
    assert_int_equal(total(cluster, "memory"), ((quantity)1 << 30) * QUANTITY_ONE);
    assert_int_equal(total(cluster, "disk"), 2 * QUANTITY_ONE);
    assert_false(resources_has(&cluster->nodes[0].shape->total, "other"));
    expect_ids(cluster, "0,1,2,3");
    cluster_destroy(cluster);
    cluster = probe(-1, -1, "TPU=2");
    expect_ids(cluster, "0,1");
    cluster_destroy(cluster);
}

static void test_real(void **state) {
    (void)state;
    three_present();
    struct cluster *cluster = probe(-1, -1, "");
    const struct node_shape *shape = cluster->nodes[0].shape;
    expect_ids(cluster, "GPU-a,1,2");
    assert_string_equal(shape->devices[0].uuids[2], "GPU-c");
    assert_string_equal(shape->devices[0].uuids[1], "");
    assert_string_equal(shape->devices[0].bus_ids[0], "0000:01:00.0");
    assert_string_equal(shape->accelerator_type, "A100");
    assert_int_equal(total(cluster, "accelerator_type:A100"), QUANTITY_ONE);
    cluster_destroy(cluster);

    cluster = probe(-1, 2, ""); /* fewer: the first ones */
    expect_ids(cluster, "GPU-a,1");
    cluster_destroy(cluster);
    cluster = probe(-1, 5, ""); /* more, as logical ones, where no mask forbids it */
    expect_ids(cluster, "GPU-a,1,2,3,4");
    cluster_destroy(cluster);
    cluster = probe(-1, 0, ""); /* none: then no type either (1.1) */
    assert_null(cluster->nodes[0].shape->accelerator_type);
    assert_false(resources_has(&cluster->nodes[0].shape->total, "GPU"));
    assert_false(resources_has(&cluster->nodes[0].shape->total, "accelerator_type:A100"));
    cluster_destroy(cluster);
}

static void test_masks(void **state) { /* docs/spec/accelerators.md 6.2, E4 and E11 */
    (void)state;
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5f,MIG-7", 1), 0);
    struct cluster *cluster = probe(-1, 3, "");
    expect_ids(cluster, "2,GPU-5f,MIG-7");
    cluster_destroy(cluster);
    cluster = probe(-1, 2, "");
    expect_ids(cluster, "2,GPU-5f");
    cluster_destroy(cluster);
    expect_refused(-1, 4, "", "Attempting to start");
    expect_refused(-1, 4, "", "CUDA_VISIBLE_DEVICES contains [2, GPU-5f, MIG-7]");

    three_present();
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "GPU-a,1,2", 1), 0);
    cluster = probe(-1, 3, "");
    expect_ids(cluster, "GPU-a,1,2");
    cluster_destroy(cluster);
    expect_refused(-1, -1, "GPU=4", "Attempting to start");

    present = (struct inventory){0};
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0); /* hidden, and nothing there to hide */
    cluster = probe(-1, 2, "");
    expect_ids(cluster, "0,1");
    cluster_destroy(cluster);
}

static void test_tpu_extras(void **state) {
    (void)state;
    present = (struct inventory){.vendor = &google, .type = "TPU-V4", .devices = devices, .n = 2};
    assert_int_equal(labels_set(&present.labels, "ray.io/tpu-slice-name", "s", NULL), 0);
    assert_int_equal(resources_set(&present.extra, "s", QUANTITY_ONE), 0);
    struct cluster *cluster = probe(-1, -1, "");
    assert_int_equal(total(cluster, "TPU"), 2 * QUANTITY_ONE);
    assert_int_equal(total(cluster, "s"), QUANTITY_ONE);
    assert_string_equal(labels_get(&cluster->nodes[0].shape->labels, "ray.io/tpu-slice-name"), "s");
    cluster_destroy(cluster);
    labels_done(&present.labels);
    resources_done(&present.extra);
}

#define TEST(name) cmocka_unit_test_setup(name, nothing_present)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_refusals), TEST(test_bare_machine), TEST(test_logical),
        TEST(test_real),     TEST(test_masks),        TEST(test_tpu_extras),
    };
    return cmocka_run_group_tests(tests, nothing_present, nothing_present);
}
