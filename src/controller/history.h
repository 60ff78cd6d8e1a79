/* The attempts of a run as JSON. */
#ifndef CONTROLLER_HISTORY_H
#define CONTROLLER_HISTORY_H

#include <trainyard/trainer.h>

#include "base/buffer.h"
#include "base/duration.h"

/* The attempts as a JSON list: the "history" of ty_result_json. One that goes on has null as its end and
 * outcome, and "seconds" up to `now` (wall). */
void history_json(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out);

#endif
