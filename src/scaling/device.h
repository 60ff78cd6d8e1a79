/* Devices by name: resources that are counted as single devices, the amounts of them that may be asked for or
 * offered (docs/spec/accelerators.md 1.3, 1.7; docs/spec/placement.md 3.5, 3.6), and the names of accelerator
 * types (1.2). Pure. How devices are found is the room accelerator's. */
#ifndef SCALING_DEVICE_H
#define SCALING_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/quantity.h"

/* True for GPU, TPU, NPU, HPU, RBLN, neuron_cores, FURIOSA, MBLT, MLU: counted as single devices. */
bool accelerator_is_device(const char *resource);

/* Refuses an amount of `resource` that no worker may ask for: negative, against its vendor's rule, or a
 * device amount above 1 that is not whole. Any amount of other resources is good. */
int accelerator_check_amount(const char *resource, quantity amount, ty_error *err);

/* Refuses a name that cannot be a resource: empty, "bundle", control characters, or a well-known name in the
 * wrong case. */
int resource_check_name(const char *name, ty_error *err);

/* The names of accelerator types (docs/spec/accelerators.md 1.2): what a scaling config may ask for and a node
 * may be. Pure. */

/* The resource that stands for a type is this followed by its name: 1 on a node, 0.001 in a worker's demand. */
#define ACCELERATOR_TYPE_PREFIX "accelerator_type:"

struct accelerator_type {
    const char *type, *vendor, *resource;
    const char *note; /* "" or why it is never detected */
};

/* Known type names, *n of them; static storage. */
const struct accelerator_type *accelerator_types(size_t *n);

/* 0 for a known type and for names that a detector makes from a device's own ("GeForce-RTX-4090"); else
 * TY_EUSAGE with the nearest known name, without this one. */
int accelerator_type_check(const char *type, ty_error *err);

/* The other name of the same type ("AMD-Instinct-MI308X" and "-OAM"), or NULL. */
const char *accelerator_type_alias(const char *type);
/* True when a node of type `have` serves a request for `want`: equal, or aliases. */
bool accelerator_type_matches(const char *want, const char *have);

#endif
