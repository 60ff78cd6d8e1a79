/* This machine as a cluster of one node: what the kernel lets us use and what the accelerator room found, then
 * what the user says instead (docs/spec/accelerators.md 1.4: explicit before detected). Who else uses the
 * machine does not count here: that is what leases tell. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "cluster/cluster.h"
#include "scaling/device.h"

static int set(struct resources *resources, const char *name, quantity amount, ty_error *err) {
    return resources_set(resources, name, amount) < 0 ? ty_fail_memory(err) : 0;
}

/* -- what the user says -- */

static int add_count(struct resources *given, const char *name, const char *option, double count,
                     ty_error *err) {
    quantity amount;
    if (count < 0) return 0;
    int rc = quantity_from_double(count, option, &amount, err);
    return rc < 0 ? rc : set(given, name, amount, err);
}

/* num_cpus, num_gpus and node_resources as one list. */
static int gather_given(const struct cluster_overrides *overrides, struct resources *given, ty_error *err) {
    if (overrides == NULL) return 0;
    int rc = add_count(given, "CPU", "num_cpus", overrides->num_cpus, err);
    if (rc == 0) rc = add_count(given, "GPU", "num_gpus", overrides->num_gpus, err);
    for (size_t i = 0; rc == 0 && i < overrides->node_resources.n; i++) {
        const struct resource *resource = &overrides->node_resources.items[i];
        if (resources_has(given, resource->name))
            return ty_fail(err, TY_EUSAGE, "node_resources: %s is given by num_%ss already", resource->name,
                           strcmp(resource->name, "CPU") == 0 ? "cpu" : "gpu");
        rc = set(given, resource->name, resource->amount, err);
    }
    return rc;
}

/* -- devices -- */

struct texts {
    char **items;
    size_t n;
};

static void texts_done(struct texts *texts) {
    for (size_t i = 0; i < texts->n; i++)
        free(texts->items[i]);
    free(texts->items);
    *texts = (struct texts){0};
}

/* The ids that an inherited visible-devices variable names. -1 when there is no such variable. */
static int read_visible(const struct accelerator *vendor, struct texts *ids) {
    const char *value = vendor == NULL || vendor->visible == NULL ? NULL : getenv(vendor->visible);
    CLEANUP(buffer_done) struct buffer entries = {0};
    int n = accelerator_visible_entries(value, &entries);
    const char *at = entries.data;
    for (int i = 0; i < n; i++, at += strlen(at) + 1) {
        if (ARRAY_GROW(ids->items, ids->n) < 0) return -ENOMEM;
        ids->items[ids->n] = strdup(at);
        if (ids->items[ids->n] == NULL) return -ENOMEM;
        ids->n++;
    }
    return n < 0 ? -1 : 0;
}

static int copy_devices(const struct inventory *inventory, size_t n, struct node_devices *devices) {
    devices->ids = calloc(n + 1, sizeof *devices->ids);
    devices->uuids = calloc(n + 1, sizeof *devices->uuids);
    devices->bus_ids = calloc(n + 1, sizeof *devices->bus_ids);
    if (devices->ids == NULL || devices->uuids == NULL || devices->bus_ids == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        char number[24];
        const struct device *device = i < inventory->n ? &inventory->devices[i] : NULL;
        (void)snprintf(number, sizeof number, "%zu", i);
        devices->ids[i] = strdup(device != NULL ? device->id : number);
        devices->uuids[i] = strdup(device != NULL ? device->uuid : "");
        devices->bus_ids[i] = strdup(device != NULL ? device->bus_id : "");
        if (devices->ids[i] == NULL || devices->uuids[i] == NULL || devices->bus_ids[i] == NULL) return -ENOMEM;
    }
    return 0;
}

/* The first `n` of the devices that are there; logical ones beyond, or where there are none: then an inherited
 * variable names them, so that the masks of nested runs add up. */
static int name_devices(struct node_shape *shape, const struct inventory *inventory, const char *resource,
                        size_t n, ty_error *err) {
    CLEANUP(texts_done) struct texts visible = {0};
    const struct accelerator *vendor = inventory != NULL ? inventory->vendor : accelerator_for(resource, NULL);
    bool real = inventory != NULL && inventory->n > 0;
    int rc = read_visible(vendor, &visible);
    if (rc == -ENOMEM) return ty_fail_memory(err);
    if (rc == 0 && n > visible.n && (real || visible.n > 0)) {
        CLEANUP(buffer_done) struct buffer list = {0};
        for (size_t i = 0; i < visible.n; i++)
            buffer_printf(&list, "%s%s", i > 0 ? ", " : "", visible.items[i]);
        return ty_fail(err, TY_EUSAGE,
                       "Attempting to start node with %zu %s, but %s contains [%s]: at most %zu can be", n,
                       resource, vendor->visible, list.data != NULL ? list.data : "", visible.n);
    }
    struct node_devices *devices = node_shape_add_devices(shape, resource, n);
    if (devices == NULL) return ty_fail_memory(err);
    if (real) return copy_devices(inventory, n, devices) < 0 ? ty_fail_memory(err) : 0;
    if (visible.n == 0) return 0;
    for (size_t i = n; i < visible.n; i++)
        free(visible.items[i]);
    visible.n = 0;
    devices->ids = TAKE(visible.items);
    return 0;
}

