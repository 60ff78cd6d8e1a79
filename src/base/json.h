/* A tree of jansson as text. jansson writes 0.98 with 17 digits, as 0.97999999999999998; here each real has as
 * few digits as give the same number back. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

/* json_dumps with those flags; the caller frees. NULL without memory or a tree. */
char *json_format(const json_t *tree, size_t flags);

#endif
