/* The environment that a worker finds, per framework, on plans of a few nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/environment.h"
#include "framework/framework.h"

static const char gpu_nodes[] = "nodes:\n"
                                "  - name: n[1-2]\n"
                                "    resources: {CPU: 8, GPU: 4}\n";

static const char tpu_nodes[] =
    "nodes:\n"
    "  - name: b0\n"
    "    resources: {CPU: 8, TPU: 4}\n"
    "    accelerator_type: TPU-V4\n"
    "    labels: {ray.io/tpu-slice-name: b, ray.io/tpu-worker-id: \"0\", ray.io/tpu-topology: 2x2x1, "
    "ray.io/tpu-pod-type: v4-8}\n"
    "  - name: a0\n"
    "    resources: {CPU: 8, TPU: 4}\n"
    "    accelerator_type: TPU-V4\n"
    "    labels: {ray.io/tpu-slice-name: a, ray.io/tpu-worker-id: \"0\", ray.io/tpu-topology: 2x2x1, "
    "ray.io/tpu-pod-type: v4-8}\n";

static struct fixture {
    struct cluster *cluster;
    struct demand demand;
    struct plan *plan;
    struct framework_context context;
    struct environment found;
} fixture;

static int set(void *context, const char *name, const char *value) {
    return environment_set(context, name, value);
}

static void make_plan(const char *nodes, const ty_scaling_config *config) {
    char path[] = "/tmp/trainyard-test-XXXXXX";
    struct scaling scaling;
    ty_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, nodes, strlen(nodes)) == (ssize_t)strlen(nodes));
    (void)close(fd);
    int rc = cluster_read(path, &fixture.cluster, &err);
    (void)unlink(path);
    scaling_init(&scaling);
    if (rc == 0) rc = scaling_from_public(&scaling, config, &err);
    if (rc == 0) rc = scaling_resolve(&scaling, false, &fixture.demand, &err);
    if (rc == 0) rc = plan_make(fixture.cluster, &fixture.demand, &fixture.plan, &err);
    scaling_done(&scaling);
    if (rc != 0) fail_msg("%s", err.message);
    if (fixture.plan->verdict != PLAN_FEASIBLE) fail_msg("%s", fixture.plan->reason);
    fixture.context = (struct framework_context){.plan = fixture.plan,
                                                 .cluster = fixture.cluster,
                                                 .demand = &fixture.demand,
                                                 .run_name = "r",
                                                 .run_path = "/runs/r",
                                                 .token = "t",
                                                 .attempt = 2,
                                                 .max_failures = 3,
                                                 .master_address = "10.0.0.1",
                                                 .master_port = 4711};
}

static int drop_plan(void **state) {
    (void)state;
    environment_done(&fixture.found);
    plan_destroy(fixture.plan);
    demand_done(&fixture.demand);
    cluster_destroy(fixture.cluster);
    fixture = (struct fixture){0};
    return 0;
}

/* What worker `rank` finds beside `inherited` (NULL-terminated K=V, may be NULL). */
static void find(const char *name, size_t rank, char *const *inherited) {
    const struct framework *framework;
    ty_error err = {0};
    environment_done(&fixture.found);
    fixture.found = (struct environment){0};
    fixture.context.user_environment = inherited;
    if (inherited != NULL) assert_int_equal(environment_add(&fixture.found, inherited), 0);
    assert_int_equal(framework_find(name, &framework, &err), 0);
    assert_int_equal(framework->shared(&fixture.context, set, &fixture.found, &err), 0);
    assert_int_equal(framework->worker(&fixture.context, rank, set, &fixture.found, &err), 0);
}

static void expect(const char *name, const char *value) {
    size_t size = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < fixture.found.n; i++)
        if (strncmp(fixture.found.items[i], name, size) == 0 && fixture.found.items[i][size] == '=')
            found = fixture.found.items[i] + size + 1;
    if (value == NULL && found == NULL) return;
    if (value == NULL || found == NULL || strcmp(value, found) != 0)
        fail_msg("%s is %s, not %s", name, found != NULL ? found : "not set", value != NULL ? value : "unset");
}

static void expect_all(const char *const (*pairs)[2], size_t n) {
    for (size_t i = 0; i < n; i++)
        expect(pairs[i][0], pairs[i][1]);
}

static const ty_scaling_config four_with_gpus = {
    .num_workers = 4, .use_gpu = true, .resources_per_worker = TY_RESOURCES({"CPU", 2.5}, {"GPU", 2})};

