/* Amounts in words, for the drawing and the explanations. */
#ifndef PLACEMENT_WORDS_H
#define PLACEMENT_WORDS_H

#include "base/buffer.h"
#include "base/quantity.h"

/* "4 CPU", "8 GiB memory". */
void say_amount(struct buffer *out, const char *name, quantity amount);
/* "4", "8 GiB": the same without the name. */
void say_number(struct buffer *out, const char *name, quantity amount);
/* "4 CPU, 0.5 GPU, type A100": an accelerator type is a type, not an amount. */
void say_resources(struct buffer *out, const struct resources *resources);
/* "1 node", "2 nodes". */
void say_count(struct buffer *out, size_t n, const char *thing);

#endif
