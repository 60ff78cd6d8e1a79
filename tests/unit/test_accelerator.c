/* Accelerators: docs/spec/accelerators.md 1 and 2.5-2.7, vectors 6.1 and 6.2. Machines are trees of files in a
 * temporary directory; the driver of NVIDIA is fake_nvml.so beside this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/file.h"

/* -- a machine of files -- */

static char root[128];

static const char *const variables[] = {
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "TPU_VISIBLE_CHIPS",
    "TPU_ACCELERATOR_TYPE",
    "TPU_TOPOLOGY",
    "TPU_WORKER_ID",
    "TPU_NAME",
    "TPU_SKIP_MDS_QUERY",
    "RAY_TPU_RESOURCE_PER_CHIP",
    "NEURON_RT_VISIBLE_CORES",
    "HABANA_VISIBLE_MODULES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "RBLN_DEVICES",
    "FURIOSA_DEVICES",
    "MBLT_DEVICES",
    "MLU_VISIBLE_DEVICES",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
    "RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS",
    "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
    "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR",
    "FAKE_NVML",
    "GCE_METADATA_HOST",
};

static int begin(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        (void)unsetenv(variables[i]);
    (void)snprintf(root, sizeof root, "/tmp/test_accelerator.XXXXXX");
    if (mkdtemp(root) == NULL) return -1;
    (void)setenv("TRAINYARD_SYSROOT", root, 1);
    (void)setenv("TRAINYARD_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1", 1);
    (void)setenv("TPU_SKIP_MDS_QUERY", "1", 1);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static int end(void **state) {
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *path, const char *text) {
    char real[512];
    (void)snprintf(real, sizeof real, "%s%s", root, path);
    char *slash = strrchr(real, '/');
    *slash = '\0';
    assert_int_equal(file_make_directories(real, 0755, NULL), 0);
    *slash = '/';
    FILE *file = fopen(real, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static void put_directory(const char *path) {
    char real[512];
    (void)snprintf(real, sizeof real, "%s%s", root, path);
    assert_int_equal(file_make_directories(real, 0755, NULL), 0);
}

static void put_numbered(const char *prefix, int n) {
    for (int i = 0; i < n; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s%d", prefix, i);
        put(path, "");
    }
}

static void put_amd(int node, const char *device_id, const char *memory) {
    char path[128], text[256];
    put("/dev/kfd", "");
    (void)snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    (void)snprintf(
        text, sizeof text,
        "cpu_cores_count 0\nsimd_count 256\nvendor_id 4098\ndevice_id %s\nlocation_id %d\ndomain 0\n",
        device_id, (0x21 + node) << 8);
    put(path, text);
    (void)snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/mem_banks/0/properties", node);
    (void)snprintf(text, sizeof text, "heap_type 1\nsize_in_bytes %s\n", memory);
    put(path, text);
}

static void put_pci(const char *class, int number, const char *vendor, const char *device) {
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/class/%s%d/device/vendor", class, number);
    put(path, vendor);
    (void)snprintf(path, sizeof path, "/sys/class/%s%d/device/device", class, number);
    put(path, device);
}

static void put_nvidia(const char *spec) {
    static char library[512];
    ssize_t size = readlink("/proc/self/exe", library, sizeof library - 32);
    assert_true(size > 0);
    library[size] = '\0';
    (void)strcpy(strrchr(library, '/') + 1, "fake_nvml.so");
    (void)setenv("TRAINYARD_NVML_LIBRARY", library, 1);
    (void)setenv("FAKE_NVML", spec, 1);
}

/* -- what is found -- */

/* "GPU nvidia A100 0,1": one line for each inventory. */
static const char *probe(void) {
    static char text[2048];
    struct inventory *inventories;
    size_t n, used = 0;
    ty_error err = {0};
    text[0] = '\0';
    if (accelerator_probe(&inventories, &n, &err) < 0) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        const struct inventory *inventory = &inventories[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s %s ", i > 0 ? "; " : "",
                                 inventory->vendor->resource, inventory->vendor->vendor,
                                 inventory->type[0] == '\0' ? "-" : inventory->type);
        for (size_t d = 0; d < inventory->n; d++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", d > 0 ? "," : "",
                                     inventory->devices[d].id);
    }
    accelerator_inventories_free(inventories, n);
    return text;
}

static void assert_refused(const char *message) {
    struct inventory *inventories = NULL;
    size_t n = 7;
    ty_error err = {0};
    assert_int_equal(accelerator_probe(&inventories, &n, &err), TY_EUSAGE);
    if (strstr(err.message, message) == NULL) fail_msg("%s", err.message);
    assert_true(inventories == NULL && n == 7);
}

static void a_bare_machine_has_none(void **state) {
    (void)state;
    assert_string_equal(probe(), "");
    put_nvidia("0:none");
    assert_string_equal(probe(), "");
    (void)unsetenv("FAKE_NVML");
    assert_string_equal(probe(), "");
}

static void nvidia_is_found_through_its_library(void **state) {
    (void)state;
    put_nvidia("3:NVIDIA A100-SXM4-40GB");
    assert_string_equal(probe(), "GPU nvidia A100 0,1,2");
    (void)setenv("CUDA_VISIBLE_DEVICES", "2, 0", 1);
    assert_string_equal(probe(), "GPU nvidia A100 2,0");
    (void)setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4", 1);
    assert_string_equal(probe(), "GPU nvidia A100 0,1,2");
    (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
    assert_string_equal(probe(), "");
    (void)setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1);
    assert_string_equal(probe(), "");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-00000002,GPU-00000000-1111", 1);
    assert_string_equal(probe(), "GPU nvidia A100 GPU-00000002,GPU-00000000-1111");
    (void)setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c,MIG-d", 1);
    assert_string_equal(probe(), "GPU nvidia A100 MIG-a,MIG-b,MIG-c,MIG-d");
}

/* Only CUDA knows the order that it counts in when nothing is said: indices are those of PCI, or none. */
static void indices_count_by_pci_address(void **state) {
    (void)state;
    put_nvidia("2:NVIDIA H100 80GB HBM3");
    (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    assert_string_equal(probe(), "GPU nvidia H100 0,1");
    (void)setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    assert_string_equal(probe(), "GPU nvidia H100 GPU-00000000-1111-2222-3333-444444444444,"
                                 "GPU-00000001-1111-2222-3333-444444444444");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-00000001,MIG-a", 1);
    assert_string_equal(probe(), "GPU nvidia H100 GPU-00000001,MIG-a");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-00000001,0", 1);
    assert_refused("CUDA_DEVICE_ORDER=PCI_BUS_ID");
    put_nvidia("1:NVIDIA H100 80GB HBM3");
    (void)setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    assert_string_equal(probe(), "GPU nvidia H100 0");
}

static int note_order(void *context, const char *name, const char *value) {
    (void)snprintf(context, 64, "%s=%s", name, value);
    return 0;
}

static void the_order_goes_with_indices(void **state) {
    (void)state;
    static const char *const by_index[] = {"GPU-a", "1"}, *const by_uuid[] = {"GPU-a", "MIG-1"};
    char order[64] = "";
    assert_int_equal(accelerator_set_order(&accelerator_nvidia, by_uuid, 2, note_order, order), 0);
    assert_int_equal(accelerator_set_order(&accelerator_nvidia, NULL, 0, note_order, order), 0);
    assert_int_equal(accelerator_set_order(&accelerator_amd, by_index, 2, note_order, order), 0);
    (void)setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1", 1);
    assert_int_equal(accelerator_set_order(&accelerator_nvidia, by_index, 2, note_order, order), 0);
    assert_string_equal(order, "");
    (void)unsetenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES");
    assert_int_equal(accelerator_set_order(&accelerator_nvidia, by_index, 2, note_order, order), 0);
    assert_string_equal(order, "CUDA_DEVICE_ORDER=PCI_BUS_ID");
}

static void a_device_that_is_named_twice_is_one(void **state) {
    (void)state;
    put_nvidia("3:NVIDIA H100 80GB HBM3");
    (void)setenv("CUDA_VISIBLE_DEVICES", "1,GPU-00000001,GPU-00000001-1111,0", 1);
    assert_string_equal(probe(), "GPU nvidia H100 1,0");
}

static void devices_are_described(void **state) {
    (void)state;
    struct inventory *inventories;
    size_t n;
    put_nvidia("3:NVIDIA H100 80GB HBM3");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-00000002", 1);
    assert_int_equal(accelerator_probe(&inventories, &n, NULL), 0);
    assert_int_equal(n, 1);
    const struct device *device = &inventories[0].devices[0];
    assert_string_equal(device->id, "GPU-00000002");
    assert_string_equal(device->uuid, "GPU-00000002-1111-2222-3333-444444444444");
    assert_string_equal(device->name, "NVIDIA H100 80GB HBM3");
    assert_string_equal(device->bus_id, "0000:3d:01.0");
    assert_true(device->memory_bytes == (int64_t)80 << 30);
    assert_string_equal(labels_get(&inventories[0].labels, "ray.io/accelerator-type"), "H100");
    accelerator_inventories_free(inventories, n);
}

static void amd_is_found_in_the_topology(void **state) {
    (void)state;
    put("/sys/class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 64\nsimd_count 0\nvendor_id 4098\ndevice_id 0\n");
    put_amd(2, "29857", "206141652992"); /* 0x74a1 */
    put_amd(10, "29857", "206141652992");
    put_amd(3, "5056", "536870912"); /* graphics of a processor */
    put_nvidia("2:NVIDIA A100-SXM4-40GB");
    assert_string_equal(probe(), "GPU amd AMD-Instinct-MI300X-OAM 0,1");
    (void)setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    assert_string_equal(probe(), "GPU amd AMD-Instinct-MI300X-OAM 1");
    (void)setenv("HIP_VISIBLE_DEVICES", "1", 1);
    assert_string_equal(probe(), "GPU amd AMD-Instinct-MI300X-OAM 1");
    (void)setenv("HIP_VISIBLE_DEVICES", "0,1", 1);
    (void)setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
    assert_refused("Inconsistent values");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    (void)setenv("ROCR_VISIBLE_DEVICES", "0", 1);
    assert_string_equal(probe(), "GPU amd AMD-Instinct-MI300X-OAM 0,1");
    (void)unsetenv("HIP_VISIBLE_DEVICES");
    assert_refused("use HIP_VISIBLE_DEVICES");
}

static void conflicts_matter_on_amd_only(void **state) {
    (void)state;
    put_nvidia("2:Tesla T4");
    (void)setenv("HIP_VISIBLE_DEVICES", "0,1", 1);
    (void)setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    (void)setenv("ROCR_VISIBLE_DEVICES", "1", 1);
    assert_string_equal(probe(), "GPU nvidia T4 1");
}

static void intel_is_found_by_pci_id(void **state) {
    (void)state;
    put_numbered("/dev/dri/renderD12", 3);
    put_pci("drm/renderD12", 0, "0x8086\n", "0x4680\n"); /* built-in graphics */
    put_pci("drm/renderD12", 1, "0x8086\n", "0x0bd5\n");
    put_pci("drm/renderD12", 2, "0x8086\n", "0x0bd5\n");
    put_pci("drm/renderD12", 3, "0x8086\n", "0x0bd5\n"); /* not in /dev */
    assert_string_equal(probe(), "GPU intel Intel-GPU-Max-1550 0,1");
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "level_zero:1", 1);
    assert_string_equal(probe(), "GPU intel Intel-GPU-Max-1550 1");
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "opencl:gpu", 1);
    assert_string_equal(probe(), "GPU intel Intel-GPU-Max-1550 0,1");
    (void)setenv("ZE_AFFINITY_MASK", "0", 1);
    assert_string_equal(probe(), "GPU intel Intel-GPU-Max-1550 0");
}

static void metax_comes_before_nvidia(void **state) {
    (void)state;
    put_nvidia("2:Tesla T4");
    put_numbered("/dev/dri/renderD12", 1);
    put_pci("drm/renderD12", 0, "0x9999\n", "0x4000\n");
    assert_string_equal(probe(), "GPU metax - 0");
}

static void other_vendors_are_counted(void **state) {
    (void)state;
    put_numbered("/dev/davinci", 2);
    put("/dev/davinci_manager", "");
    put_numbered("/dev/rbln", 3);
    put_numbered("/dev/cambricon_dev", 1);
    put("/dev/cambricon_ctl", "");
    put_numbered("/dev/regulus", 2);
    put("/dev/rngd/npu0mgmt", "");
    put("/dev/rngd/npu1mgmt", "");
    put("/dev/rngd/npu1ch0", "");
    assert_string_equal(
        probe(), "NPU ascend - 0,1; FURIOSA furiosa FURIOSA_RNGD npu:0,npu:1; RBLN rebellions - 0,1,2; MBLT "
                 "mobilint MOBILINT_REGULUS 0,1; MLU cambricon - 0");
    (void)setenv("ASCEND_RT_VISIBLE_DEVICES", "1", 1);
    (void)setenv("FURIOSA_DEVICES", "npu:1:0-3,npu:1:4,npu:1", 1);
    (void)setenv("RBLN_DEVICES", "", 1);
    assert_string_equal(
        probe(), "NPU ascend - 1; FURIOSA furiosa FURIOSA_RNGD npu:1; MBLT mobilint MOBILINT_REGULUS 0,1; MLU "
                 "cambricon - 0");
    (void)setenv("FURIOSA_DEVICES", "1", 1);
    (void)setenv("ASCEND_RT_VISIBLE_DEVICES", "NoDevFiles", 1);
    assert_string_equal(
        probe(), "FURIOSA furiosa FURIOSA_RNGD npu:1; MBLT mobilint MOBILINT_REGULUS 0,1; MLU cambricon - 0");
}

static void neuron_counts_cores(void **state) {
    (void)state;
    put_numbered("/dev/neuron", 2);
    assert_string_equal(probe(), "neuron_cores neuron aws-neuron-core 0,1,2,3");
    put("/sys/devices/virtual/dmi/id/product_name", "inf2.24xlarge\n");
    assert_string_equal(probe(), "neuron_cores neuron aws-neuron-core 0,1,2,3,4,5,6,7,8,9,10,11");
    put("/sys/class/neuron_device/neuron0/core_count", "4\n");
    put("/sys/class/neuron_device/neuron1/core_count", "2\n");
    assert_string_equal(probe(), "neuron_cores neuron aws-neuron-core 0,1,2,3,4,5");
    (void)setenv("NEURON_RT_VISIBLE_CORES", "1-2,5", 1);
    assert_string_equal(probe(), "neuron_cores neuron aws-neuron-core 1,2,5");
}

static void gaudi_is_found_among_accelerators(void **state) {
    (void)state;
    put_numbered("/dev/accel/accel", 3);
    put_pci("accel/accel", 0, "0x1da3\n", "0x1020\n");
    put_pci("accel/accel", 1, "0x8086\n", "0x7d1d\n");
    put_pci("accel/accel", 2, "0x1da3\n", "0x1020\n");
    assert_string_equal(probe(), "HPU habana Intel-GAUDI2 0,1");
}

static void tpu_chips_are_device_nodes(void **state) {
    (void)state;
    put_numbered("/dev/accel", 4);
    assert_string_equal(probe(), "TPU google - 0,1,2,3");
    (void)setenv("TPU_ACCELERATOR_TYPE", "v6e-8", 1);
    (void)setenv("TPU_VISIBLE_CHIPS", "2,3", 1);
    assert_string_equal(probe(), "TPU google TPU-V6E 2,3");
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "2", 1);
    assert_string_equal(probe(), "TPU google TPU-V6E 4,5,6,7");
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "-1", 1);
    assert_refused("RAY_TPU_RESOURCE_PER_CHIP");
}

