/* Checks the JSON that a worker says. */
#ifndef AGENT_METRICS_H
#define AGENT_METRICS_H

#include <jansson.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* As json_loadb. NULL when it is no JSON: TY_EUSAGE, and why is in `error`; or when memory is short:
 * -ENOMEM. */
json_t *json_parse(const char *text, size_t size, size_t flags, json_error_t *error, ty_error *err);

/* 0 when `text` (`size` bytes, and a NUL behind them) is a JSON object as it stands. 1 when it is one but
 * for NaN, Infinity, -Infinity as bare words (as Python's json writes them) or numbers too large for a
 * double: `corrected` then has them as the strings "NaN", "Infinity", "-Infinity". TY_EUSAGE otherwise;
 * -ENOMEM. */
int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err);

/* 0 for the files of a checkpoint: a JSON list; or a JSON string that names a directory by its absolute
 * path, or another place by an address with "://". TY_EUSAGE otherwise; -ENOMEM. */
int files_check(const char *text, size_t size, ty_error *err);

#endif
