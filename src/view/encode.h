/* Numbers as JSON: what is not finite is null. */
#ifndef VIEW_ENCODE_H
#define VIEW_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* With as few digits as give the same number back. */
void encode_number(struct buffer *out, double number);
void encode_number_if(struct buffer *out, bool known, double number); /* else null */
void encode_int(struct buffer *out, int64_t number);                  /* fast, for many of them */
void encode_rank(struct buffer *out, int rank);                       /* -1: null */
void encode_base64(struct buffer *out, const unsigned char *bytes, size_t size);

/* `"exact": ..., "scanned": ...`: whether all reports were read, and which share of them. */
void encode_scanned(struct buffer *out, bool exact, double scanned);
/* A comma between the items of a list; *any: there was one before, false at its beginning. */
void encode_next(struct buffer *out, bool *any);

#endif
