/* torch: what plain sets, since that is what torchrun sets. No options. */
#include "framework/shared.h"

static int shared(const struct framework_context *context, environment_change *change, void *change_context,
                  ty_error *err) {
    return framework_plain.shared(context, change, change_context, err);
}

static int worker(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err) {
    return framework_plain.worker(context, rank, change, change_context, err);
}

const struct framework framework_torch = {.name = "torch", .shared = shared, .worker = worker};
