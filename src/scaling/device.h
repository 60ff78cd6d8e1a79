/* Resources that are counted as single devices, and the amounts of them that may be asked for or offered
 * (docs/spec/accelerators.md 1.3, 1.7; docs/spec/placement.md 3.5, 3.6). Pure. How devices are found is the
 * room accelerator's. */
#ifndef SCALING_DEVICE_H
#define SCALING_DEVICE_H

#include <stdbool.h>

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

#endif
