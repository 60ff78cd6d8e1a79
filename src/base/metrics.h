/* The metrics of a report: a JSON object whose numbers may be of any size, as those of jansson may not. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* The object, the caller's. A whole number beyond 64 bits is a real in it, and a number beyond a double the
 * text "Infinity" or "-Infinity". NULL where the text is no object, or memory is short. */
json_t *metrics_read(const char *text, size_t size);

/* 0 when `text` (`size` bytes, and a NUL behind them) is a JSON object as it stands. 1 when it is one but for
 * what metrics_correct makes texts of: `corrected` then has it. TY_EUSAGE otherwise; -ENOMEM. */
int metrics_check(const char *text, size_t size, struct buffer *corrected, ty_error *err);

/* Appends the text with the bare words NaN, Infinity and -Infinity (as Python's json writes them), and the
 * numbers beyond a double, as texts of these words; with `whole` also whole numbers beyond 64 bits as reals. */
void metrics_correct(const char *text, size_t size, bool whole, struct buffer *out);

#endif
