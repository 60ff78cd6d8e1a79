/* Metrics as the one line of JSON that goes to the agent: {"loss":0.25,"step":40,"worst":"NaN"}. */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include <trainyard/worker.h>

#include "base/buffer.h"
#include "base/error.h"

/* Appends the object. Numbers are the shortest decimal that reads back as the same double, whatever the locale;
 * what JSON has no number for is the string "NaN", "Infinity" or "-Infinity". A name given twice is kept twice:
 * readers take the last. TY_EUSAGE for a name that is NULL, empty, longer than 255 bytes or not UTF-8; `out`
 * then holds a part. */
int metrics_format(ty_metrics metrics, struct buffer *out, ty_error *err);

/* Is this text JSON? Syntax alone, without a tree: a worker that reports is not to carry a JSON library. */

enum { JSON_TEXT_DEPTH = 500 }; /* arrays and objects within each other */

/* Appends a JSON object as one line. NaN, Infinity and -Infinity may stand for numbers, as in Python; the agent
 * makes strings of them. TY_EUSAGE, with the place, for anything else: `name` says what it is ("metrics"). */
int json_text_append_object(const char *name, const char *text, struct buffer *out, ty_error *err);

#endif
