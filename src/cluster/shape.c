/* Node shapes: what follows from a node's type and labels is added, what no node can have is refused, and equal
 * shapes are told by content. Shapes come from other machines and from files as well, and are checked here, in
 * one place. Which devices of a node are in use is its use's (node_use.c). */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/device.h"
#include "scaling/tpu.h"

static void free_texts(char **texts, size_t n) {
    if (texts == NULL) return;
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
}

void node_shape_done(struct node_shape *shape) {
    resources_done(&shape->total);
    labels_done(&shape->labels);
    free(shape->accelerator_type);
    for (size_t i = 0; i < shape->n_devices; i++) {
        struct node_devices *devices = &shape->devices[i];
        free(devices->resource);
        free_texts(devices->ids, devices->n);
        free_texts(devices->uuids, devices->n);
        free_texts(devices->bus_ids, devices->n);
    }
    free(shape->devices);
    *shape = (struct node_shape){0};
}

const char *node_device_id(const struct node_devices *devices, size_t index, char text[24]) {
    if (devices->ids != NULL) return devices->ids[index];
    (void)snprintf(text, 24, "%zu", index);
    return text;
}

/* From the end, as entries of 0 are taken out on the way. */
static int check_total(struct resources *total, ty_error *err) {
    for (size_t i = total->n; i-- > 0;) {
        const struct resource *resource = &total->items[i];
        if (str_prefix(resource->name, "node:", NULL))
            return ty_fail(err, TY_EUSAGE, "resource %s: names that begin with node: are Trainyard's own",
                           resource->name);
        if (resource_check_name(resource->name, err) < 0) return TY_EUSAGE;
        if (resource->amount < 0)
            return ty_fail(err, TY_EUSAGE, "resource %s cannot be negative", resource->name);
        if (resource->amount % QUANTITY_ONE != 0)
            return ty_fail(err, TY_EUSAGE, "resource %s must be a whole number on a node, but it is %.10g",
                           resource->name, quantity_to_double(resource->amount));
        if (accelerator_is_device(resource->name) && resource->amount / QUANTITY_ONE > NODE_MAX_DEVICES)
            return ty_fail(err, TY_EUSAGE, "resource %s: at most %d devices on a node, but it is %.10g",
                           resource->name, NODE_MAX_DEVICES, quantity_to_double(resource->amount));
        if (resource->amount == 0) resources_remove(total, resource->name);
    }
    return 0;
}

/* -- what follows -- */

static int set_if_absent(struct resources *total, const char *name, ty_error *err) {
    if (resources_has(total, name)) return 0;
    return resources_set(total, name, QUANTITY_ONE) < 0 ? ty_fail_memory(err) : 0;
}

static int add_type_resource(struct resources *total, const char *type, ty_error *err) {
    char name[128];
    (void)snprintf(name, sizeof name, ACCELERATOR_TYPE_PREFIX "%s", type);
    return set_if_absent(total, name, err);
}

/* docs/spec/accelerators.md 1.1: a type is a custom resource and a label; a type of two names (1.2) serves
 * both. */
static int add_type(struct node_shape *shape, ty_error *err) {
    const char *type = shape->accelerator_type;
    if (type == NULL) return 0;
    if (type[0] == '\0' || strlen(type) > 63)
        return ty_fail(err, TY_EUSAGE, "accelerator_type must be 1 to 63 characters, not \"%s\"", type);
    const char *alias = accelerator_type_alias(type);
    int rc = add_type_resource(&shape->total, type, err);
    if (rc == 0 && alias != NULL) rc = add_type_resource(&shape->total, alias, err);
    if (rc < 0 || labels_get(&shape->labels, "ray.io/accelerator-type") != NULL) return rc;
    /* Any name is a legal type (1.2), but not any name is a label's value: such a type goes without the
     * label. */
    rc = labels_set(&shape->labels, "ray.io/accelerator-type", type, NULL);
    return rc == -ENOMEM ? ty_fail_memory(err) : 0;
}

/* docs/spec/accelerators.md 2.7: each host of a slice advertises the slice, worker 0 also the head of its pod
 * type. */
static int add_slice(struct node_shape *shape, ty_error *err) {
    const char *slice = labels_get(&shape->labels, "ray.io/tpu-slice-name");
    const char *worker = labels_get(&shape->labels, "ray.io/tpu-worker-id");
    const char *pod = labels_get(&shape->labels, "ray.io/tpu-pod-type");
    if (slice == NULL || worker == NULL || pod == NULL || slice[0] == '\0') return 0;
    int64_t id;
    if (!str_to_int64(worker, 0, INT32_MAX, &id))
        return ty_fail(err, TY_EUSAGE, "label ray.io/tpu-worker-id must be a whole number from 0, not \"%s\"",
                       worker);
    char pod_type[32], head[64];
    int rc = tpu_pod_type(pod, pod_type, err);
    if (rc < 0) return ty_wrap(err, "label ray.io/tpu-pod-type");
    (void)snprintf(head, sizeof head, "TPU-%s-head", pod_type);
    rc = set_if_absent(&shape->total, slice, err);
    if (rc == 0 && id == 0) rc = set_if_absent(&shape->total, head, err);
    return rc;
}