static void tpu_chips_are_vfio_groups_of_google(void **state) {
    (void)state;
    put("/dev/vfio/vfio", "");
    put_numbered("/dev/vfio/", 3);
    put_directory("/dev/accel");
    put("/sys/kernel/iommu_groups/0/devices/0000:00:04.0/vendor", "0x1ae0\n");
    put("/sys/kernel/iommu_groups/1/devices/0000:00:05.0/vendor", "0x15b3\n");
    assert_string_equal(probe(), "TPU google - 0");
}

static void assert_slice(const char *worker_id, bool is_head) {
    struct inventory *inventories;
    size_t n;
    put_numbered("/dev/accel", 4);
    (void)setenv("TPU_ACCELERATOR_TYPE", "v4-16", 1);
    (void)setenv("TPU_TOPOLOGY", "2x2x2", 1);
    (void)setenv("TPU_NAME", "my-tpu", 1);
    (void)setenv("TPU_WORKER_ID", worker_id, 1);
    assert_int_equal(accelerator_probe(&inventories, &n, NULL), 0);
    const struct inventory *tpu = &inventories[0];
    assert_string_equal(tpu->type, "TPU-V4");
    assert_int_equal(tpu->extra.n, is_head ? 2 : 1);
    assert_int_equal(resources_get(&tpu->extra, "my-tpu"), QUANTITY_ONE);
    assert_int_equal(resources_get(&tpu->extra, "TPU-v4-16-head"), is_head ? QUANTITY_ONE : 0);
    assert_string_equal(labels_get(&tpu->labels, "ray.io/tpu-slice-name"), "my-tpu");
    assert_string_equal(labels_get(&tpu->labels, "ray.io/tpu-worker-id"), worker_id);
    assert_string_equal(labels_get(&tpu->labels, "ray.io/tpu-topology"), "2x2x2");
    assert_string_equal(labels_get(&tpu->labels, "ray.io/tpu-pod-type"), "v4-16");
    accelerator_inventories_free(inventories, n);
}

