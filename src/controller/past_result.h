/* The result of a run from its directory (ty_result_read). */
#ifndef CONTROLLER_PAST_RESULT_H
#define CONTROLLER_PAST_RESULT_H

#include <trainyard/trainer.h>

#include "base/buffer.h"
#include "controller/checkpoints.h"
#include "worker/driver.h"

int past_result_read(const char *path, ty_result **result, ty_error *err);

/* The numbers among a result's metrics, for ty_result_metric (result.c). */
void result_add_values(struct ty_result *result);
/* What ty_result_json begins with: "{" and name, path, metrics and checkpoint. (result.c) */
void result_begin_json(const struct ty_result *result, struct buffer *out);
/* ', "key": "text"', or null; of result.c too. */
void result_add_text(struct buffer *out, const char *key, const char *text);

/* The last word of a run that succeeded, in one line: its name, how long its attempts took, the last metrics of
 * rank 0, the best checkpoint where they are ranked by a metric, else the last one, and where all of it is. */

void summary_format(const struct ty_result *result, const struct checkpoints *checkpoints, struct buffer *out);

#endif
