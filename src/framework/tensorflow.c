/* tensorflow: what plain sets, and TF_CONFIG with the address of each worker, for MultiWorkerMirroredStrategy.
 * A worker serves at its node's address and its own free port; rank 0 is the chief. No options. TensorFlow
 * itself is not looked for. */
#include "framework/framework.h"

#include <errno.h>
#include <string.h>

static int worker(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err) {
    struct variables out = {change, change_context, 0};
    struct buffer config = {0};
    int result = plain_worker(context, rank, change, change_context, err);
    if (result < 0) return result;
    buffer_text(&config, "{\"cluster\": {\"worker\": [");
    for (size_t other = 0; other < context->plan->n_workers; other++) {
        if (context->ports == NULL || context->ports[other] == 0) {
            buffer_done(&config);
            return ty_fail(err, TY_ESTART, "there are not enough free ports for TF_CONFIG of %zu workers",
                           context->plan->n_workers);
        }
        const char *address = context->addresses != NULL ? context->addresses[other] : context->master_address;
        bool bare = strchr(address, ':') != NULL; /* an IPv6 address */
        buffer_printf(&config, "%s\"%s%s%s:%u\"", other > 0 ? ", " : "", bare ? "[" : "", address,
                      bare ? "]" : "", context->ports[other]);
    }
    buffer_printf(&config, "]}, \"task\": {\"type\": \"worker\", \"index\": %zu}}", rank);
    if (config.failed) out.result = -ENOMEM;
    variables_set(&out, "TF_CONFIG", config.data);
    buffer_done(&config);
    return variables_end(&out, err);
}

const struct framework framework_tensorflow = {.name = "tensorflow", .shared = plain_shared, .worker = worker};
