/* The names of accelerator types (docs/spec/accelerators.md 1.2): what a scaling config may ask for and a node
 * may be. Pure. */
#ifndef SCALING_ACCELERATOR_TYPE_H
#define SCALING_ACCELERATOR_TYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

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
