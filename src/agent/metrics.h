/* Checks what a worker reports. */
#ifndef AGENT_METRICS_H
#define AGENT_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* 0 when `text` (`size` bytes, and a NUL behind them) is a JSON object as it stands. 1 when it is one but for NaN, Infinity, -Infinity as bare words (as Python's json
 * writes them) or numbers too large for a double: `corrected` then has them as the strings "NaN", "Infinity", "-Infinity". TY_EUSAGE
 * otherwise. */
int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err);

bool metrics_is_list(const char *text, size_t size); /* a JSON list */
/* A JSON string that names a directory by its absolute path, or another place by an address with "://". */
bool metrics_is_place(const char *text, size_t size);

#endif
