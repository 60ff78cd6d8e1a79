/* Cambricon's MLUs: a device for each /dev/cambricon_dev<n>, less those that MLU_VISIBLE_DEVICES hides. A
 * worker is shown its own by the same variable. What type a device is the files in /dev do not tell, so that
 * such nodes have no accelerator type. */
#include <stdlib.h>

#include "accelerator/vendors.h"

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    int result = inventory_add_numbered(inventory, "cambricon_dev");
    return result < 0 ? result : inventory_restrict(inventory, getenv(accelerator_cambricon.visible));
}

const struct accelerator accelerator_cambricon = {
    .vendor = "cambricon",
    .resource = "MLU",
    .visible = "MLU_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_MLU_VISIBLE_DEVICES"),
    .detect = detect,
};