struct node_devices *node_shape_add_devices(struct node_shape *shape, const char *resource, size_t n) {
    if (ARRAY_GROW(shape->devices, shape->n_devices) < 0) return NULL;
    char *name = strdup(resource);
    if (name == NULL) return NULL;
    shape->devices[shape->n_devices] = (struct node_devices){.resource = name, .n = n};
    return &shape->devices[shape->n_devices++];
}

static int copy_texts(char *const *from, size_t n, char ***to) {
    if (from == NULL) return 0;
    *to = calloc(n + 1, sizeof **to);
    for (size_t i = 0; *to != NULL && i < n; i++)
        if (((*to)[i] = strdup(from[i])) == NULL) return -ENOMEM;
    return *to != NULL ? 0 : -ENOMEM;
}

int node_devices_name(struct node_devices *devices, char *const *ids, char *const *uuids,
                      char *const *bus_ids) {
    int result = copy_texts(ids, devices->n, &devices->ids);
    if (result == 0) result = copy_texts(uuids, devices->n, &devices->uuids);
    return result == 0 ? copy_texts(bus_ids, devices->n, &devices->bus_ids) : result;
}

/* The devices of a resource, without names unless they have some. */
static int complete_devices(struct node_shape *shape, const struct resource *resource, ty_error *err) {
    size_t n = (size_t)(resource->amount / QUANTITY_ONE);
    for (size_t i = 0; i < shape->n_devices; i++) {
        const struct node_devices *known = &shape->devices[i];
        if (strcmp(known->resource, resource->name) != 0) continue;
        if (known->n == n) return 0;
        return ty_fail(err, TY_EFAULT, "resource %s is %zu but %zu devices are named", resource->name, n,
                       known->n);
    }
    return node_shape_add_devices(shape, resource->name, n) == NULL ? ty_fail_memory(err) : 0;
}

int node_shape_complete(struct node_shape *shape, ty_error *err) {
    int rc = check_total(&shape->total, err);
    if (rc == 0) rc = add_type(shape, err);
    if (rc == 0) rc = add_slice(shape, err);
    for (size_t i = 0; rc == 0 && i < shape->total.n; i++)
        if (accelerator_is_device(shape->total.items[i].name))
            rc = complete_devices(shape, &shape->total.items[i], err);
    return rc;
}

/* -- equality -- */

static uint64_t mix(uint64_t hash, const char *text) {
    return (hash ^ str_hash(text, strlen(text))) * 0x9e3779b97f4a7c15u;
}

/* Machines that are alike but for the UUIDs of their devices, as those of one order are, must not share a hash:
 * each that joins has a shape of its own then, and would be compared with all before it. The first UUID tells
 * them apart. */
uint64_t node_shape_hash(const struct node_shape *shape) {
    uint64_t hash = shape->total.n;
    for (size_t i = 0; i < shape->n_devices; i++)
        if (shape->devices[i].n > 0 && shape->devices[i].uuids != NULL)
            hash = mix(hash, shape->devices[i].uuids[0]);
    for (size_t i = 0; i < shape->total.n; i++)
        hash = mix(hash ^ (uint64_t)shape->total.items[i].amount, shape->total.items[i].name);
    for (size_t i = 0; i < shape->labels.n; i++)
        hash = mix(mix(hash, shape->labels.items[i].key), shape->labels.items[i].value);
    return hash ^ hash >> 32;
}

static bool resources_equal(const struct resources *a, const struct resources *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->items[i].amount != b->items[i].amount || strcmp(a->items[i].name, b->items[i].name) != 0)
            return false;
    return true;
}

static bool labels_equal(const struct labels *a, const struct labels *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->items[i].key, b->items[i].key) != 0 || strcmp(a->items[i].value, b->items[i].value) != 0)
            return false;
    return true;
}

static bool texts_equal(char *const *a, char *const *b, size_t n) {
    if (a == NULL || b == NULL) return a == b;
    for (size_t i = 0; i < n; i++)
        if (strcmp(a[i], b[i]) != 0) return false;
    return true;
}

bool node_shape_equal(const struct node_shape *a, const struct node_shape *b) {
    if (!resources_equal(&a->total, &b->total) || !labels_equal(&a->labels, &b->labels)) return false;
    if (!str_equal(a->accelerator_type, b->accelerator_type) || a->n_devices != b->n_devices) return false;
    for (size_t i = 0; i < a->n_devices; i++) {
        const struct node_devices *x = &a->devices[i], *y = &b->devices[i];
        if (x->n != y->n || strcmp(x->resource, y->resource) != 0 || !texts_equal(x->ids, y->ids, x->n) ||
            !texts_equal(x->uuids, y->uuids, x->n) || !texts_equal(x->bus_ids, y->bus_ids, x->n))
            return false;
    }
    return true;
}