static void tpu_hosts_say_their_slice(void **state) {
    (void)state;
    assert_slice("0", true);
    assert_slice("1", false);
    (void)setenv("TPU_NAME", "not a label!", 1);
    assert_refused("not a label!");
}

/* Answers `n` requests from the table of attributes; runs in a child. */
static void serve(int listener, int n) {
    static const char *const answers[][2] = {
        {"accelerator-type", "tpu7x-16"},
        {"tpu-env", "ACCELERATOR_TYPE: 'x'\nTOPOLOGY: '2x2x2'\nZONE: 'z'\n"},
        {"instance-id", "4242"},
        {"agent-worker-number", "0"},
    };
    for (int i = 0; i < n; i++) {
        char request[1024] = "", path[128];
        int fd = accept(listener, NULL, NULL);
        (void)!read(fd, request, sizeof request - 1);
        bool flavoured = strstr(request, "Metadata-Flavor: Google\r\n") != NULL;
        for (size_t a = 0; a < ARRAY_SIZE(answers) && flavoured; a++) {
            (void)snprintf(path, sizeof path, "GET /computeMetadata/v1/instance/attributes/%s ", answers[a][0]);
            if (strncmp(request, path, strlen(path)) == 0)
                (void)dprintf(fd, "HTTP/1.0 200 OK\r\nA: b\r\n\r\n%s", answers[a][1]);
        }
        (void)close(fd);
    }
    _exit(0);
}

