/* jax: what plain sets, and the platform that the workers hold, unless the user chose one. A process of JAX
 * takes every device that it sees, so each worker sees its own only, and one that holds none keeps to the CPU.
 * No options. */
#include "framework/framework.h"

static int shared(const struct framework_context *context, environment_change *change, void *change_context,
                  ty_error *err) {
    struct variables out = {change, change_context, 0};
    int result = plain_shared(context, change, change_context, err);
    if (result < 0) return result;
    const char *chosen = framework_inherited(context, "JAX_PLATFORMS");
    const struct resources *per_worker = &context->demand->per_worker;
    const char *held = resources_get(per_worker, "TPU") > 0   ? "tpu"
                       : resources_get(per_worker, "GPU") > 0 ? "cuda"
                                                              : "cpu";
    if (chosen == NULL || chosen[0] == '\0') variables_set(&out, "JAX_PLATFORMS", held);
    return variables_end(&out, err);
}

static int worker(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err) {
    struct framework_context own = *context;
    own.isolate_devices = true;
    return plain_worker(&own, rank, change, change_context, err);
}

const struct framework framework_jax = {.name = "jax", .shared = shared, .worker = worker};
