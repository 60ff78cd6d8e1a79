/* MetaX GPUs: render devices of its PCI vendor id. Variable: CUDA_VISIBLE_DEVICES, as for the libraries it
 * stands in for. The type is not told by the files that are read here, so that such nodes have none; which of
 * the vendors of GPU a machine is of is decided by the order of accelerator.c. */
#include <errno.h>
#include <stdlib.h>

#include "accelerator/vendors.h"

enum { VENDOR_METAX = 0x9999 };

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    if (inventory_add_pci(inventory, &pci_render, VENDOR_METAX, NULL) < 0) return -ENOMEM;
    return inventory->n == 0 ? 0 : inventory_restrict(inventory, getenv(accelerator_metax.visible));
}

const struct accelerator accelerator_metax = {
    .vendor = "metax",
    .resource = "GPU",
    .visible = "CUDA_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"),
    .detect = detect,
};