static pid_t begin_to_serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char host[64];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(host, sizeof host, "127.0.0.1:%d", ntohs(address.sin_port));
    pid_t child = fork();
    if (child == 0) serve(listener, 4);
    (void)close(listener);
    (void)setenv("GCE_METADATA_HOST", host, 1);
    return child;
}

/* What is not told within half a second is unknown: of a server on a busy machine it is asked once more. */
static void the_metadata_server_knows_the_slice(void **state) {
    (void)state;
    struct inventory *inventories = NULL;
    size_t n = 0;
    (void)unsetenv("TPU_SKIP_MDS_QUERY");
    put_numbered("/dev/accel", 4);
    bool whole = false;
    for (int tries = 0; tries < 60 && !whole; tries++) {
        accelerator_inventories_free(inventories, n);
        pid_t child = begin_to_serve();
        assert_int_equal(accelerator_probe(&inventories, &n, NULL), 0);
        whole = resources_get(&inventories[0].extra, "TPU-v7x-16-head") > 0 &&
                labels_get(&inventories[0].labels, "ray.io/tpu-topology") != NULL &&
                labels_get(&inventories[0].labels, "ray.io/tpu-slice-name") != NULL;
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_string_equal(inventories[0].type, "TPU-V7X");
    assert_string_equal(labels_get(&inventories[0].labels, "ray.io/tpu-topology"), "2x2x2");
    assert_string_equal(labels_get(&inventories[0].labels, "ray.io/tpu-slice-name"), "4242");
    assert_int_equal(resources_get(&inventories[0].extra, "TPU-v7x-16-head"), QUANTITY_ONE);
    accelerator_inventories_free(inventories, n);
    /* nobody listens there any more */
    assert_string_equal(probe(), "TPU google - 0,1,2,3");
}

static void tpu_env_is_searched_by_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *value;
    } rows[] = {
        {"TOPOLOGY: '4x4'", "4x4"},
        {"A: 'b'\nTOPOLOGY: \"4x4\"\n", "4x4"},
        {"NO_TOPOLOGY: '4x4'", NULL},
        {"TOPOLOGY: ''", NULL},
        {"TOPOLOGY", NULL},
        {"", NULL},
        {"TOPOLOGY: 'longer than it can be'", NULL},
        {"TOPOLOGY: 2x2x2\r\n", "2x2x2"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char value[16];
        bool found = metadata_find(rows[i].text, "TOPOLOGY", value, sizeof value);
        assert_int_equal(found, rows[i].value != NULL);
        if (found) assert_string_equal(value, rows[i].value);
    }
}

