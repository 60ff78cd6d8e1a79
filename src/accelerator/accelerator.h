/* Accelerators of every vendor behind one table: what they are called as a resource, how they are found,
 * which type name they have, and which variable makes them visible to a process (docs/spec/accelerators.md 1).
 * One file a vendor; another vendor is one more file, and a row of ACCELERATOR_VENDORS (vendors.h).
 *
 * What is found is what the machine shows to this process. That other runs hold some of it is told by leases
 * (cluster/lease.h), which devices a worker gets is decided by placement, and what devices do meanwhile is read
 * by usage. */
#ifndef ACCELERATOR_ACCELERATOR_H
#define ACCELERATOR_ACCELERATOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/quantity.h"
#include "scaling/device.h"
#include "scaling/label.h"

/* One device as found on this machine. */
struct device {
    char id[80];          /* what goes into the visible-devices variable: index, UUID or MIG id, as inherited */
    char uuid[128];       /* "" when unknown; of a part, which nobody may use beside the whole: WHOLE/PART */
    char name[128];       /* the vendor's name for it; "" when unknown */
    char bus_id[32];      /* PCI address, "" when unknown; finds its cores and memory */
    int64_t memory_bytes; /* 0 when unknown */
};

/* The devices of one resource name on this machine. */
struct inventory {
    const struct accelerator *vendor;
    char type[64];          /* accelerator type, "" when unknown */
    struct device *devices; /* owned; only those that the inherited visible-devices variable leaves */
    size_t n;
    struct labels labels;   /* TPU slice labels and the like */
    struct resources extra; /* TPU slice name and head resources (2.7) */
};

/* A change to one variable of a worker's environment; value NULL unsets. */
typedef int environment_change(void *context, const char *name, const char *value);

struct accelerator {
    const char *vendor;         /* "nvidia" */
    const char *resource;       /* "GPU" */
    const char *visible;        /* "CUDA_VISIBLE_DEVICES"; NULL when there is none */
    const char *const *opt_out; /* variables that, when true, leave `visible` alone; NULL-terminated */
    const char *order[2]; /* optional: the variable, and its value for which indices count as they do here */
    bool exclusive;       /* one process only may open a device: a worker never sees those of others */
    /* Finds this machine's devices. 0 with n == 0 when there are none or no driver is present; an error only
     * for what the user must mend (conflicting variables). */
    int (*detect)(struct inventory *inventory, ty_error *err);
    /* Optional: where more is to be set than visible = ids joined by commas (TPU bounds, ONEAPI selector).
     * `n` is above 0; `host_devices` is how many the node has. */
    int (*set_visible)(const struct accelerator *self, const char *const *ids, size_t n, size_t host_devices,
                       environment_change *change, void *context);
};

/* The vendor whose variable serves a resource of a node: by accelerator type when known ("AMD-..." for GPU),
 * else the first that has this resource name; NULL for resources that are not devices. */
const struct accelerator *accelerator_for(const char *resource, const char *accelerator_type);

/* This machine's accelerators: at most one inventory a resource name (1.3's priority). Owned by the caller. */
int accelerator_probe(struct inventory **inventories, size_t *n, ty_error *err);
void accelerator_inventories_free(struct inventory *inventories, size_t n);

/* Sets the visible-devices variables for a worker that is to see `ids` (the node's ids, in order; under an
 * inherited variable they are its entries already, so that masks nest). Honours opt_out and
 * RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO. What `change` returns when that is not 0, or -ENOMEM. */
int accelerator_set_visible(const struct accelerator *accelerator, const char *const *ids, size_t n,
                            size_t host_devices, environment_change *change, void *context);

/* Beside it, where the ids are those of real devices: for a worker that is to see one of them by its index, in
 * which order the indices count. Honours opt_out. */
int accelerator_set_order(const struct accelerator *accelerator, const char *const *ids, size_t n,
                          environment_change *change, void *context);

/* True for an id that is a number, and so means another device in another order. */
bool accelerator_is_index(const char *id);

/* Entries of a visible-devices variable: -1 when unset (all), else the number of entries, each appended
 * NUL-terminated to `entries` ("", NoDevFiles and -1: 0); no entry twice. */
int accelerator_visible_entries(const char *value, struct buffer *entries);

/* Device name -> type ("Tesla V100-SXM2-16GB" -> "V100", 1.5); also an AMD PCI id ("0x74a1"), a TPU pod type
 * ("v5litepod-16") and a Furiosa architecture ("rngd+"). False when there is none. */
bool accelerator_classify(const char *name, char type[64]);

#endif
