/* Rebellions: /dev/rbln<n>. Variable: RBLN_DEVICES. */
#include <stdlib.h>

#include "accelerator/vendors.h"

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    int result = inventory_add_numbered(inventory, "/dev", "rbln");
    return result < 0 ? result : inventory_restrict(inventory, getenv(accelerator_rebellions.visible));
}

const struct accelerator accelerator_rebellions = {
    .vendor = "rebellions",
    .resource = "RBLN",
    .visible = "RBLN_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_RBLN_RT_VISIBLE_DEVICES"),
    .detect = detect,
};
