/* Sets of small non-negative integers (ranks, devices, cores), with the text form of Flux RFC 22:
 * "0-3,7,12-15". */
#ifndef BASE_IDSET_H
#define BASE_IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

struct idset {
    uint64_t *words; /* owned */
    size_t n_words;
};

enum { IDSET_END = -1, IDSET_MAX = 1 << 24 };

void idset_done(struct idset *set);
int idset_add(struct idset *set, int64_t id); /* 0, or -ENOMEM / -EINVAL beyond IDSET_MAX */
int idset_add_range(struct idset *set, int64_t first, int64_t last);
bool idset_has(const struct idset *set, int64_t id);
size_t idset_count(const struct idset *set);
int64_t idset_next(const struct idset *set,
                   int64_t after); /* smallest id > after (-1 to begin), or IDSET_END */

/* "" is the empty set. Refuses descending or overlapping ranges, signs and blanks. */
int idset_parse(struct idset *set, const char *text, ty_error *err);
void idset_format(const struct idset *set, struct buffer *out);

#endif
