/* Intel data centre and Arc GPUs, found by PCI id among the machine's render devices, so that a processor's
 * built-in graphics is not taken for one. Variables: ZE_AFFINITY_MASK, and ONEAPI_DEVICE_SELECTOR beside it
 * or alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { VENDOR_INTEL = 0x8086 };

static const struct {
    int64_t first, last; /* PCI device ids */
    const char *name;
} names[] = {
    {0x0bd5, 0x0bd6, "Intel(R) Data Center GPU Max 1550"},
    {0x0bd7, 0x0bd8, "Intel(R) Data Center GPU Max 1350"},
    {0x0bd9, 0x0bdb, "Intel(R) Data Center GPU Max 1100"},
    {0x56c0, 0x56c0, "Intel(R) Data Center GPU Flex 170"},
    {0x56c1, 0x56c1, "Intel(R) Data Center GPU Flex 140"},
    {0x5690, 0x56bf, "Intel(R) Arc(TM) Graphics"},
    {0xe202, 0xe223, "Intel(R) Arc(TM) Graphics"},
};

static const char *name_of(int64_t device_id) {
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (device_id >= names[i].first && device_id <= names[i].last) return names[i].name;
    return NULL;
}

/* The last two words of the name: the line of models, and the model. */
bool intel_type(const char *name, char type[64]) {
    const char *last = strrchr(name, ' ');
    const char *before = last;
    while (before != NULL && before > name && before[-1] != ' ')
        before--;
    if (last == NULL || before == last) return false;
    int length = snprintf(type, 64, "Intel-GPU-%.*s-%s", (int)(last - before), before, last + 1);
    return length > 0 && length < 64;
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    if (inventory_add_pci(inventory, &pci_render, VENDOR_INTEL, name_of) < 0) return -ENOMEM;
    if (inventory->n == 0) return 0;
    (void)intel_type(inventory->devices[0].name, inventory->type);
    const char *mask = getenv("ZE_AFFINITY_MASK"), *selector = getenv("ONEAPI_DEVICE_SELECTOR"), *ids = NULL;
    if (mask != NULL) return inventory_restrict(inventory, mask);
    /* The selector without its back end: "level_zero:0,1" -> "0,1"; "*" and other back ends show all. */
    bool some = selector != NULL && str_prefix(selector, "level_zero:", &ids) && strcmp(ids, "*") != 0 &&
                strcmp(ids, "gpu") != 0;
    return inventory_restrict(inventory, some ? ids : NULL);
}

/* The mask renumbers what is left from 0, and the selector counts by the new numbers. */
static int set_visible(const struct accelerator *self, const char *const *ids, size_t n, size_t host_devices,
                       environment_change *change, void *context) {
    (void)host_devices;
    CLEANUP(buffer_done) struct buffer mask = {0};
    CLEANUP(buffer_done) struct buffer selector = {0};
    buffer_text(&selector, "level_zero:");
    for (size_t i = 0; i < n; i++)
        buffer_printf(&selector, "%s%zu", i > 0 ? "," : "", i);
    if (!join_ids(ids, n, &mask) || selector.failed) return -ENOMEM;
    int result = change(context, self->visible, mask.data);
    return result == 0 ? change(context, "ONEAPI_DEVICE_SELECTOR", selector.data) : result;
}

const struct accelerator accelerator_intel = {
    .vendor = "intel",
    .resource = "GPU",
    .visible = "ZE_AFFINITY_MASK",
    .opt_out =
        OPT_OUT("RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK", "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR"),
    .detect = detect,
    .set_visible = set_visible,
};