/* -- the node -- */

/* A type is advertised only by a node that has such devices (1.1); the first one is the node's. */
static int add_type(struct node_shape *shape, const struct inventory *inventory, ty_error *err) {
    char name[128];
    if (inventory->type[0] == '\0') return 0;
    (void)snprintf(name, sizeof name, ACCELERATOR_TYPE_PREFIX "%s", inventory->type);
    if (shape->accelerator_type != NULL) return set(&shape->total, name, QUANTITY_ONE, err);
    shape->accelerator_type = strdup(inventory->type);
    return shape->accelerator_type == NULL ? ty_fail_memory(err) : 0;
}

/* What is found, then what is given in its place. A type, and the labels of a slice, are those of devices that
 * are left: where the user says that there are none of a resource, nothing is said of them. */
static int fill_shape(struct node_shape *shape, const struct inventory *inventories, size_t n,
                      const struct resources *given, ty_error *err) {
    int64_t cores = usable_quota_cores("", usable_affinity_cores()), memory = usable_memory("");
    int rc = set(&shape->total, "CPU", cores * QUANTITY_ONE, err);
    if (rc == 0 && memory > 0) rc = set(&shape->total, "memory", memory * QUANTITY_ONE, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (inventories[i].n > 0)
            rc = set(&shape->total, inventories[i].vendor->resource, (quantity)inventories[i].n * QUANTITY_ONE,
                     err);
    for (size_t i = 0; rc == 0 && i < given->n; i++)
        rc = set(&shape->total, given->items[i].name, given->items[i].amount, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (inventories[i].n > 0 && resources_get(&shape->total, inventories[i].vendor->resource) > 0) {
            rc = add_type(shape, &inventories[i], err);
            if (rc == 0 && labels_copy(&shape->labels, &inventories[i].labels) < 0) rc = ty_fail_memory(err);
            for (size_t j = 0; rc == 0 && j < inventories[i].extra.n; j++)
                rc = set(&shape->total, inventories[i].extra.items[j].name,
                         inventories[i].extra.items[j].amount, err);
        }
    return rc;
}

/* Amounts that cluster_shape refuses get no names here. */
static int name_all_devices(struct node_shape *shape, const struct inventory *inventories, size_t n,
                            ty_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < shape->total.n; i++) {
        const struct resource *resource = &shape->total.items[i];
        quantity most = (quantity)NODE_MAX_DEVICES * QUANTITY_ONE;
        if (!accelerator_is_device(resource->name) || resource->amount % QUANTITY_ONE != 0) continue;
        if (resource->amount == 0 || resource->amount > most) continue;
        const struct inventory *inventory = NULL;
        for (size_t v = 0; v < n && inventory == NULL; v++)
            if (strcmp(inventories[v].vendor->resource, resource->name) == 0) inventory = &inventories[v];
        rc = name_devices(shape, inventory, resource->name, (size_t)(resource->amount / QUANTITY_ONE), err);
    }
    return rc;
}

int cluster_probe(const struct cluster_overrides *overrides, struct cluster **cluster, ty_error *err) {
    ty_error unseen = {0};
    if (err == NULL) err = &unseen;
    CLEANUP(resources_done) struct resources given = {0};
    CLEANUP(node_shape_done) struct node_shape shape = {0};
    struct inventory *inventories = NULL;
    size_t n = 0;
    int rc = gather_given(overrides, &given, err);
    if (rc == 0) rc = accelerator_probe(&inventories, &n, err);
    if (rc < 0) return rc;
    rc = fill_shape(&shape, inventories, n, &given, err);
    if (rc == 0) rc = name_all_devices(&shape, inventories, n, err);
    accelerator_inventories_free(inventories, n);
    if (rc < 0) return rc;
    char name[HOST_NAME_MAX + 1] = "";
    if (gethostname(name, sizeof name) < 0 || name[0] == '\0') (void)snprintf(name, sizeof name, "localhost");
    struct cluster *made = cluster_create();
    if (made == NULL) return ty_fail_memory(err);
    const struct node_shape *shared = NULL;
    rc = cluster_shape(made, &shape, &shared, err);
    if (rc == 0) rc = cluster_add_node(made, name, shared, NULL, err);
    if (rc == 0)
        *cluster = made;
    else
        cluster_destroy(made);
    return rc;
}
