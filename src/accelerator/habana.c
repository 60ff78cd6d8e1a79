/* Intel Gaudi: /dev/accel/accel<n> of Habana's PCI vendor id, or /dev/hl<n> of older drivers, of which nothing
 * tells the model, so that such nodes have no accelerator type. Variable: HABANA_VISIBLE_MODULES. A worker is
 * shown its own devices by the same variable. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "accelerator/vendors.h"

enum { VENDOR_HABANA = 0x1da3 };

static const char *name_of(int64_t device_id) {
    switch (device_id) {
    case 0x1000:
    case 0x1001:
        return "GAUDI";
    case 0x1020:
        return "GAUDI2";
    case 0x1060:
    case 0x1061:
    case 0x1063:
        return "GAUDI3";
    default:
        return "";
    }
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    static const struct pci_class accel = {"/dev/accel", "accel", "accel"};
    if (inventory_add_pci(inventory, &accel, VENDOR_HABANA, name_of) < 0) return -ENOMEM;
    if (inventory->n == 0 && inventory_add_numbered(inventory, "hl") < 0) return -ENOMEM;
    if (inventory->n == 0) return 0;
    if (inventory->devices[0].name[0] != '\0')
        (void)snprintf(inventory->type, sizeof inventory->type, "Intel-%.50s", inventory->devices[0].name);
    return inventory_restrict(inventory, getenv(accelerator_habana.visible));
}

const struct accelerator accelerator_habana = {
    .vendor = "habana",
    .resource = "HPU",
    .visible = "HABANA_VISIBLE_MODULES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"),
    .detect = detect,
};
