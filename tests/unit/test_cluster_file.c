/* Cluster files as people write them, right and wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cluster/cluster.h"

static char path[] = "/tmp/trainyard-cluster-XXXXXX";

static int make_file(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void write_text(const char *text, size_t size) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static struct cluster *read_good(const char *text) {
    struct cluster *cluster = NULL;
    ty_error err = {0};
    write_text(text, strlen(text));
    if (cluster_read(path, &cluster, &err) < 0) fail_msg("%s", err.message);
    assert_true(cluster->logical);
    return cluster;
}

static void expect_refused(const char *text, const char *place, const char *part) {
    struct cluster *cluster = NULL;
    ty_error err = {0};
    char where[128];
    write_text(text, strlen(text));
    assert_int_equal(cluster_read(path, &cluster, &err), TY_EUSAGE);
    assert_null(cluster);
    (void)snprintf(where, sizeof where, "%s:%s: ", path, place);
    if (strncmp(err.message, where, strlen(where)) != 0) fail_msg("not at %s: %s", place, err.message);
    if (strstr(err.message, part) == NULL) fail_msg("no \"%s\" in: %s", part, err.message);
}

static void test_all_keys(void **state) {
    (void)state;
    struct cluster *cluster = read_good("nodes:\n"
                                        "  - name: gpu[01-04]            # host list\n"
                                        "    resources: {CPU: 64, GPU: 8, memory: 512GiB, fast_disk: 1}\n"
                                        "    accelerator_type: A100\n"
                                        "    labels: {zone: a, rack: 7}\n"
                                        "    available: {GPU: 6}\n"
                                        "  - name: login\n"
                                        "    resources: {CPU: 4}\n"
                                        "    labels:\n");
    assert_int_equal(cluster->n, 5);
    const struct node *node = &cluster->nodes[3];
    assert_string_equal(node->name, "gpu04");
    assert_string_equal(node->shape->accelerator_type, "A100");
    assert_string_equal(labels_get(&node->shape->labels, "rack"), "7");
    assert_int_equal(resources_get(&node->shape->total, "memory"), ((quantity)512 << 30) * QUANTITY_ONE);
    assert_int_equal(resources_get(&node->shape->total, "accelerator_type:A100"), QUANTITY_ONE);
    assert_int_equal(node_available(node, "GPU"), 6 * QUANTITY_ONE);
    assert_int_equal(node->use->device_free[0][1], 0);
    assert_int_equal(node->use->device_free[0][2], QUANTITY_ONE);
    assert_ptr_equal(node->shape, cluster->nodes[0].shape);
    assert_ptr_not_equal(node->use, cluster->nodes[0].use);
    assert_null(cluster->nodes[4].use);
    cluster_destroy(cluster);
}

static void test_json(void **state) {
    (void)state;
    struct cluster *cluster =
        read_good("{\"nodes\": [{\"name\": \"a,b[1-2]\", \"resources\": {\"CPU\": 4.0, \"memory\": 1e9}}]}");
    assert_int_equal(cluster->n, 3);
    assert_string_equal(cluster->nodes[2].name, "b2");
    assert_int_equal(node_available(&cluster->nodes[2], "memory"), (quantity)1000000000 * QUANTITY_ONE);
    cluster_destroy(cluster);
}

static void test_tpu(void **state) {
    (void)state;
    struct cluster *cluster =
        read_good("nodes:\n"
                  "- {name: t0, accelerator_type: TPU-V6E, resources: {CPU: 8, TPU: 4}, labels: "
                  "{ray.io/tpu-slice-name: s1, "
                  "ray.io/tpu-worker-id: 0, ray.io/tpu-pod-type: v6e-16, ray.io/tpu-topology: 4x4}}\n"
                  "- {name: t1, accelerator_type: TPU-V6E, resources: {CPU: 8, TPU: 4}, labels: "
                  "{ray.io/tpu-slice-name: s1, "
                  "ray.io/tpu-worker-id: \"1\", ray.io/tpu-pod-type: v6e-16, ray.io/tpu-topology: 4x4}}\n");
    assert_int_equal(node_available(&cluster->nodes[0], "s1"), QUANTITY_ONE);
    assert_int_equal(node_available(&cluster->nodes[0], "TPU-v6e-16-head"), QUANTITY_ONE);
    assert_int_equal(node_available(&cluster->nodes[1], "s1"), QUANTITY_ONE);
    assert_int_equal(node_available(&cluster->nodes[1], "TPU-v6e-16-head"), 0);
    assert_int_equal(node_available(&cluster->nodes[1], "accelerator_type:TPU-V6E"), QUANTITY_ONE);
    cluster_destroy(cluster);
}

#define NODE(rest) "nodes:\n  - {name: n1, " rest "}\n"
#define AT "2:5"

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *place, *part;
    } cases[] = {
        {"nodes: []\n", "1:1", "no nodes"},
        {"nodes: 3\n", "1:8", "must be a list"},
        {"node: []\n", "1:7", "did you mean nodes?"},
        {"nodes: [n1]\n", "1:9", "list of maps"},
        {NODE("resources: {CPU: 1}, lables: {}"), AT, "did you mean labels?"},
        {"nodes:\n  - {nmae: n1, resources: {CPU: 1}}\n", AT, "did you mean name?"},
        {"nodes:\n  - {resources: {CPU: 1}}\n", AT, "name is missing"},
        {"nodes:\n  - {name: 7, resources: {CPU: 1}}\n", AT, "name must be a string"},
        {"nodes:\n  - {name: \"\", resources: {CPU: 1}}\n", AT, "a name is missing"},
        {"nodes:\n  - {name: \"n[1-\", resources: {CPU: 1}}\n", AT, "n[1-"},
        {"nodes:\n  - {name: \"n[1-5000000]\", resources: {CPU: 1}}\n", AT, "5000000 nodes"},
        {NODE("accelerator_type: A100"), AT, "resources is missing"},
        {NODE("resources: 4"), AT, "resources must be a map, not a number"},
        {NODE("resources: {CPU: true}"), AT, "CPU must be a number"},
        {NODE("resources: {CPU: [1]}"), AT, "not a list"},
        {NODE("resources: {CPU: }"), AT, "CPU must be a number"},
        {NODE("resources: {CPU: -1}"), AT, "cannot be negative"},
        {NODE("resources: {CPU: many}"), AT, "CPU"},
        {NODE("resources: {CPU: \"nan\"}"), AT, "CPU"},
        {NODE("resources: {CPU: 1e300}"), AT, "too large"},
        {NODE("resources: {GPU: 1.5}"), AT, "whole"},
        {NODE("resources: {GPU: 0.00001}"), AT, "0.0001"},
        {NODE("resources: {memory: 12XiB}"), AT, "memory"},
        {NODE("resources: {CPU: 1}, accelerator_type: [A100]"), AT, "accelerator_type must be a string"},
        {NODE("resources: {CPU: 1}, labels: a"), AT, "labels must be a map"},
        {NODE("resources: {CPU: 1}, labels: {zone: true}"), AT, "zone must be a string"},
        {NODE("resources: {CPU: 1}, labels: {zone: -spot}"), AT, "-spot"},
        {NODE("resources: {CPU: 1}, available: {GPU: 1}"), AT, "available GPU"},
        {NODE("resources: {CPU: 1}, available: {CPU: 2}"), AT, "available CPU is 2"},
        {NODE("resources: {CPU: 1}, available: {CPU: -1}"), AT, "cannot be negative"},
        {"nodes:\n  - {name: \"n[1-3]\", resources: {CPU: 1}}\n  - {name: n2, resources: {CPU: 1}}\n", "3:5",
         "n2"},
        {"nodes:\n  - {name: \"n[1-3],n2\", resources: {CPU: 1}}\n", AT, "n2"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_refused(cases[i].text, cases[i].place, cases[i].part);
}

/* Whose message is the document reader's: refused, whatever the place. */
static void test_broken_files(void **state) {
    (void)state;
    static const char nul[] = "nodes:\n  - {name: n1\0, resources: {CPU: 1}}\n";
    static const char utf16[] = "\xff\xfen\0o\0d\0e\0s\0";
    static const struct {
        const char *text;
        size_t size;
    } cases[] = {
        {"", 0},
        {"nodes: [", 8},
        {"nodes:\n  - {name: n1, resources: {CPU: .nan}}\n", 46},
        {"nodes:\n  - {name: n1, resources: {CPU: .inf}}\n", 46},
        {"nodes:\n  - {name: n1, name: n2, resources: {CPU: 1}}\n", 53},
        {"[1, 2]", 6},
        {nul, sizeof nul - 1},
        {utf16, sizeof utf16 - 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cluster *cluster = NULL;
        ty_error err = {0};
        write_text(cases[i].text, cases[i].size);
        assert_int_equal(cluster_read(path, &cluster, &err), TY_EUSAGE);
        assert_non_null(strstr(err.message, path));
        assert_null(cluster);
        assert_int_equal(cluster_read(path, &cluster, NULL), TY_EUSAGE);
    }
    struct cluster *cluster = NULL;
    ty_error err = {0};
    assert_int_equal(cluster_read("/nonexistent/cluster.yaml", &cluster, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "/nonexistent/cluster.yaml"));
}

static void test_many_entries(void **state) {
    (void)state;
    enum { N = 20000 };
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("nodes:\n", file) >= 0);
    for (int i = 0; i < N; i++)
        assert_true(fprintf(file, "  - {name: n%d, resources: {CPU: 8, GPU: %d}}\n", i, i % 3) > 0);
    assert_int_equal(fclose(file), 0);
    struct cluster *cluster = NULL;
    assert_int_equal(cluster_read(path, &cluster, NULL), 0);
    assert_int_equal(cluster->n, N);
    assert_ptr_equal(cluster->nodes[0].shape, cluster->nodes[N - N % 3].shape);
    cluster_destroy(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys),     cmocka_unit_test(test_json),
        cmocka_unit_test(test_tpu),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_broken_files), cmocka_unit_test(test_many_entries),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
