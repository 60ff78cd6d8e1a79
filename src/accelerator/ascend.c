/* Huawei Ascend: /dev/davinci<n>. The type is known only to its runtime, so that it is left to the operator.
 * Variable: ASCEND_RT_VISIBLE_DEVICES. A worker is shown its own devices by the same variable. */
#include <stdlib.h>

#include "accelerator/vendors.h"

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    int result = inventory_add_numbered(inventory, "davinci");
    return result < 0 ? result : inventory_restrict(inventory, getenv(accelerator_ascend.visible));
}

const struct accelerator accelerator_ascend = {
    .vendor = "ascend",
    .resource = "NPU",
    .visible = "ASCEND_RT_VISIBLE_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"),
    .detect = detect,
};
