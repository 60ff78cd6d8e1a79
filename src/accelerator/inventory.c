/* The list of devices that a vendor's detector fills, and the inherited variable that shortens it: a program
 * that was itself given some devices offers no others. Where devices are looked for is each vendor's file
 * (vendors.h), and /dev and /sys are read by machine.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

void inventory_done(struct inventory *inventory) {
    free(inventory->devices);
    labels_done(&inventory->labels);
    resources_done(&inventory->extra);
    *inventory = (struct inventory){0};
}

struct device *inventory_add(struct inventory *inventory) {
    if (ARRAY_GROW(inventory->devices, inventory->n) < 0) return NULL;
    struct device *device = &inventory->devices[inventory->n];
    *device = (struct device){0};
    (void)snprintf(device->id, sizeof device->id, "%zu", inventory->n);
    inventory->n++;
    return device;
}

int inventory_add_many(struct inventory *inventory, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (inventory_add(inventory) == NULL) return -ENOMEM;
    return 0;
}

int inventory_add_numbered(struct inventory *inventory, const char *prefix) {
    CLEANUP(idset_done) struct idset numbers = {0};
    int result = machine_numbers("/dev", prefix, "", false, &numbers);
    if (result == -ENOMEM) return result;
    return result < 0 ? 0 : inventory_add_many(inventory, idset_count(&numbers));
}

void inventory_set_type(struct inventory *inventory, const char *type) {
    (void)snprintf(inventory->type, sizeof inventory->type, "%s", type);
}

/* The device that an entry of the variable means: an index, or a UUID or its beginning. NULL for others
 * (MIG). */
static const struct device *find_device(const struct inventory *inventory, const char *entry) {
    int64_t index;
    if (str_to_int64(entry, 0, INT32_MAX, &index))
        return (size_t)index < inventory->n ? &inventory->devices[index] : NULL;
    for (size_t i = 0; i < inventory->n; i++)
        if (str_prefix(inventory->devices[i].uuid, entry, NULL)) return &inventory->devices[i];
    return NULL;
}

/* The devices that are left keep the entries for names, since what a worker is shown must mean the same beneath
 * the inherited variable: masks nest. An entry that means no device of the list is believed, as it may name
 * what is not found here (a MIG instance). */
int inventory_restrict(struct inventory *inventory, const char *value) {
    CLEANUP(buffer_done) struct buffer entries = {0};
    struct inventory left = {0};
    int n = accelerator_visible_entries(value, &entries);
    if (entries.failed) return -ENOMEM;
    if (n < 0) return 0;
    const char *entry = entries.data;
    for (int i = 0; i < n; i++, entry += strlen(entry) + 1) {
        /* Several MIG instances lie on one device; other entries cannot be more than there are devices
         * (docs/spec/accelerators.md 1.4). */
        if (left.n >= inventory->n && !str_prefix(entry, "MIG-", NULL)) break;
        const struct device *found = find_device(inventory, entry);
        bool twice = false; /* a device that is named by index and by UUID is still one */
        for (size_t k = 0; found != NULL && found->uuid[0] != '\0' && k < left.n && !twice; k++)
            twice = strcmp(left.devices[k].uuid, found->uuid) == 0;
        if (twice) continue;
        struct device *device = inventory_add(&left);
        if (device == NULL) {
            free(left.devices);
            return -ENOMEM;
        }
        if (found != NULL) *device = *found;
        (void)snprintf(device->id, sizeof device->id, "%s", entry);
    }
    free(inventory->devices);
    inventory->devices = left.devices;
    inventory->n = left.n;
    return 0;
}
