/* Google TPU: chips are /dev/accel<n>, else VFIO groups that hold a device of Google's PCI vendor id
 * (docs/spec/accelerators.md 2.6). What slice this host belongs to is in the environment or at the metadata
 * server, which is asked only where there are chips. Variables: TPU_VISIBLE_CHIPS and the bounds of 2.5. A
 * chip counts as RAY_TPU_RESOURCE_PER_CHIP devices. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/tpu.h"

enum { VENDOR_GOOGLE = 0x1ae0 };

/* -- chips -- */

struct group {
    int64_t number;
    bool is_google;
};

static int look_at_device(void *context, const char *name) {
    struct group *group = context;
    char path[MACHINE_PATH_SIZE];
    int64_t vendor;
    (void)snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%lld/devices/%.64s/vendor",
                   (long long)group->number, name);
    if (machine_read_number(path, &vendor) && vendor == VENDOR_GOOGLE) group->is_google = true;
    return 0;
}

/* What cannot be read is not counted. A machine whose chips are given out by VFIO has other devices there as
 * well, network cards among them, so that each group is looked at. */
static size_t count_chips(void) {
    CLEANUP(idset_done) struct idset accel = {0};
    CLEANUP(idset_done) struct idset groups = {0};
    size_t n = 0;
    if (machine_numbers("/dev", "accel", "", false, &accel) < 0) return 0;
    if (idset_count(&accel) > 0) return idset_count(&accel);
    if (machine_numbers("/dev/vfio", "", "", false, &groups) < 0) return 0;
    for (int64_t at = idset_next(&groups, -1); at != IDSET_END; at = idset_next(&groups, at)) {
        struct group group = {at, false};
        char path[MACHINE_PATH_SIZE];
        (void)snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%lld/devices", (long long)at);
        n += machine_each(path, look_at_device, &group) == 0 && group.is_google;
    }
    return n;
}

/* -- the slice -- */