/* -- what a worker sees -- */

static int note(void *context, const char *name, const char *value) {
    struct buffer *out = context;
    buffer_printf(out, "%s%s=%s", out->size > 0 ? " " : "", name, value == NULL ? "(unset)" : value);
    return 0;
}

static void assert_visible(const struct accelerator *accelerator, const char *ids_text, size_t host_devices,
                           const char *expected) {
    struct buffer entries = {0}, out = {0};
    const char *ids[16];
    int n = accelerator_visible_entries(ids_text, &entries);
    const char *at = entries.data;
    for (int i = 0; i < n; i++, at += strlen(at) + 1)
        ids[i] = at;
    buffer_text(&out, "");
    assert_int_equal(accelerator_set_visible(accelerator, ids, (size_t)n, host_devices, note, &out), 0);
    assert_string_equal(out.data, expected);
    buffer_done(&entries);
    buffer_done(&out);
}

static void workers_see_their_devices(void **state) {
    (void)state;
    assert_visible(&accelerator_nvidia, "2,7", 8, "CUDA_VISIBLE_DEVICES=2,7");
    assert_visible(&accelerator_nvidia, "GPU-a,MIG-b", 8, "CUDA_VISIBLE_DEVICES=GPU-a,MIG-b");
    assert_visible(&accelerator_amd, "1", 8, "HIP_VISIBLE_DEVICES=1");
    assert_visible(&accelerator_intel, "1,3", 8, "ZE_AFFINITY_MASK=1,3 ONEAPI_DEVICE_SELECTOR=level_zero:0,1");
    assert_visible(&accelerator_neuron, "4,5", 32, "NEURON_RT_VISIBLE_CORES=4,5");
    assert_visible(&accelerator_habana, "0", 8, "HABANA_VISIBLE_MODULES=0");
    assert_visible(&accelerator_ascend, "0", 8, "ASCEND_RT_VISIBLE_DEVICES=0");
    assert_visible(&accelerator_rebellions, "0", 8, "RBLN_DEVICES=0");
    assert_visible(&accelerator_furiosa, "npu:0,3", 8, "FURIOSA_DEVICES=npu:0,npu:3");
    assert_visible(&accelerator_mobilint, "0", 8, "MBLT_DEVICES=0");
    assert_visible(&accelerator_cambricon, "0", 8, "MLU_VISIBLE_DEVICES=0");
    assert_visible(&accelerator_metax, "0", 8, "CUDA_VISIBLE_DEVICES=0");
    (void)setenv("CUDA_VISIBLE_DEVICES", "1,2", 1);
    assert_visible(&accelerator_amd, "1", 8, "HIP_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=1");
}

