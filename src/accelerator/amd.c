/* AMD: devices from the topology of the kernel's compute driver (kfd), types from their PCI device id.
 * Variable: HIP_VISIBLE_DEVICES; CUDA_VISIBLE_DEVICES is accepted in its place, as ROCm does, and
 * ROCR_VISIBLE_DEVICES is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"

#define NODES "/sys/class/kfd/kfd/topology/nodes"

enum { VENDOR_AMD = 0x1002 };

/* Less memory of its own than this has only a processor's built-in graphics, which no one trains on. */
static const int64_t least_memory = (int64_t)4 << 30;

static const struct {
    int64_t device_id;
    const char *type;
} types[] = {
    {0x66a1, "AMD-Instinct-MI50"},         {0x738c, "AMD-Instinct-MI100"},
    {0x7408, "AMD-Instinct-MI250X"},       {0x740c, "AMD-Instinct-MI250X-MI250"},
    {0x740f, "AMD-Instinct-MI210"},        {0x74a0, "AMD-Instinct-MI300A"},
    {0x74a1, "AMD-Instinct-MI300X-OAM"},   {0x74a2, "AMD-Instinct-MI308X-OAM"},
    {0x74a9, "AMD-Instinct-MI300X-HF"},    {0x74a5, "AMD-Instinct-MI325X-OAM"},
    {0x75a0, "AMD-Instinct-MI350X-OAM"},   {0x75a3, "AMD-Instinct-MI355X-OAM"},
    {0x6798, "AMD-Radeon-R9-200-HD-7900"}, {0x6799, "AMD-Radeon-HD-7900"},
    {0x679a, "AMD-Radeon-HD-7900"},        {0x679b, "AMD-Radeon-HD-7900"},
};

const char *amd_type(int64_t device_id) {
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].device_id == device_id) return types[i].type;
    return NULL;
}

/* Of a node of the topology: a file of "KEY VALUE" lines; 0 for what is not told. */
static int64_t property(int64_t node, const char *key) {
    char path[MACHINE_PATH_SIZE];
    int64_t value = 0;
    (void)snprintf(path, sizeof path, NODES "/%lld/properties", (long long)node);
    return machine_property(path, key, &value) ? value : 0;
}

static int64_t memory_of(int64_t node) {
    char path[MACHINE_PATH_SIZE];
    int64_t size = 0;
    (void)snprintf(path, sizeof path, NODES "/%lld/mem_banks/0/properties", (long long)node);
    return machine_property(path, "size_in_bytes", &size) ? size : 0;
}

/* Nodes without SIMD units are processors. */
static bool is_device(int64_t node) {
    if (property(node, "vendor_id") != VENDOR_AMD || property(node, "simd_count") <= 0) return false;
    /* A container sees every node of the machine, but only the render devices that it was given. */
    char path[MACHINE_PATH_SIZE];
    int64_t minor = property(node, "drm_render_minor");
    (void)snprintf(path, sizeof path, "/dev/dri/renderD%lld", (long long)minor);
    if (minor > 0 && !machine_has(path)) return false;
    return amd_type(property(node, "device_id")) != NULL || memory_of(node) >= least_memory;
}

size_t amd_render_devices(int64_t *numbers, size_t max) {
    CLEANUP(idset_done) struct idset nodes = {0};
    size_t n = 0;
    if (!machine_has("/dev/kfd") || machine_numbers(NODES, "", "", true, &nodes) < 0) return 0;
    for (int64_t node = idset_next(&nodes, -1); node != IDSET_END && n < max; node = idset_next(&nodes, node))
        if (is_device(node)) numbers[n++] = property(node, "drm_render_minor");
    return n;
}

/* What the environment shows of the devices; `*value` is NULL for all of them. ROCR_VISIBLE_DEVICES renumbers
 * below HIP, so that indices would mean other devices than those of the topology; it is refused. */
static int read_visible(const char **value, ty_error *err) {
    const char *hip = getenv("HIP_VISIBLE_DEVICES"), *cuda = getenv("CUDA_VISIBLE_DEVICES");
    if (hip == NULL && getenv("ROCR_VISIBLE_DEVICES") != NULL)
        return ty_fail(err, TY_EUSAGE, "use HIP_VISIBLE_DEVICES instead of ROCR_VISIBLE_DEVICES");
    if (hip != NULL && cuda != NULL && strcmp(hip, cuda) != 0)
        return ty_fail(err, TY_EUSAGE,
                       "Inconsistent values: HIP_VISIBLE_DEVICES=%.80s and CUDA_VISIBLE_DEVICES=%.80s must be "
                       "the same, or one of them unset",
                       hip, cuda);
    *value = hip != NULL ? hip : cuda;
    return 0;
}

static int detect(struct inventory *inventory, ty_error *err) {
    CLEANUP(idset_done) struct idset nodes = {0};
    const char *visible = NULL;
    if (!machine_has("/dev/kfd") || machine_numbers(NODES, "", "", true, &nodes) < 0) return 0;
    for (int64_t node = idset_next(&nodes, -1); node != IDSET_END; node = idset_next(&nodes, node)) {
        if (!is_device(node)) continue;
        struct device *device = inventory_add(inventory);
        if (device == NULL) return -ENOMEM;
        /* The location is bus, device and function as PCI packs them: 8, 5 and 3 bits. */
        unsigned long long location = (unsigned long long)property(node, "location_id");
        unsigned long long domain = (unsigned long long)property(node, "domain");
        const char *type = amd_type(property(node, "device_id"));
        (void)snprintf(device->name, sizeof device->name, "%s", type == NULL ? "" : type);
        (void)snprintf(device->bus_id, sizeof device->bus_id, "%04llx:%02llx:%02llx.%llx", domain & 0xffff,
                       location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
        device->memory_bytes = memory_of(node);
    }
    if (inventory->n == 0) return 0;
    inventory_set_type(inventory, inventory->devices[0].name);
    int result = read_visible(&visible, err);
    return result < 0 ? result : inventory_restrict(inventory, visible);
}

/* ROCm demands that both variables agree where both are there. */
static int set_visible(const struct accelerator *self, const char *const *ids, size_t n, size_t host_devices,
                       environment_change *change, void *context) {
    (void)host_devices;
    CLEANUP(buffer_done) struct buffer value = {0};
    if (!join_ids(ids, n, &value)) return -ENOMEM;
    int result = change(context, self->visible, value.data);
    if (result == 0 && getenv("CUDA_VISIBLE_DEVICES") != NULL)
        result = change(context, "CUDA_VISIBLE_DEVICES", value.data);
    return result;
}

const struct accelerator accelerator_amd = {
    .vendor = "amd",
    .resource = "GPU",
    .visible = "HIP_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"),
    .detect = detect,
    .set_visible = set_visible,
};
