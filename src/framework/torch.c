/* torch: what plain sets, since that is what torchrun sets. No options. */
#include "framework/shared.h"

const struct framework framework_torch = {.name = "torch", .shared = plain_shared, .worker = plain_worker};
