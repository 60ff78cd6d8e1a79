/* AWS Neuron: devices are /dev/neuron<n>, and what is counted are their cores: as the driver says, else as the
 * kind of EC2 machine has them (docs/spec/accelerators.md 1.3). Variable: NEURON_RT_VISIBLE_CORES, which also
 * takes ranges. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"

static const struct {
    const char *machine;
    int64_t cores;
} machines[] = {
    {"trn1.2xlarge", 2}, {"trn1.32xlarge", 32}, {"trn1n.32xlarge", 32}, {"inf2.xlarge", 2},
    {"inf2.8xlarge", 2}, {"inf2.24xlarge", 12}, {"inf2.48xlarge", 24},
};

/* Of all devices together; -1 when the driver does not say it of each, for a part of the sum would be wrong. */
static int64_t cores_by_driver(const struct idset *devices) {
    int64_t total = 0;
    for (int64_t device = idset_next(devices, -1); device != IDSET_END; device = idset_next(devices, device)) {
        char path[MACHINE_PATH_SIZE];
        int64_t cores;
        (void)snprintf(path, sizeof path, "/sys/class/neuron_device/neuron%lld/core_count", (long long)device);
        if (!machine_read_number(path, &cores) || cores <= 0 || cores > 1024) return -1;
        total += cores;
    }
    return total;
}

static int64_t cores_by_machine(void) {
    char name[64];
    if (!machine_read("/sys/devices/virtual/dmi/id/product_name", name, sizeof name)) return -1;
    for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
        if (strcmp(machines[i].machine, name) == 0) return machines[i].cores;
    return -1;
}

/* "0-3,7" is written out, as the entries of other vendors are. */
static int expand(const char *value, struct buffer *out) {
    CLEANUP(idset_done) struct idset cores = {0};
    if (idset_parse(&cores, value, NULL) < 0) {
        buffer_text(out, value);
        return 0;
    }
    buffer_text(out, "");
    for (int64_t core = idset_next(&cores, -1); core != IDSET_END; core = idset_next(&cores, core))
        buffer_printf(out, "%s%lld", out->size > 0 ? "," : "", (long long)core);
    return out->failed ? -ENOMEM : 0;
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    CLEANUP(idset_done) struct idset devices = {0};
    CLEANUP(buffer_done) struct buffer visible = {0};
    const char *value = getenv(accelerator_neuron.visible);
    if (machine_numbers("/dev", "neuron", "", false, &devices) < 0 || idset_count(&devices) == 0) return 0;
    int64_t cores = cores_by_driver(&devices);
    if (cores < 0) cores = cores_by_machine();
    if (cores < 0) cores = 2 * (int64_t)idset_count(&devices); /* two in each device of both families */
    if (inventory_add_many(inventory, (size_t)cores) < 0) return -ENOMEM;
    inventory_set_type(inventory, "aws-neuron-core");
    if (value == NULL) return 0;
    return expand(value, &visible) < 0 ? -ENOMEM : inventory_restrict(inventory, visible.data);
}

const struct accelerator accelerator_neuron = {
    .vendor = "neuron",
    .resource = "neuron_cores",
    .visible = "NEURON_RT_VISIBLE_CORES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES"),
    .detect = detect,
};
