/* MetaX GPUs: render devices of its PCI vendor id. Variable: CUDA_VISIBLE_DEVICES, as for the libraries it
 * stands in for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "accelerator/machine.h"
#include "accelerator/vendors.h"
#include "base/cleanup.h"

enum { VENDOR_METAX = 0x9999 };

static int add_device(struct inventory *inventory, int64_t minor) {
    char path[MACHINE_PATH_SIZE];
    int64_t vendor;
    (void)snprintf(path, sizeof path, "/sys/class/drm/renderD%lld/device/vendor", (long long)minor);
    if (!machine_read_number(path, &vendor) || vendor != VENDOR_METAX) return 0;
    struct device *device = inventory_add(inventory);
    if (device == NULL) return -ENOMEM;
    (void)snprintf(path, sizeof path, "/sys/class/drm/renderD%lld/device", (long long)minor);
    (void)machine_link(path, device->bus_id, sizeof device->bus_id);
    return 0;
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    CLEANUP(idset_done) struct idset minors = {0};
    if (machine_numbers("/dev/dri", "renderD", "", false, &minors) < 0) return 0;
    for (int64_t minor = idset_next(&minors, -1); minor != IDSET_END; minor = idset_next(&minors, minor))
        if (add_device(inventory, minor) < 0) return -ENOMEM;
    return inventory->n == 0 ? 0 : inventory_restrict(inventory, getenv(accelerator_metax.visible));
}

const struct accelerator accelerator_metax = {
    .vendor = "metax",
    .resource = "GPU",
    .visible = "CUDA_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
    .detect = detect,
};
