/* The use of a node: how much of its amounts and devices is free, made from what a cluster file, or Slurm,
 * calls available. A node of which all is free has none, which is what most nodes of a large cluster are. Who
 * holds what is not known here (lease.c). */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cluster/cluster.h"

static struct node_use *all_free(const struct node_shape *shape) {
    struct node_use *use = calloc(1, sizeof *use);
    if (use == NULL) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < shape->n_devices; i++)
        n += shape->devices[i].n;
    /* One block: the pointers, then the amounts of all devices. */
    if (shape->n_devices > 0)
        use->device_free = malloc(shape->n_devices * sizeof *use->device_free + n * sizeof **use->device_free);
    if ((shape->n_devices > 0 && use->device_free == NULL) ||
        resources_copy(&use->available, &shape->total) < 0) {
        node_use_destroy(use);
        return NULL;
    }
    if (shape->n_devices == 0) return use;
    quantity *amounts = (quantity *)(use->device_free + shape->n_devices);
    for (size_t i = 0; i < n; i++)
        amounts[i] = QUANTITY_ONE;
    for (size_t i = 0; i < shape->n_devices; i++) {
        use->device_free[i] = amounts;
        amounts += shape->devices[i].n;
    }
    return use;
}

static int refuse_unknown(const struct node_shape *shape, const char *name, ty_error *err) {
    const char **names = calloc(shape->total.n + 1, sizeof *names);
    if (names == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < shape->total.n; i++)
        names[i] = shape->total.items[i].name;
    const char *nearest = str_nearest(name, names, shape->total.n);
    int rc = ty_fail(err, TY_EUSAGE, "available %s: the node has no such resource%s%s%s", name,
                     nearest != NULL ? " (did you mean " : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "?)" : "");
    free(names);
    return rc;
}

static int check_available(const struct node_shape *shape, const struct resource *available, ty_error *err) {
    quantity total = resources_get(&shape->total, available->name);
    if (available->amount > 0 && total == 0) return refuse_unknown(shape, available->name, err);
    if (available->amount < 0)
        return ty_fail(err, TY_EUSAGE, "available %s cannot be negative", available->name);
    if (available->amount > total)
        return ty_fail(err, TY_EUSAGE, "available %s is %.10g, but the node has %.10g", available->name,
                       quantity_to_double(available->amount), quantity_to_double(total));
    return 0;
}

int node_use_create(const struct node_shape *shape, const struct resources *available, struct node_use **use,
                    ty_error *err) {
    for (size_t i = 0; i < available->n; i++) {
        int rc = check_available(shape, &available->items[i], err);
        if (rc < 0) return rc;
    }
    struct node_use *made = all_free(shape);
    if (made == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < made->available.n; i++) {
        struct resource *resource = &made->available.items[i];
        if (resources_has(available, resource->name))
            resource->amount = resources_get(available, resource->name);
    }
    for (size_t i = 0; i < shape->n_devices; i++) {
        const char *name = shape->devices[i].resource;
        /* What is used is taken from the devices, lowest first. */
        quantity *device_free = made->device_free[i];
        quantity used = resources_get(&shape->total, name) - resources_get(&made->available, name);
        for (size_t j = 0; j < shape->devices[i].n && used > 0; j++) {
            quantity taken = used < device_free[j] ? used : device_free[j];
            device_free[j] -= taken;
            used -= taken;
        }
    }
    *use = made;
    return 0;
}

void node_use_destroy(struct node_use *use) {
    if (use == NULL) return;
    resources_done(&use->available);
    free(use->device_free);
    free(use);
}
