/* Grants to the open node, and their return (docs/spec/placement.md 3.6): amounts, and which devices. A return
 * undoes its grant exactly, device by device; whether a bundle fits at all was asked before. Which node is open
 * is the decision's (decision.c). */
#include <string.h>

#include "placement/kind.h"
#include "scaling/device.h"

bool open_node_fits(const struct classes *classes, const struct kind *kind) {
    const struct open_node *open = &classes->open;
    struct node_view state = {open->shape, open->amounts, open->devices};
    return kind_count_on(kind, classes, &state, 1) == 1;
}

/* A part: the device with the least that is enough. Whole ones: the lowest that are wholly free. That there are
 * such was asked before (open_node_fits): the loops have no other end. */
static size_t grant_devices(uint16_t *devices, size_t n, quantity amount, uint16_t *positions) {
    size_t granted = 0, need = (size_t)(amount / QUANTITY_ONE);
    if (amount >= QUANTITY_ONE) {
        for (size_t i = 0; granted < need; i++) {
            if (devices[i] != QUANTITY_ONE) continue;
            devices[i] = 0;
            positions[granted++] = (uint16_t)i;
        }
        return granted;
    }
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (devices[i] >= amount && (best == n || devices[i] < devices[best])) best = i;
    devices[best] = (uint16_t)(devices[best] - amount);
    positions[0] = (uint16_t)best;
    return 1;
}

static size_t return_devices(uint16_t *devices, quantity amount, const uint16_t *positions) {
    size_t n = amount < QUANTITY_ONE ? 1 : (size_t)(amount / QUANTITY_ONE);
    for (size_t i = 0; i < n; i++)
        devices[positions[i]] =
            (uint16_t)(devices[positions[i]] + (amount < QUANTITY_ONE ? amount : (quantity)QUANTITY_ONE));
    return n;
}

void open_node_grant(struct classes *classes, const struct kind *kind, uint16_t *positions) {
    const struct open_node *open = &classes->open;
    const struct shape_info *info = &classes->shapes[open->shape];
    const uint16_t *bound = kind_bound(kind, open->shape);
    for (size_t i = 0; i < kind->n_wanted; i++) {
        open->amounts[bound[i]] -= kind->wanted[i].amount;
        uint32_t resource = info->first_resource + bound[i];
        if (kind->wanted[i].device && classes->devices_at[resource] >= 0)
            positions += grant_devices(open->devices + classes->devices_at[resource],
                                       classes->devices_n[resource], kind->wanted[i].amount, positions);
    }
}

void open_node_return(struct classes *classes, const struct kind *kind, const uint16_t *positions) {
    const struct open_node *open = &classes->open;
    const struct shape_info *info = &classes->shapes[open->shape];
    const uint16_t *bound = kind_bound(kind, open->shape);
    for (size_t i = 0; i < kind->n_wanted; i++) {
        open->amounts[bound[i]] += kind->wanted[i].amount;
        uint32_t resource = info->first_resource + bound[i];
        if (kind->wanted[i].device && classes->devices_at[resource] >= 0)
            positions += return_devices(open->devices + classes->devices_at[resource], kind->wanted[i].amount,
                                        positions);
    }
}

/* ---- a return without the kind: kinds may have been forgotten since the grant (kind_table_trim), and to find
 * one anew takes memory, while what a gang holds must always be given back ---- */

/* More than a node can have is granted to nobody: a wish for billions of devices takes no row of billions. */
static size_t positions_of(const struct resource *item) {
    if (!item->amount || !accelerator_is_device(item->name)) return 0;
    if (item->amount / QUANTITY_ONE > NODE_MAX_DEVICES) return NODE_MAX_DEVICES;
    return item->amount < QUANTITY_ONE ? 1 : (size_t)(item->amount / QUANTITY_ONE);
}

size_t resources_positions(const struct resources *resources) {
    size_t n = 0;
    for (size_t i = 0; i < resources->n; i++)
        n += positions_of(&resources->items[i]);
    return n;
}

void open_node_return_resources(struct classes *classes, const struct resources *resources,
                                const uint16_t *positions) {
    const struct open_node *open = &classes->open;
    const struct shape_info *info = &classes->shapes[open->shape];
    const struct resources *total = &info->shape->total;
    for (size_t i = 0; i < resources->n; i++) {
        const struct resource *item = &resources->items[i];
        size_t at = kind_resource_index(total, item->name);
        if (!item->amount || at == total->n) continue;
        open->amounts[at] += item->amount;
        int32_t devices = classes->devices_at[info->first_resource + at];
        if (devices < 0 || !positions_of(item)) continue;
        size_t offset = 0; /* of its devices in the row: behind those of all names before it */
        for (size_t j = 0; j < resources->n; j++)
            if (strcmp(resources->items[j].name, item->name) < 0) offset += positions_of(&resources->items[j]);
        (void)return_devices(open->devices + devices, item->amount, positions + offset);
    }
}