static void test_names_of_torchrun(void **state) {
    static const char *const expected[][2] = {
        {"RANK", "2"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"NODE_RANK", "1"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "4711"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_RANK", "2"},
        {"ROLE_NAME", "default"},
        {"ROLE_WORLD_SIZE", "4"},
        {"TORCHELASTIC_RUN_ID", "r"},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCHELASTIC_ERROR_FILE", "/runs/r/logs/rank-2.error.json"},
        {"TRAINYARD_RUN", "r"},
        {"TRAINYARD_ATTEMPT", "2"},
        {"TRAINYARD_BACKEND", NULL},
        {"JAX_PLATFORMS", NULL},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
        {"MEGASCALE_NUM_SLICES", NULL},
    };
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    find(NULL, 2, NULL);
    expect_all(expected, ARRAY_SIZE(expected));
    fixture.context.max_failures = -1;
    fixture.context.backend = "gloo";
    find("plain", 2, NULL);
    expect("TORCHELASTIC_MAX_RESTARTS", "2147483647");
    expect("TRAINYARD_BACKEND", "gloo");
}

static void test_devices_of_the_node_or_own(void **state) {
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    find("plain", 1, NULL);
    expect("CUDA_VISIBLE_DEVICES", "0,1,2,3");
    expect("TRAINYARD_DEVICES", "2,3");
    expect("TRAINYARD_DEVICE_IDS", "GPU=2,3");
    fixture.context.isolate_devices = true;
    find("plain", 1, NULL);
    expect("CUDA_VISIBLE_DEVICES", "2,3");
    expect("TRAINYARD_DEVICES", "0,1");
    expect("TRAINYARD_DEVICE_IDS", "GPU=2,3");
    fixture.context.isolate_devices = false;
    find("jax", 1, NULL);
    expect("CUDA_VISIBLE_DEVICES", "2,3");
    expect("TRAINYARD_DEVICES", "0,1");
}

static void test_threads(void **state) {
    char *given[] = {"OMP_NUM_THREADS=7", NULL};
    const ty_scaling_config half = {.num_workers = 1, .resources_per_worker = TY_RESOURCES({"CPU", 0.5})};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    find("plain", 0, NULL);
    expect("OMP_NUM_THREADS", "2");
    find("plain", 0, given);
    expect("OMP_NUM_THREADS", "7");
    (void)drop_plan(NULL);
    make_plan(gpu_nodes, &half);
    find("plain", 0, NULL);
    expect("OMP_NUM_THREADS", NULL);
    expect("TRAINYARD_DEVICES", "");
    expect("TRAINYARD_DEVICE_IDS", "");
}

static void test_torch(void **state) {
    char *blocking[] = {"TORCH_NCCL_BLOCKING_WAIT=1", NULL}, *chosen[] = {"NCCL_ASYNC_ERROR_HANDLING=0", NULL};
    static const char *const frameworks[] = {"plain", "torch"};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    for (size_t i = 0; i < ARRAY_SIZE(frameworks); i++) {
        find(frameworks[i], 0, NULL);
        expect("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
        expect("RANK", "0");
        find(frameworks[i], 0, blocking);
        expect("TORCH_NCCL_ASYNC_ERROR_HANDLING", NULL);
        find(frameworks[i], 0, chosen);
        expect("TORCH_NCCL_ASYNC_ERROR_HANDLING", NULL);
    }
}

/* What JAX looks for, and Open MPI's launcher sets. */
static void test_jax_finds_the_run(void **state) {
    char *own[] = {"JAX_LOCAL_DEVICE_IDS=0", NULL};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    find("plain", 1, NULL);
    expect("JAX_COORDINATOR_ADDRESS", "10.0.0.1:4711");
    expect("OMPI_MCA_orte_hnp_uri", "");
    expect("OMPI_COMM_WORLD_SIZE", "4");
    expect("OMPI_COMM_WORLD_RANK", "1");
    expect("OMPI_COMM_WORLD_LOCAL_RANK", "1");
    expect("JAX_LOCAL_DEVICE_IDS", "2,3");
    find("jax", 1, NULL);
    expect("JAX_LOCAL_DEVICE_IDS", "0,1");
    find("jax", 1, own);
    expect("JAX_LOCAL_DEVICE_IDS", "0");
    fixture.context.master_address = "::1";
    find("plain", 1, NULL);
    expect("JAX_COORDINATOR_ADDRESS", "[::1]:4711");
}

static void test_tensorflow(void **state) {
    static const uint16_t ports[] = {1001, 1002, 1003, 1004};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    fixture.context.ports = ports;
    find("tensorflow", 2, NULL);
    expect("TF_CONFIG", "{\"cluster\": {\"worker\": [\"10.0.0.1:1001\", \"10.0.0.1:1002\", \"10.0.0.1:1003\", "
                        "\"10.0.0.1:1004\"]}, \"task\": {\"type\": \"worker\", \"index\": 2}}");
    expect("TRAINYARD_PORT", "1003");
    expect("RANK", "2");
    find("plain", 2, NULL);
    expect("TRAINYARD_PORT", "1003");
}

static void test_tensorflow_on_several_machines(void **state) {
    static const uint16_t ports[] = {1001, 1002, 1003, 1004};
    static const char *const addresses[] = {"10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::2"};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    fixture.context.ports = ports;
    fixture.context.addresses = addresses;
    find("tensorflow", 3, NULL);
    expect("TF_CONFIG", "{\"cluster\": {\"worker\": [\"10.0.0.1:1001\", \"10.0.0.1:1002\", \"10.0.0.2:1003\", "
                        "\"[fd00::2]:1004\"]}, \"task\": {\"type\": \"worker\", \"index\": 3}}");
}

static void test_jax_platform(void **state) {
    char *cpu[] = {"JAX_PLATFORMS=cpu", NULL}, *empty[] = {"JAX_PLATFORMS=", NULL};
    const ty_scaling_config plain = {.num_workers = 2};
    (void)state;
    make_plan(gpu_nodes, &four_with_gpus);
    find("jax", 0, NULL);
    expect("JAX_PLATFORMS", "cuda");
    find("jax", 0, empty);
    expect("JAX_PLATFORMS", "cuda");
    find("jax", 0, cpu);
    expect("JAX_PLATFORMS", "cpu");
    (void)drop_plan(NULL);
    make_plan(gpu_nodes, &plain);
    find("jax", 0, NULL);
    expect("JAX_PLATFORMS", "cpu");
}

static void test_several_slices(void **state) {
    char *stale[] = {"MEGASCALE_SLICE_ID=9", "MEGASCALE_NUM_SLICES=9", "MEGASCALE_COORDINATOR_ADDRESS=old:1",
                     "TPU_WORKER_ID=5", NULL};
    char *port[] = {"MEGASCALE_PORT=9000", NULL};
    const ty_scaling_config two = {
        .num_workers = 2, .use_tpu = true, .topology = "2x2x1", .accelerator_type = "TPU-V4"};
    (void)state;
    make_plan(tpu_nodes, &two);
    assert_int_equal(fixture.plan->n_slices, 2);
    for (size_t rank = 0; rank < 2; rank++) {
        find(rank == 0 ? "jax" : "plain", rank, stale);
        expect("MEGASCALE_COORDINATOR_ADDRESS", "10.0.0.1");
        expect("MEGASCALE_NUM_SLICES", "2");
        expect("MEGASCALE_SLICE_ID", rank == 0 ? "0" : "1");
        expect("MEGASCALE_PORT", "8081");
        expect("TPU_NAME", rank == 0 ? "a" : "b"); /* slices in order of their names */
        expect("TPU_WORKER_ID", "0");
        expect("TPU_TOPOLOGY", "2x2x1");
        expect("TPU_ACCELERATOR_TYPE", "v4-8");
    }
    find("jax", 0, port);
    expect("MEGASCALE_PORT", "9000");
    expect("JAX_PLATFORMS", "tpu");
}

static void test_one_slice_has_no_megascale(void **state) {
    char *stale[] = {"MEGASCALE_SLICE_ID=9", "MEGASCALE_NUM_SLICES=9", NULL};
    const ty_scaling_config one = {
        .num_workers = 1, .use_tpu = true, .topology = "2x2x1", .accelerator_type = "TPU-V4"};
    (void)state;
    make_plan(tpu_nodes, &one);
    find("jax", 0, stale);
    expect("MEGASCALE_COORDINATOR_ADDRESS", NULL);
    expect("MEGASCALE_NUM_SLICES", NULL);
    expect("MEGASCALE_SLICE_ID", NULL);
    expect("MEGASCALE_PORT", NULL);
}

static void test_unknown_framework(void **state) {
    const struct framework *framework = NULL;
    ty_error err = {0};
    (void)state;
    assert_int_equal(framework_find("pytorch", &framework, &err), TY_EUSAGE);
    assert_null(framework);
    assert_non_null(strstr(err.message, "plain, torch, jax"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_framework),
        cmocka_unit_test_teardown(test_names_of_torchrun, drop_plan),
        cmocka_unit_test_teardown(test_devices_of_the_node_or_own, drop_plan),
        cmocka_unit_test_teardown(test_threads, drop_plan),
        cmocka_unit_test_teardown(test_torch, drop_plan),
        cmocka_unit_test_teardown(test_jax_finds_the_run, drop_plan),
        cmocka_unit_test_teardown(test_tensorflow, drop_plan),
        cmocka_unit_test_teardown(test_tensorflow_on_several_machines, drop_plan),
        cmocka_unit_test_teardown(test_jax_platform, drop_plan),
        cmocka_unit_test_teardown(test_several_slices, drop_plan),
        cmocka_unit_test_teardown(test_one_slice_has_no_megascale, drop_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
