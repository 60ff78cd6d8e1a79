/* Rebellions' NPUs: a device for each /dev/rbln<n>, less those that RBLN_DEVICES hides. A worker is shown its
 * own by the same variable. What type a device is the files in /dev do not tell, so that such nodes have no
 * accelerator type. */
#include <stdlib.h>

#include "accelerator/vendors.h"

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    int result = inventory_add_numbered(inventory, "rbln");
    return result < 0 ? result : inventory_restrict(inventory, getenv(accelerator_rebellions.visible));
}

const struct accelerator accelerator_rebellions = {
    .vendor = "rebellions",
    .resource = "RBLN",
    .visible = "RBLN_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_RBLN_RT_VISIBLE_DEVICES"),
    .detect = detect,
};
