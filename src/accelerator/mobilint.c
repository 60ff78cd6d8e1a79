/* Mobilint's NPUs: a device for each /dev/aries<n>, or, where there is none, each /dev/regulus<n>, less those
 * that MBLT_DEVICES hides. A worker is shown its own by the same variable. The name of the file is all that
 * tells the type. */
#include <errno.h>
#include <stdlib.h>

#include "accelerator/vendors.h"

static int add_kind(struct inventory *inventory, const char *prefix, const char *type) {
    if (inventory->n > 0) return 0;
    int result = inventory_add_numbered(inventory, prefix);
    if (inventory->n > 0) inventory_set_type(inventory, type);
    return result;
}

static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    if (add_kind(inventory, "aries", "MOBILINT_ARIES") < 0 ||
        add_kind(inventory, "regulus", "MOBILINT_REGULUS") < 0)
        return -ENOMEM;
    return inventory_restrict(inventory, getenv(accelerator_mobilint.visible));
}

const struct accelerator accelerator_mobilint = {
    .vendor = "mobilint",
    .resource = "MBLT",
    .visible = "MBLT_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_MBLT_RT_VISIBLE_DEVICES"),
    .detect = detect,
};