static void tpu_workers_get_bounds(void **state) {
    (void)state;
    static const char *const all = "TPU_CHIPS_PER_HOST_BOUNDS=(unset) TPU_HOST_BOUNDS=(unset)";
    assert_visible(&accelerator_google, "0", 4,
                   "TPU_VISIBLE_CHIPS=0 TPU_CHIPS_PER_HOST_BOUNDS=1,1,1 TPU_HOST_BOUNDS=1,1,1");
    assert_visible(&accelerator_google, "0,1", 4,
                   "TPU_VISIBLE_CHIPS=0,1 TPU_CHIPS_PER_HOST_BOUNDS=1,2,1 TPU_HOST_BOUNDS=1,1,1");
    assert_visible(&accelerator_google, "0,1,2,3", 4, all);
    assert_visible(&accelerator_google, "0", 1, all);
    assert_visible(&accelerator_google, "0,1,2,3", 8, "TPU_VISIBLE_CHIPS=0,1,2,3");
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "2", 1);
    assert_visible(&accelerator_google, "3,2,1,0", 8,
                   "TPU_VISIBLE_CHIPS=0,1 TPU_CHIPS_PER_HOST_BOUNDS=1,2,1 TPU_HOST_BOUNDS=1,1,1");
    assert_visible(&accelerator_google, "0,1,2,3,4,5,6,7", 8, all);
    (void)unsetenv("RAY_TPU_RESOURCE_PER_CHIP");
    (void)setenv("TPU_VISIBLE_CHIPS", "2,3", 1);
    assert_visible(&accelerator_google, "2,3", 2,
                   "TPU_VISIBLE_CHIPS=2,3 TPU_CHIPS_PER_HOST_BOUNDS=1,2,1 TPU_HOST_BOUNDS=1,1,1");
    (void)setenv("RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS", "1", 1);
    assert_visible(&accelerator_google, "2", 2, "");
}

