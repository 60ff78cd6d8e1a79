/* What the vendors' files share: their tables, the steps that most of their detectors take (a list of devices
 * is begun, filled, and shortened by the inherited variable), and the way to /dev and /sys. For this room
 * alone: others see accelerator.h. */
#ifndef ACCELERATOR_VENDORS_H
#define ACCELERATOR_VENDORS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accelerator/accelerator.h"
#include "base/idset.h"

/* X(name): one file a vendor, in the order of docs/spec/accelerators.md 1.3 (Apple has no Linux). */
#define ACCELERATOR_VENDORS(X) \
    X(nvidia)                  \
    X(amd)                     \
    X(intel)                   \
    X(metax)                   \
    X(google)                  \
    X(neuron)                  \
    X(habana)                  \
    X(ascend)                  \
    X(rebellions)              \
    X(furiosa)                 \
    X(mobilint)                \
    X(cambricon)

#define X(name) extern const struct accelerator accelerator_##name;
ACCELERATOR_VENDORS(X)
#undef X

/* A list of variables for accelerator.opt_out. */
#define OPT_OUT(...) ((const char *const[]){__VA_ARGS__, NULL})

/* 1, true, yes, on (any case) are set; 0, false, no, off, "" and unset are not; anything else is. */
bool environment_true(const char *name);

/* Adds a device called by its index; NULL when memory is short. */
struct device *inventory_add(struct inventory *inventory);
/* Adds `n` of them; -ENOMEM. */
int inventory_add_many(struct inventory *inventory, size_t n);
/* Adds one for each /dev/PREFIX<number>. -ENOMEM. */
int inventory_add_numbered(struct inventory *inventory, const char *prefix);
/* Adds one for each <directory>/<prefix><number> whose parent, /sys/class/<name>/<prefix><number>/device, is a
 * PCI device of this vendor, with the name of its PCI device id (0 when unknown); one whose name is NULL is
 * passed over, without `name_of` all are nameless. -ENOMEM. */
struct pci_class {
    const char *directory, *prefix, *name;
};
extern const struct pci_class pci_render; /* /dev/dri/renderD<n> */
int inventory_add_pci(struct inventory *inventory, const struct pci_class *class, int64_t vendor,
                      const char *(*name_of)(int64_t device_id));
/* Leaves only what the value of an inherited variable names, in its order, under its names. NULL leaves all.
 * -ENOMEM. */
int inventory_restrict(struct inventory *inventory, const char *value);
void inventory_set_type(struct inventory *inventory, const char *type);
void inventory_done(struct inventory *inventory);

/* `ids` joined by commas; false when memory is short. */
bool join_ids(const char *const *ids, size_t n, struct buffer *out);

/* NVML as dlopen gives it, not initialised; NULL when there is none. */
void *nvidia_library(void);
/* The render devices (/dev/dri/renderDN) of AMD's devices, in the order in which they are counted, `max` at
 * most; how many. */
size_t amd_render_devices(int64_t *numbers, size_t max);

/* The type of a PCI device id (1.6), or NULL. */
const char *amd_type(int64_t device_id);
/* "rngd+" -> "FURIOSA_RNGDPLUS" (1.3). */
bool furiosa_type(const char *arch, char type[64]);
/* Rules of 1.5 for a device name. */
bool nvidia_type(const char *name, char type[64]);
/* "Intel(R) Data Center GPU Max 1550" -> "Intel-GPU-Max-1550". */
bool intel_type(const char *name, char type[64]);

/* The type of a pod type: "v5litepod-16" -> "TPU-V5LITEPOD". */
bool tpu_type(const char *pod_type, char type[64]);

/* What is known of this TPU host; "" and -1 when unknown. */
struct tpu_host {
    char pod_type[64], topology[64], slice[256];
    int64_t worker_id;
};
/* Fills what is still unknown from the metadata server of Google's cloud. Waits half a second at most in
 * all. */
void metadata_fill(struct tpu_host *host);
/* Reads a reply's body for `key: 'value'` lines, as tpu-env has them. */
bool metadata_find(const char *text, const char *key, char *value, size_t size);

/* Looking at /dev, /sys and /proc of this machine. All paths are taken below $TRAINYARD_SYSROOT when that is
 * set, so that a tree of files can stand for a machine that is not there. */

enum { MACHINE_PATH_SIZE = PATH_MAX };

bool machine_has(const char *path);
/* The text of a small file without the white space at its end; false when it cannot be read or does not fit. */
bool machine_read(const char *path, char *text, size_t size);
/* The beginning of a file, as much as fits; false when it cannot be read, or is empty. */
bool machine_read_some(const char *path, char *text, size_t size);
/* A whole number as /sys writes it, decimal or 0x hexadecimal. */
bool machine_read_number(const char *path, int64_t *number);
/* Last part of the path that a link points to ("0000:3b:00.0"); false when it is no link. */
bool machine_link(const char *path, char *name, size_t size);
/* The value of "KEY VALUE" or "KEY: VALUE" lines in a small file. */
bool machine_property(const char *path, const char *key, int64_t *value);

/* Adds the number of every entry PREFIX<number>SUFFIX of a directory that is not a directory itself (with
 * `directories`: whatever it is). 0 when the directory is missing; -errno when it cannot be read or memory
 * is short. */
int machine_numbers(const char *directory, const char *prefix, const char *suffix, bool directories,
                    struct idset *numbers);

/* Calls `each` with the name of every entry of a directory, in byte order, until it returns other than 0,
 * which is returned. */
int machine_each(const char *directory, int (*each)(void *context, const char *name), void *context);
/* From now on this thread reads /dev once, for all who look at its entries; false: no longer. */
void machine_keep_devices(bool kept);

#endif
