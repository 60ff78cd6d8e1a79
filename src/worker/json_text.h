/* Is this text JSON? Syntax alone, without a tree: a worker that reports is not to carry a JSON library. */
#ifndef WORKER_JSON_TEXT_H
#define WORKER_JSON_TEXT_H

#include "base/buffer.h"
#include "base/error.h"

enum { JSON_TEXT_DEPTH = 500 }; /* arrays and objects within each other */

/* Appends a JSON object as one line. NaN, Infinity and -Infinity may stand for numbers, as in Python; the agent
 * makes strings of them. TY_EUSAGE, with the place, for anything else: `name` says what it is ("metrics"). */
int json_text_append_object(const char *name, const char *text, struct buffer *out, ty_error *err);

#endif