static void variables_are_left_alone_when_asked(void **state) {
    (void)state;
    static const struct {
        const char *value;
        bool set;
    } rows[] = {{"1", true},      {"true", true}, {"YES", true}, {"0", false},
                {"False", false}, {"", false},    {"no", false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        (void)setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", rows[i].value, 1);
        assert_visible(&accelerator_nvidia, "0", 8, rows[i].set ? "" : "CUDA_VISIBLE_DEVICES=0");
    }
    (void)setenv("RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR", "1", 1);
    assert_visible(&accelerator_intel, "0", 8, "");
}

static void nothing_granted_changes_nothing(void **state) {
    (void)state;
    assert_visible(&accelerator_nvidia, "", 8, "");
    assert_visible(&accelerator_google, "", 4, "");
    (void)setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1", 1);
    assert_visible(&accelerator_nvidia, "", 8, "CUDA_VISIBLE_DEVICES=");
    assert_visible(&accelerator_google, "", 4, "TPU_VISIBLE_CHIPS=");
}

static void entries_of_a_variable(void **state) {
    (void)state;
    struct buffer entries = {0};
    assert_int_equal(accelerator_visible_entries(NULL, &entries), -1);
    assert_int_equal(accelerator_visible_entries("", &entries), 0);
    assert_int_equal(accelerator_visible_entries("NoDevFiles", &entries), 0);
    assert_int_equal(accelerator_visible_entries("-1", &entries), 0);
    assert_int_equal(accelerator_visible_entries("0, GPU-1 ,,2,0,-1,3", &entries), 3);
    assert_memory_equal(entries.data, "0\0GPU-1\0002", 10);
    buffer_done(&entries);
}

/* -- names -- */

static void names_become_types(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"Tesla V100-SXM2-16GB", "V100"},
        {"Tesla P100-PCIE-16GB", "P100"},
        {"Tesla T4", "T4"},
        {"Tesla P4", "P4"},
        {"Tesla K80", "K80"},
        {"NVIDIA A10G", "A10G"},
        {"NVIDIA L4", "L4"},
        {"NVIDIA L40S", "L40S"},
        {"Ampere A100-SXM4-40GB", "A100"},
        {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100"},
        {"NVIDIA H100 80GB HBM3", "H100"},
        {"NVIDIA H200", "H200"},
        {"NVIDIA H20", "H20"},
        {"NVIDIA B200", "B200"},
        {"NVIDIA B300", "B300"},
        {"NVIDIA GB200", "GB200"},
        {"NVIDIA GB300", "GB300"},
        {"NVIDIA GH200 480GB", "GH200"},
        {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"},
        {"NVIDIA RTX A6000", "RTX-A6000"},
        {"Quadro RTX 6000", "RTX-6000"},
        {"NVIDIA GeForce RTX 5090", "GeForce-RTX-5090"},
        {"NVIDIA GeForce RTX 4090", "GeForce-RTX-4090"},
        {"NVIDIA  GeForce  RTX 3080 Ti ", "GeForce-RTX-3080-Ti"},
        {"NVIDIA TITAN V", "TITAN-V"},
        {"0x74a1", "AMD-Instinct-MI300X-OAM"},
        {"0x75a0", "AMD-Instinct-MI350X-OAM"},
        {"0x740f", "AMD-Instinct-MI210"},
        {"0x66A1", "AMD-Instinct-MI50"},
        {"0x74a2", "AMD-Instinct-MI308X-OAM"},
        {"0x679A", "AMD-Radeon-HD-7900"},
        {"Intel(R) Data Center GPU Max 1550", "Intel-GPU-Max-1550"},
        {"Intel(R) Data Center GPU Max 1100", "Intel-GPU-Max-1100"},
        {"rngd", "FURIOSA_RNGD"},
        {"rngd+", "FURIOSA_RNGDPLUS"},
        {"rngd-s", "FURIOSA_RNGDS"},
        {"RNGD_Max", "FURIOSA_RNGDMAX"},
        {"v5litepod-16", "TPU-V5LITEPOD"},
        {"tpu7x-16", "TPU-V7X"},
    };
    static const char *const none[] = {
        "",        "   ",
        "NVIDIA ", "0x640f",
        "0x9999",  "0x",
        "0xzz",    "a name of many words that together are longer than any type can be, far too long"};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char type[64] = "";
        assert_true(accelerator_classify(rows[i][0], type));
        assert_string_equal(type, rows[i][1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        char type[64] = "kept";
        if (accelerator_classify(none[i], type)) fail_msg("\"%s\" is %s", none[i], type);
    }
}

static void types_are_known_and_have_vendors(void **state) {
    (void)state;
    size_t n;
    const struct accelerator_type *types = accelerator_types(&n);
    assert_true(n > 40);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(accelerator_for(types[i].resource, types[i].type)->vendor, types[i].vendor);
    assert_true(accelerator_type_matches("A100", "A100"));
    assert_false(accelerator_type_matches("A100", "A100-40G"));
    assert_false(accelerator_type_matches("B200", "GB200"));
    assert_true(accelerator_type_matches("AMD-Instinct-MI308X", "AMD-Instinct-MI308X-OAM"));
    assert_true(accelerator_type_matches("AMD-Instinct-MI308X-OAM", "AMD-Instinct-MI308X"));
}

static void vendors_serve_their_resources(void **state) {
    (void)state;
#define X(name) assert_true(accelerator_is_device(accelerator_##name.resource));
    ACCELERATOR_VENDORS(X)
#undef X
    assert_ptr_equal(accelerator_for("GPU", NULL), &accelerator_nvidia);
    assert_ptr_equal(accelerator_for("GPU", "GeForce-RTX-4090"), &accelerator_nvidia);
    assert_ptr_equal(accelerator_for("GPU", "AMD-Instinct-MI210"), &accelerator_amd);
    assert_ptr_equal(accelerator_for("TPU", NULL), &accelerator_google);
    assert_null(accelerator_for("CPU", NULL));
    assert_null(accelerator_for("custom", "A100"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_bare_machine_has_none),
        TEST(nvidia_is_found_through_its_library),
        TEST(devices_are_described),
        TEST(indices_count_by_pci_address),
        TEST(a_device_that_is_named_twice_is_one),
        TEST(the_order_goes_with_indices),
        TEST(amd_is_found_in_the_topology),
        TEST(conflicts_matter_on_amd_only),
        TEST(intel_is_found_by_pci_id),
        TEST(metax_comes_before_nvidia),
        TEST(other_vendors_are_counted),
        TEST(neuron_counts_cores),
        TEST(gaudi_is_found_among_accelerators),
        TEST(tpu_chips_are_device_nodes),
        TEST(tpu_chips_are_vfio_groups_of_google),
        TEST(tpu_hosts_say_their_slice),
        TEST(the_metadata_server_knows_the_slice),
        TEST(tpu_env_is_searched_by_line),
        TEST(workers_see_their_devices),
        TEST(tpu_workers_get_bounds),
        TEST(variables_are_left_alone_when_asked),
        TEST(nothing_granted_changes_nothing),
        TEST(entries_of_a_variable),
        TEST(names_become_types),
        TEST(types_are_known_and_have_vendors),
        TEST(vendors_serve_their_resources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
