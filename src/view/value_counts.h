/* How often which values were reported, in memory that has a bound: equal values are counted together, and
 * where there are too many different ones neighbours are too. Every point is counted, in whatever order they
 * come; what is given up is only where exactly an interval may end. */
#ifndef VIEW_VALUE_COUNTS_H
#define VIEW_VALUE_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/idset.h"
#include "view/points.h"
#include "view/series.h"

/* Some 10,000 intervals, so that one is a small part of a bin that is drawn. */
enum { VALUE_COUNTS_MAX = 16384 };

struct value_count {
    uint64_t key; /* bits of its values, in their order, without the lowest `shift` ones */
    uint64_t all, chosen;
};

/* Zero-initialised is empty. */
struct value_counts {
    struct value_count *items; /* owned; n, by key */
    size_t n;
    unsigned shift;
    double min, max; /* of all; without a meaning where n is 0 */
};

/* `chosen`: ranks whose points are counted apart, too; NULL: none are. Points that are not finite do not count.
 * -ENOMEM. */
int value_counts_add(struct value_counts *counts, const struct points *points, const struct idset *chosen);
int value_counts_copy(const struct value_counts *counts, struct value_counts *out); /* -ENOMEM */
void value_counts_done(struct value_counts *counts);

/* In the bins of the histogram, which has room for them and for their edges: from the least value to the
 * greatest, evenly but for what one interval may take. With `near`, where 1 of 100 values lies farther above
 * the others than these do from each other, the last bin is that one's. */
void value_counts_fill(const struct value_counts *counts, bool near, struct view_histogram *histogram);

#endif
