/* Nodes and shapes: sharing, refusals, what follows from types and TPU labels, amounts in use; and what limits
 * of the kernel make of a machine. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "cluster/cluster.h"

static struct node_shape make_shape(const char *resources) {
    struct node_shape shape = {0};
    assert_int_equal(resources_parse(&shape.total, resources, NULL), 0);
    return shape;
}

static void expect_refused(const char *resources, const char *part) {
    struct cluster *cluster = cluster_create();
    struct node_shape shape = make_shape(resources);
    ty_error err = {0};
    const struct node_shape *kept = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &kept, &err), TY_EUSAGE);
    assert_null(kept);
    assert_non_null(strstr(err.message, part));
    node_shape_done(&shape);
    cluster_destroy(cluster);
}

static void test_refused_shapes(void **state) {
    (void)state;
    expect_refused("GPU=1.5", "whole");
    expect_refused("CPU=0.5", "whole");
    expect_refused("GPU=4097", "4096");
    expect_refused("bundle=1", "bundle");
    expect_refused("node:10.0.0.1=1", "node:");
    expect_refused("gpu=1", "GPU");
}

static void test_refused_names(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    struct node_shape shape = make_shape("CPU=1");
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    char *longest = calloc(1, 4097);
    ty_error err = {0};
    memset(longest, 'n', 4096);
    assert_int_equal(cluster_add_node(cluster, "", shared, NULL, &err), TY_EUSAGE);
    assert_int_equal(cluster_add_node(cluster, "a\nb", shared, NULL, &err), TY_EUSAGE);
    assert_int_equal(cluster_add_node(cluster, longest, shared, NULL, &err), TY_EUSAGE);
    longest[4095] = '\0';
    assert_int_equal(cluster_add_node(cluster, longest, shared, NULL, &err), 0);
    assert_int_equal(cluster_add_node(cluster,
                                      "n\xc3\xb6"
                                      "de",
                                      shared, NULL, &err),
                     0);
    assert_int_equal(cluster_add_node(cluster, longest, shared, NULL, &err), TY_EUSAGE);
    assert_int_equal(cluster->n, 2);
    free(longest);
    cluster_destroy(cluster);
}

static void test_shapes_are_shared(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    const struct node_shape *first = NULL;
    for (int i = 0; i < 100; i++) {
        struct node_shape shape = make_shape(i % 2 == 0 ? "CPU=64,GPU=8,disk=0" : "CPU=64,GPU=4");
        assert_int_equal(labels_set(&shape.labels, "zone", "a", NULL), 0);
        const struct node_shape *shared = NULL;
        assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
        assert_int_equal(shape.total.n, 0);
        if (i == 0) first = shared;
        assert_int_equal(shared == first, i % 2 == 0);
    }
    assert_false(resources_has(&first->total, "disk"));
    assert_int_equal(first->n_devices, 1);
    assert_int_equal(first->devices[0].n, 8);
    char number[24];
    assert_string_equal(node_device_id(&first->devices[0], 7, number), "7");
    cluster_destroy(cluster);
}

/* Of thousands of machines that are alike but for their cards each has a shape that is found at once. */
static void test_cards_of_their_own(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    const struct node_shape *shared[3];
    static char *const uuids[][2] = {{"GPU-1", "GPU-2"}, {"GPU-3", "GPU-4"}, {"GPU-1", "GPU-2"}};
    for (size_t i = 0; i < 3; i++) {
        struct node_shape shape = make_shape("CPU=64,GPU=2");
        struct node_devices *devices = node_shape_add_devices(&shape, "GPU", 2);
        assert_int_equal(node_devices_name(devices, NULL, uuids[i], NULL), 0);
        assert_int_equal(cluster_shape(cluster, &shape, &shared[i], NULL), 0);
    }
    assert_ptr_equal(shared[0], shared[2]);
    assert_ptr_not_equal(shared[0], shared[1]);
    assert_true(node_shape_hash(shared[0]) != node_shape_hash(shared[1]));
    cluster_destroy(cluster);
}

