#include "view/outlet.h"

#include <errno.h>

enum { OUTLET_BYTES = 64 << 10 };

static int drain(struct view_outlet *outlet) {
    if (outlet->text.failed) return ty_fail_memory(outlet->err);
    if (outlet->text.size == 0) return 0;
    int result = outlet->sink(outlet->context, outlet->text.data, outlet->text.size, outlet->err);
    outlet->written += outlet->text.size;
    buffer_clear(&outlet->text);
    return result;
}

int view_outlet_drain(struct view_outlet *outlet) {
    return outlet->text.size < OUTLET_BYTES && !outlet->text.failed ? 0 : drain(outlet);
}

int view_outlet_finish(struct view_outlet *outlet, int result) {
    if (result == 0) result = drain(outlet);
    if (result == -ENOMEM) (void)ty_fail_memory(outlet->err);
    buffer_done(&outlet->text);
    return result;
}
