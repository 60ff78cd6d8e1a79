/* A run's result: of one that has just ended (result.c), of one that is read from its directory
 * (past_result.c), and as text: JSON's beginning and history, the line of a success. */
#ifndef CONTROLLER_RESULT_H
#define CONTROLLER_RESULT_H

#include <trainyard/trainer.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "controller/checkpoints.h"
#include "worker/driver.h"

/* ty_result_read. */
int past_result_read(const char *path, ty_result **result, ty_error *err);

/* The numbers among a result's metrics, for ty_result_metric. */
void result_add_values(struct ty_result *result);

/* What ty_result_json begins with: "{" and name, path, metrics and checkpoint. */
void result_begin_json(const struct ty_result *result, struct buffer *out);
/* ', "key": "text"', or null. */
void result_add_text(struct buffer *out, const char *key, const char *text);
/* The attempts as a JSON list: the "history" of ty_result_json. An attempt that goes on has null as its end and
 * outcome, and "seconds" up to `now` (wall). */
void result_history(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out);

#endif