static void test_many_nodes(void **state) {
    (void)state;
    enum { N = 50000 };
    struct cluster *cluster = cluster_create();
    struct node_shape shape = make_shape("CPU=1");
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    char name[32];
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(cluster_add_node(cluster, name, shared, NULL, NULL), 0);
    }
    for (int i = 0; i < N; i += 997) {
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_string_equal(cluster->nodes[i].name, name);
        assert_int_equal(cluster_add_node(cluster, name, shared, NULL, NULL), TY_EUSAGE);
    }
    assert_int_equal(cluster->n, N);
    cluster_destroy(cluster);
}

static void test_type(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    struct node_shape shape = make_shape("CPU=1,GPU=1");
    shape.accelerator_type = strdup("AMD-Instinct-MI308X-OAM");
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    assert_int_equal(resources_get(&shared->total, "accelerator_type:AMD-Instinct-MI308X-OAM"), QUANTITY_ONE);
    assert_int_equal(resources_get(&shared->total, "accelerator_type:AMD-Instinct-MI308X"), QUANTITY_ONE);
    assert_string_equal(labels_get(&shared->labels, "ray.io/accelerator-type"), "AMD-Instinct-MI308X-OAM");

    shape = make_shape("GPU=1");
    shape.accelerator_type = strdup("Odd GPU (rev. 2)"); /* no label value, but a type */
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    assert_int_equal(resources_get(&shared->total, "accelerator_type:Odd GPU (rev. 2)"), QUANTITY_ONE);
    assert_null(labels_get(&shared->labels, "ray.io/accelerator-type"));
    cluster_destroy(cluster);
}

static const struct node_shape *tpu_host(struct cluster *cluster, const char *pod, const char *worker,
                                         ty_error *err) {
    struct node_shape shape = make_shape("TPU=4");
    shape.accelerator_type = strdup("TPU-V4");
    assert_int_equal(labels_set(&shape.labels, "ray.io/tpu-slice-name", "my-tpu", NULL), 0);
    assert_int_equal(labels_set(&shape.labels, "ray.io/tpu-pod-type", pod, NULL), 0);
    if (worker != NULL) assert_int_equal(labels_set(&shape.labels, "ray.io/tpu-worker-id", worker, NULL), 0);
    const struct node_shape *shared = NULL;
    (void)cluster_shape(cluster, &shape, &shared, err);
    node_shape_done(&shape);
    return shared;
}

static void test_tpu_host(void **state) { /* docs/spec/accelerators.md 2.7, T31 and T32 */
    (void)state;
    struct cluster *cluster = cluster_create();
    ty_error err = {0};
    const struct node_shape *host = tpu_host(cluster, "v4-16", "0", NULL);
    assert_int_equal(resources_get(&host->total, "my-tpu"), QUANTITY_ONE);
    assert_int_equal(resources_get(&host->total, "TPU-v4-16-head"), QUANTITY_ONE);
    host = tpu_host(cluster, "v4-16", "1", NULL);
    assert_int_equal(resources_get(&host->total, "my-tpu"), QUANTITY_ONE);
    assert_false(resources_has(&host->total, "TPU-v4-16-head"));
    host = tpu_host(cluster, "tpu7x-16", "0", NULL);
    assert_true(resources_has(&host->total, "TPU-v7x-16-head"));
    host = tpu_host(cluster, "v4-16", NULL, NULL);
    assert_false(resources_has(&host->total, "my-tpu"));
    assert_null(tpu_host(cluster, "v4-16", "first", &err));
    assert_non_null(strstr(err.message, "tpu-worker-id"));
    assert_null(tpu_host(cluster, "v-8", "0", &err));
    assert_non_null(strstr(err.message, "tpu-pod-type"));
    cluster_destroy(cluster);
}