bool tpu_type(const char *pod_type, char type[64]) {
    char name[32];
    if (tpu_pod_type(pod_type, name, NULL) < 0) return false;
    name[strcspn(name, "-")] = '\0';
    for (char *at = name; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    (void)snprintf(type, 64, "TPU-%s", name);
    return true;
}

static void from_environment(const char *name, char *value, size_t size) {
    const char *text = getenv(name);
    if (text != NULL) (void)snprintf(value, size, "%s", text);
}

static int set_label(struct inventory *inventory, const char *key, const char *value, ty_error *err) {
    if (value[0] == '\0') return 0;
    int result = labels_set(&inventory->labels, key, value, err);
    return result < 0 ? ty_wrap(err, "this TPU host") : 0;
}

/* 2.7: every host of a slice has one unit of its name, and the first also of its head. */
static int add_slice_resources(struct inventory *inventory, const struct tpu_host *host, const char *pod_type,
                               ty_error *err) {
    char head[64];
    if (host->slice[0] == '\0' || host->worker_id < 0 || pod_type[0] == '\0') return 0;
    if (resources_set(&inventory->extra, host->slice, QUANTITY_ONE) < 0) return ty_fail_memory(err);
    if (host->worker_id != 0) return 0;
    (void)snprintf(head, sizeof head, "TPU-%s-head", pod_type);
    return resources_set(&inventory->extra, head, QUANTITY_ONE) < 0 ? ty_fail_memory(err) : 0;
}

static int describe_host(struct inventory *inventory, ty_error *err) {
    struct tpu_host host = {0};
    char pod_type[32] = "";
    const char *id = getenv("TPU_WORKER_ID");
    from_environment("TPU_ACCELERATOR_TYPE", host.pod_type, sizeof host.pod_type);
    from_environment("TPU_TOPOLOGY", host.topology, sizeof host.topology);
    from_environment("TPU_NAME", host.slice, sizeof host.slice);
    host.worker_id = -1;
    if (id != NULL) (void)str_to_int64(id, 0, INT32_MAX, &host.worker_id);
    if (!environment_true("TPU_SKIP_MDS_QUERY")) metadata_fill(&host);
    if (tpu_pod_type(host.pod_type, pod_type, NULL) == 0) (void)tpu_type(pod_type, inventory->type);
    char worker_id[24] = "";
    if (host.worker_id >= 0) (void)snprintf(worker_id, sizeof worker_id, "%lld", (long long)host.worker_id);
    int result = set_label(inventory, "ray.io/tpu-slice-name", host.slice, err);
    if (result == 0) result = set_label(inventory, "ray.io/tpu-worker-id", worker_id, err);
    if (result == 0) result = set_label(inventory, "ray.io/tpu-topology", host.topology, err);
    if (result == 0) result = set_label(inventory, "ray.io/tpu-pod-type", pod_type, err);
    return result == 0 ? add_slice_resources(inventory, &host, pod_type, err) : result;
}

/* -- devices -- */

/* Chip c is shown as the units c*k .. c*k + k-1. */
static int chips_to_units(struct inventory *inventory, int64_t units) {
    struct inventory made = {0};
    for (size_t i = 0; i < inventory->n; i++) {
        int64_t chip;
        bool numbered = str_to_int64(inventory->devices[i].id, 0, INT32_MAX, &chip);
        for (int64_t unit = 0; numbered && unit < units; unit++) {
            struct device *device = inventory_add(&made);
            if (device == NULL) {
                free(made.devices);
                return -ENOMEM;
            }
            (void)snprintf(device->id, sizeof device->id, "%lld", (long long)(chip * units + unit));
        }
    }
    free(inventory->devices);
    inventory->devices = made.devices;
    inventory->n = made.n;
    return 0;
}

static int detect(struct inventory *inventory, ty_error *err) {
    int64_t units;
    size_t chips = count_chips();
    if (chips == 0) return 0;
    int result = tpu_units_per_chip(&units, err);
    if (result == 0) result = inventory_add_many(inventory, chips);
    if (result == 0) result = inventory_restrict(inventory, getenv(accelerator_google.visible));
    if (result == 0 && units > 1) result = chips_to_units(inventory, units);
    return result == 0 ? describe_host(inventory, err) : result;
}

/* -- what a worker sees -- */

/* libtpu wants the shape of one or two chips of a host told (2.5); of more there are no bounds to tell. */
static int show_part(const char *visible, size_t chips, environment_change *change, void *context) {
    const char *bounds = chips == 1 ? "1,1,1" : "1,2,1";
    int result = change(context, accelerator_google.visible, visible);
    if (result != 0 || chips > 2) return result;
    result = change(context, "TPU_CHIPS_PER_HOST_BOUNDS", bounds);
    return result == 0 ? change(context, "TPU_HOST_BOUNDS", "1,1,1") : result;
}

/* All chips of the host need no variable, unless an inherited one hides some: then what is left is said
 * again. */
static int set_visible(const struct accelerator *self, const char *const *ids, size_t n, size_t host_devices,
                       environment_change *change, void *context) {
    CLEANUP(idset_done) struct idset chips = {0};
    CLEANUP(buffer_done) struct buffer visible = {0};
    int64_t units;
    if (tpu_units_per_chip(&units, NULL) < 0) units = 1;
    bool numbered = true; /* every id is a number: then these are the chips of the units */
    for (size_t i = 0; i < n && numbered; i++) {
        int64_t id;
        numbered = str_to_int64(ids[i], 0, IDSET_MAX - 1, &id) && idset_add(&chips, id / units) >= 0;
    }
    size_t count = numbered ? idset_count(&chips) : n;
    if (count == host_devices / (size_t)units && getenv(self->visible) == NULL) {
        int result = change(context, "TPU_CHIPS_PER_HOST_BOUNDS", NULL);
        return result == 0 ? change(context, "TPU_HOST_BOUNDS", NULL) : result;
    }
    if (!numbered)
        return join_ids(ids, n, &visible) ? show_part(visible.data, count, change, context) : -ENOMEM;
    for (int64_t chip = idset_next(&chips, -1); chip != IDSET_END; chip = idset_next(&chips, chip))
        buffer_printf(&visible, "%s%lld", visible.size > 0 ? "," : "", (long long)chip);
    return visible.failed ? -ENOMEM : show_part(visible.data, count, change, context);
}

const struct accelerator accelerator_google = {
    .vendor = "google",
    .resource = "TPU",
    .visible = "TPU_VISIBLE_CHIPS",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS"),
    .exclusive = true,
    .detect = detect,
    .set_visible = set_visible,
};
