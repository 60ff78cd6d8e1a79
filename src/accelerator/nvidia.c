/* NVIDIA: devices through NVML, which is loaded when it is there and left again; without it there are none.
 * Variable: CUDA_VISIBLE_DEVICES. TRAINYARD_NVML_LIBRARY names another library than libnvidia-ml.so.1. What
 * devices do while a run goes on is read elsewhere (usage/usage_nvidia.c). */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/str.h"

/* The part of NVML's interface that is used here, written out so that its header is not needed to build. */
struct nvml_device; /* opaque */

struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, struct nvml_device **device);
    int (*name)(struct nvml_device *device, char *name, unsigned size);
    int (*uuid)(struct nvml_device *device, char *uuid, unsigned size);
    int (*pci_info)(struct nvml_device *device, struct nvml_pci_info *info);
    int (*memory)(struct nvml_device *device, struct nvml_memory *memory);
    /* NULL in drivers that know no MIG */
    int (*by_uuid)(const char *uuid, struct nvml_device **device);
    int (*whole)(struct nvml_device *instance, struct nvml_device **device);
};

/* A function of the library; POSIX lets an object pointer be one. */
static bool find(const struct nvml *nvml, const char *symbol, void *function) {
    void *address = dlsym(nvml->library, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

void *nvidia_library(void) {
    const char *name = getenv("TRAINYARD_NVML_LIBRARY");
    return dlopen(name == NULL || name[0] == '\0' ? "libnvidia-ml.so.1" : name, RTLD_NOW | RTLD_LOCAL);
}

/* The names with a version are those of today's layouts (struct nvml_pci_info is that of _v3); a library that
 * lacks one of them is too old, and counts as none. */
static bool open_nvml(struct nvml *nvml) {
    nvml->library = nvidia_library();
    if (nvml->library == NULL) return false;
    (void)find(nvml, "nvmlDeviceGetHandleByUUID", &nvml->by_uuid);
    (void)find(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &nvml->whole);
    bool found = find(nvml, "nvmlInit_v2", &nvml->init) && find(nvml, "nvmlShutdown", &nvml->shutdown) &&
                 find(nvml, "nvmlDeviceGetCount_v2", &nvml->count) &&
                 find(nvml, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index) &&
                 find(nvml, "nvmlDeviceGetName", &nvml->name) && find(nvml, "nvmlDeviceGetUUID", &nvml->uuid) &&
                 find(nvml, "nvmlDeviceGetPciInfo_v3", &nvml->pci_info) &&
                 find(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    if (found && nvml->init() == 0) return true;
    (void)dlclose(nvml->library);
    return false;
}

static int list_devices(const struct nvml *nvml, struct inventory *inventory) {
    unsigned count = 0;
    if (nvml->count(&count) != 0) return 0;
    for (unsigned i = 0; i < count; i++) {
        struct nvml_device *handle;
        struct device *device = inventory_add(inventory);
        if (device == NULL) return -ENOMEM;
        if (nvml->by_index(i, &handle) == 0) {
            /* Questions that a driver does not answer leave the field unknown. */
            struct nvml_pci_info pci = {0};
            struct nvml_memory memory = {0};
            if (nvml->name(handle, device->name, sizeof device->name) != 0) device->name[0] = '\0';
            if (nvml->uuid(handle, device->uuid, sizeof device->uuid) != 0) device->uuid[0] = '\0';
            if (nvml->pci_info(handle, &pci) == 0)
                (void)snprintf(device->bus_id, sizeof device->bus_id, "%04x:%02x:%02x.0", pci.domain, pci.bus,
                               pci.device);
            if (nvml->memory(handle, &memory) == 0) device->memory_bytes = (int64_t)memory.total;
        }
    }
    return 0;
}

/* -- the order that indices count in -- */

/* NVML counts by PCI address, as nvidia-smi shows it; CUDA by speed, unless this variable says otherwise, in an
 * order that only CUDA itself knows. So indices mean the order of PCI here, and workers are told so beside
 * them. */
#define ORDER "CUDA_DEVICE_ORDER"

/* Where the user wants the other order, indices are not spoken of: devices are called by their UUIDs, and a
 * variable that names them by index is refused, for nobody but CUDA could tell which they are. */
static int heed_order(struct inventory *inventory, const char *visible, ty_error *err) {
    CLEANUP(buffer_done) struct buffer entries = {0};
    if (inventory->n < 2 || !str_equal(getenv(ORDER), "FASTEST_FIRST")) return 0;
    int n = accelerator_visible_entries(visible, &entries);
    if (entries.failed) return -ENOMEM;
    const char *entry = entries.data;
    for (int i = 0; i < n; i++, entry += strlen(entry) + 1)
        if (accelerator_is_index(entry))
            return ty_fail(err, TY_EUSAGE,
                           "CUDA_VISIBLE_DEVICES=%s with " ORDER
                           "=FASTEST_FIRST: only CUDA knows which devices these "
                           "are; give UUIDs (nvidia-smi -L), or " ORDER "=PCI_BUS_ID",
                           visible);
    for (size_t i = 0; n < 0 && i < inventory->n; i++)
        if (inventory->devices[i].uuid[0] != '\0')
            memcpy(inventory->devices[i].id, inventory->devices[i].uuid, sizeof inventory->devices[i].id);
    return 0;
}

/* -- MIG: an instance is a part of a device, and known by a name alone: MIG-UUID, or MIG-GPU-UUID/INSTANCE/PART
 * of the device's UUID with drivers before 470 -- */

#define MIG "MIG-"

/* The device that an instance is a part of: as the driver tells, else as the instance's own name does, else the
 * only one that there is; NULL when nobody tells. */
static const struct device *find_whole(const struct nvml *nvml, const struct inventory *all, const char *id) {
    struct nvml_device *instance, *whole;
    char uuid[sizeof all->devices->uuid] = "";
    const char *named = id + strlen(MIG);
    if (nvml->by_uuid != NULL && nvml->whole != NULL && nvml->by_uuid(id, &instance) == 0 &&
        nvml->whole(instance, &whole) == 0 && nvml->uuid(whole, uuid, sizeof uuid) == 0)
        named = uuid;
    for (size_t i = 0; i < all->n; i++) {
        size_t size = strcspn(named, "/");
        if (all->devices[i].uuid[0] != '\0' && strncmp(all->devices[i].uuid, named, size) == 0)
            return &all->devices[i];
    }
    return all->n == 1 ? &all->devices[0] : NULL;
}

/* Whoever holds a whole device must be in the way of its parts, and they in his, so that a part is called
 * WHOLE/PART (struct device). The list of all devices is kept for that while the variable shortens it. */
static int detect_with(const struct nvml *nvml, struct inventory *inventory, ty_error *err) {
    int result = list_devices(nvml, inventory);
    if (result < 0) return result;
    if (inventory->n > 0) (void)nvidia_type(inventory->devices[0].name, inventory->type);
    const char *visible = getenv(accelerator_nvidia.visible);
    result = heed_order(inventory, visible, err);
    if (result < 0 || visible == NULL) return result;
    struct inventory all = *inventory;
    all.devices = calloc(all.n + 1, sizeof *all.devices);
    if (all.devices == NULL) return -ENOMEM;
    memcpy(all.devices, inventory->devices, all.n * sizeof *all.devices);
    result = inventory_restrict(inventory, visible);
    for (size_t i = 0; result == 0 && i < inventory->n; i++) {
        struct device *device = &inventory->devices[i];
        const struct device *whole =
            str_prefix(device->id, MIG, NULL) ? find_whole(nvml, &all, device->id) : NULL;
        if (whole == NULL || whole->uuid[0] == '\0') continue;
        (void)snprintf(device->uuid, sizeof device->uuid, "%.47s/%s", whole->uuid, device->id);
        memcpy(device->bus_id, whole->bus_id, sizeof device->bus_id);
    }
    free(all.devices);
    return result;
}

static int detect(struct inventory *inventory, ty_error *err) {
    struct nvml nvml = {0};
    if (!open_nvml(&nvml)) return 0;
    int result = detect_with(&nvml, inventory, err);
    (void)nvml.shutdown();
    (void)dlclose(nvml.library);
    return result;
}

/* -- names -- */

static const char *skip_blanks(const char *text) {
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

static const char *skip_word(const char *text) {
    while (*text != '\0' && !isspace((unsigned char)*text))
        text++;
    return skip_blanks(text);
}

/* Rules 2 and 3 of docs/spec/accelerators.md 1.5: words in capitals behind the vendor's, up to the first that
 * holds a digit, which is cut where its capitals and digits end. False when no such word comes. */
static bool capitals(const char *name, struct buffer *out) {
    for (const char *at = skip_word(skip_blanks(name)); *at != '\0'; at = skip_word(at)) {
        size_t size = 0;
        bool digit = false;
        for (; isupper((unsigned char)at[size]) || isdigit((unsigned char)at[size]); size++)
            digit = digit || isdigit((unsigned char)at[size]);
        if (size == 0) return false;
        buffer_printf(out, "%s%.*s", out->size > 0 ? "-" : "", (int)size, at);
        if (digit) return true;
        if (at[size] != '\0' && !isspace((unsigned char)at[size])) return false;
    }
    return false;
}

bool nvidia_type(const char *name, char type[64]) {
    CLEANUP(buffer_done) struct buffer out = {0};
    if (!capitals(name, &out) || out.size < 2) {
        buffer_clear(&out);
        /* Rule 4: all words but the vendor's own name. */
        const char *at = skip_blanks(name);
        if (strncmp(at, "NVIDIA", 6) == 0 && isspace((unsigned char)at[6])) at = skip_word(at);
        for (; *at != '\0'; at = skip_word(at))
            buffer_printf(&out, "%s%.*s", out.size > 0 ? "-" : "", (int)strcspn(at, " \t\n\v\f\r"), at);
    }
    if (out.failed || out.size == 0 || out.size >= 64) return false;
    memcpy(type, out.data, out.size + 1);
    return true;
}

const struct accelerator accelerator_nvidia = {
    .vendor = "nvidia",
    .resource = "GPU",
    .visible = "CUDA_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
    .order = {ORDER, "PCI_BUS_ID"},
    .detect = detect,
};
