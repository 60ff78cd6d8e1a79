/* torch: what plain sets, and that a broken NCCL communicator ends its process instead of hanging it. No
 * options. */
#include "framework/shared.h"

static int shared(const struct framework_context *context, environment_change *change, void *change_context,
                  ty_error *err) {
    struct variables out = {change, change_context, 0};
    int result = framework_plain.shared(context, change, change_context, err);
    if (result < 0) return result;
    bool chosen = framework_inherited(context, "TORCH_NCCL_ASYNC_ERROR_HANDLING") != NULL ||
                  framework_inherited(context, "TORCH_NCCL_BLOCKING_WAIT") != NULL ||
                  framework_inherited(context, "NCCL_ASYNC_ERROR_HANDLING") != NULL ||
                  framework_inherited(context, "NCCL_BLOCKING_WAIT") != NULL;
    if (demand_uses_nccl(context->demand, context->backend) && !chosen)
        variables_set(&out, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    return variables_end(&out, err);
}

static int worker(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err) {
    return framework_plain.worker(context, rank, change, change_context, err);
}

const struct framework framework_torch = {.name = "torch", .shared = shared, .worker = worker};
