/* Intel Gaudi: /dev/accel/accel<n> of Habana's PCI vendor id, or /dev/hl<n> of older drivers. Variable:
 * HABANA_VISIBLE_MODULES. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "accelerator/machine.h"
#include "accelerator/vendors.h"
#include "base/cleanup.h"

enum { VENDOR_HABANA = 0x1da3 };

static const char *name_of(int64_t device_id) {
    switch (device_id) {
    case 0x1000:
    case 0x1001:
        return "GAUDI";
    case 0x1020:
        return "GAUDI2";
    case 0x1060:
    case 0x1061:
    case 0x1063:
        return "GAUDI3";
    default:
        return "";
    }
}

static bool read_id(int64_t number, const char *file, int64_t *value) {
    char path[MACHINE_PATH_SIZE];
    (void)snprintf(path, sizeof path, "/sys/class/accel/accel%lld/device/%s", (long long)number, file);
    return machine_read_number(path, value);
}

static int add_device(struct inventory *inventory, int64_t number) {
    char path[MACHINE_PATH_SIZE];
    int64_t vendor, id = 0;
    if (!read_id(number, "vendor", &vendor) || vendor != VENDOR_HABANA) return 0;
    struct device *device = inventory_add(inventory);
    if (device == NULL) return -ENOMEM;
    (void)read_id(number, "device", &id);
    (void)snprintf(device->name, sizeof device->name, "%s", name_of(id));
    (void)snprintf(path, sizeof path, "/sys/class/accel/accel%lld/device", (long long)number);
    (void)machine_link(path, device->bus_id, sizeof device->bus_id);
    return 0;
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    CLEANUP(idset_done) struct idset numbers = {0};
    if (machine_numbers("/dev/accel", "accel", "", false, &numbers) < 0) return 0;
    for (int64_t number = idset_next(&numbers, -1); number != IDSET_END; number = idset_next(&numbers, number))
        if (add_device(inventory, number) < 0) return -ENOMEM;
    if (inventory->n == 0 && inventory_add_numbered(inventory, "/dev", "hl") < 0) return -ENOMEM;
    if (inventory->n == 0) return 0;
    if (inventory->devices[0].name[0] != '\0')
        (void)snprintf(inventory->type, sizeof inventory->type, "Intel-%.50s", inventory->devices[0].name);
    return inventory_restrict(inventory, getenv(accelerator_habana.visible));
}

const struct accelerator accelerator_habana = {
    .vendor = "habana",
    .resource = "HPU",
    .visible = "HABANA_VISIBLE_MODULES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"),
    .detect = detect,
};