static void test_use(void **state) {
    (void)state;
    struct cluster *cluster = cluster_create();
    struct node_shape shape = make_shape("CPU=8,GPU=4,disk=2");
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    struct resources available = {0};
    struct node_use *use = NULL;
    ty_error err = {0};

    assert_int_equal(resources_parse(&available, "GPU=5", NULL), 0);
    assert_int_equal(node_use_create(shared, &available, &use, &err), TY_EUSAGE);
    resources_done(&available);
    assert_int_equal(resources_parse(&available, "disc=1", NULL), 0);
    assert_int_equal(node_use_create(shared, &available, &use, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "did you mean disk?"));
    resources_done(&available);
    assert_null(use);

    assert_int_equal(resources_parse(&available, "GPU=1.5,disk=0", NULL), 0);
    assert_int_equal(node_use_create(shared, &available, &use, &err), 0);
    const quantity left[] = {0, 0, QUANTITY_ONE / 2, QUANTITY_ONE};
    assert_memory_equal(use->device_free[0], left, sizeof left);
    assert_int_equal(cluster_add_node(cluster, "n", shared, &use, NULL), 0);
    assert_null(use);
    assert_int_equal(node_available(&cluster->nodes[0], "CPU"), 8 * QUANTITY_ONE);
    assert_int_equal(node_available(&cluster->nodes[0], "GPU"), 3 * QUANTITY_ONE / 2);
    assert_int_equal(node_available(&cluster->nodes[0], "disk"), 0);
    assert_int_equal(node_available(&cluster->nodes[0], "other"), 0);
    resources_done(&available);
    cluster_destroy(cluster);
}

/* -- limits of the kernel, in trees made here -- */

static char tree[PATH_MAX];

static int make_tree(void **state) {
    (void)state;
    (void)snprintf(tree, sizeof tree, "%s", "/tmp/trainyard-test-XXXXXX");
    return mkdtemp(tree) == NULL ? -1 : 0;
}

static int remove_tree(void **state) {
    (void)state;
    char command[PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", tree);
    return system(command);
}

static void write_file(const char *path, const char *text) {
    char full[2 * PATH_MAX];
    (void)snprintf(full, sizeof full, "%s%s", tree, path);
    *strrchr(full, '/') = '\0';
    assert_int_equal(file_make_directories(full, 0755, NULL), 0);
    full[strlen(full)] = '/';
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_no_limits(void **state) {
    (void)state;
    assert_int_equal(usable_quota_cores(tree, 8), 8);
    assert_int_equal(usable_memory(tree), 0);
    write_file("/proc/meminfo", "MemTotal:       1024 kB\nMemFree: 5 kB\n");
    write_file("/proc/self/cgroup", "0::/a/b\n");
    assert_int_equal(usable_memory(tree), 1024 * 1024);
    assert_int_equal(usable_quota_cores(tree, 8), 8);
    assert_true(usable_affinity_cores() >= 1);
    assert_true(usable_memory("") > 0);
}

static void test_limits_v2(void **state) {
    (void)state;
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/proc/meminfo", "MemTotal:       1024 kB\n");
    write_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    write_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_int_equal(usable_quota_cores(tree, 8), 8);
    write_file("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"); /* set on the parent */
    write_file("/sys/fs/cgroup/a/memory.max", "524288\n");
    assert_int_equal(usable_quota_cores(tree, 8), 3);
    assert_int_equal(usable_quota_cores(tree, 2), 2);
    assert_int_equal(usable_memory(tree), 524288);
    write_file("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    assert_int_equal(usable_quota_cores(tree, 8), 1);
}

static void test_limits_v1(void **state) {
    (void)state;
    write_file("/proc/meminfo", "MemTotal:       1024 kB\n");
    write_file("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"); /* seen from inside a container */
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "4096\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(usable_quota_cores(tree, 8), 2);
    assert_int_equal(usable_memory(tree), 4096);
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(usable_quota_cores(tree, 8), 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_refused_names),
        cmocka_unit_test(test_shapes_are_shared),
        cmocka_unit_test(test_cards_of_their_own),
        cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_type),
        cmocka_unit_test(test_tpu_host),
        cmocka_unit_test(test_use),
        cmocka_unit_test_setup_teardown(test_no_limits, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(test_limits_v2, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(test_limits_v1, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
