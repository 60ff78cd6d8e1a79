/* Devices of a class that the kernel shows in /dev, told apart by what /sys says of their PCI parents: for
 * vendors that have a class in common, such as the render nodes of GPUs. The numbers of vendors and models are
 * in the vendors' files; no device is opened, so that none is woken. */
#include <errno.h>
#include <stdio.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"

const struct pci_class pci_render = {"/dev/dri", "renderD", "drm"};

static bool read_id(const struct pci_class *class, int64_t number, const char *file, int64_t *value) {
    char path[MACHINE_PATH_SIZE];
    (void)snprintf(path, sizeof path, "/sys/class/%s/%s%lld/device/%s", class->name, class->prefix,
                   (long long)number, file);
    return machine_read_number(path, value);
}

int inventory_add_pci(struct inventory *inventory, const struct pci_class *class, int64_t vendor,
                      const char *(*name_of)(int64_t device_id)) {
    CLEANUP(idset_done) struct idset numbers = {0};
    int result = machine_numbers(class->directory, class->prefix, "", false, &numbers);
    if (result < 0) return result == -ENOMEM ? result : 0;
    for (int64_t number = idset_next(&numbers, -1); number != IDSET_END;
         number = idset_next(&numbers, number)) {
        int64_t found, id = 0;
        if (!read_id(class, number, "vendor", &found) || found != vendor) continue;
        (void)read_id(class, number, "device", &id);
        const char *name = name_of == NULL ? "" : name_of(id);
        if (name == NULL) continue;
        struct device *device = inventory_add(inventory);
        if (device == NULL) return -ENOMEM;
        char path[MACHINE_PATH_SIZE];
        (void)snprintf(device->name, sizeof device->name, "%s", name);
        (void)snprintf(path, sizeof path, "/sys/class/%s/%s%lld/device", class->name, class->prefix,
                       (long long)number);
        (void)machine_link(path, device->bus_id, sizeof device->bus_id);
    }
    return 0;
}
