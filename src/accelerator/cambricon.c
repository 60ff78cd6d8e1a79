/* Cambricon: /dev/cambricon_dev<n>. Variable: MLU_VISIBLE_DEVICES. */
#include <stdlib.h>

#include "accelerator/vendors.h"

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    int result = inventory_add_numbered(inventory, "/dev", "cambricon_dev");
    return result < 0 ? result : inventory_restrict(inventory, getenv(accelerator_cambricon.visible));
}

const struct accelerator accelerator_cambricon = {
    .vendor = "cambricon",
    .resource = "MLU",
    .visible = "MLU_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_MLU_VISIBLE_DEVICES"),
    .detect = detect,
};
