/* Metrics as the one line of JSON that goes to the agent: {"loss":0.25,"step":40,"worst":"NaN"}. */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include <trainyard/worker.h>

#include "base/buffer.h"

/* Appends the object. Numbers are the shortest decimal that reads back as the same double, whatever the locale;
 * what JSON has no number for is the string "NaN", "Infinity" or "-Infinity". A name given twice is kept twice:
 * readers take the last. TY_EUSAGE for a name that is NULL, empty, longer than 255 bytes or not UTF-8; `out`
 * then holds a part. */
int metrics_format(ty_metrics metrics, struct buffer *out, ty_error *err);

#endif
