/* Values are kept as the bits of doubles, put in the order of their values, so that leaving out the lowest bits
 * makes intervals that are narrow where values are small, and so that the intervals of any number of bits lie
 * within those of fewer. */
#include "view/value_counts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* -- keys */

/* Bits of a double as a whole number grow with its value, as long as that is not negative: there all bits are
 * turned, and above 0 the sign alone, so that the keys of all finite values lie in the order of the values. */
static uint64_t key_of(double value) {
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;
    value += 0.0; /* of the two zeros one */
    memcpy(&bits, &value, sizeof bits);
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

static double value_of(uint64_t key) {
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits = (key & sign) != 0 ? key & ~sign : ~key;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The least and the greatest value of an interval, as far as there are such values. */
static double low_of(const struct value_counts *counts, const struct value_count *count) {
    double low = value_of(count->key << counts->shift);
    return low > counts->min ? low : counts->min;
}

static double high_of(const struct value_counts *counts, const struct value_count *count) {
    double high = value_of(((count->key + 1) << counts->shift) - 1);
    return high < counts->max ? high : counts->max;
}

/* -- counting */

static int by_key(const void *a, const void *b) {
    const struct value_count *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* Those of one key, which lie beside each other, become one; how many are left. */
static size_t join(struct value_count *items, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && items[kept - 1].key == items[i].key) {
            items[kept - 1].all += items[i].all;
            items[kept - 1].chosen += items[i].chosen;
        } else {
            items[kept++] = items[i];
        }
    }
    return kept;
}

/* To half of what there may be, so that it is not done for every few points. */
static void coarsen(struct value_counts *counts) {
    while (counts->n > VALUE_COUNTS_MAX / 2) {
        for (size_t i = 0; i < counts->n; i++)
            counts->items[i].key >>= 1;
        counts->shift++;
        counts->n = join(counts->items, counts->n);
    }
}

/* Both are sorted; `out` has room for all. */
static size_t merge(const struct value_counts *counts, const struct value_count *added, size_t n,
                    struct value_count *out) {
    size_t at = 0, of = 0, n_out = 0;
    while (at < counts->n || of < n)
        out[n_out++] = of == n || (at < counts->n && counts->items[at].key <= added[of].key)
                           ? counts->items[at++]
                           : added[of++];
    return join(out, n_out);
}

/* What comes is sorted and joined by itself first, and merged with what there is in one pass. */
int value_counts_add(struct value_counts *counts, const struct points *points, const struct idset *chosen) {
    CLEANUP_FREE struct value_count *added = calloc(points->n + 1, sizeof *added);
    size_t n = 0;
    if (added == NULL) return -ENOMEM;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (!isfinite(point->value)) continue;
        bool first = counts->n + n == 0;
        if (first || point->value < counts->min) counts->min = point->value;
        if (first || point->value > counts->max) counts->max = point->value;
        added[n++] = (struct value_count){.key = key_of(point->value) >> counts->shift,
                                          .all = 1,
                                          .chosen = chosen != NULL && idset_has(chosen, point->rank)};
    }
    qsort(added, n, sizeof *added, by_key);
    n = join(added, n);
    struct value_count *merged = calloc(counts->n + n + 1, sizeof *merged);
    if (merged == NULL) return -ENOMEM;
    counts->n = merge(counts, added, n, merged);
    free(counts->items);
    counts->items = merged;
    if (counts->n > VALUE_COUNTS_MAX) coarsen(counts);
    return 0;
}

int value_counts_copy(const struct value_counts *counts, struct value_counts *out) {
    struct value_count *items = calloc(counts->n + 1, sizeof *items);
    if (items == NULL) return -ENOMEM;
    if (counts->n > 0) memcpy(items, counts->items, counts->n * sizeof *items);
    *out = *counts;
    out->items = items;
    return 0;
}

void value_counts_done(struct value_counts *counts) {
    free(counts->items);
    *counts = (struct value_counts){0};
}

/* -- bins */

/* Above which 1 of 100 values lies; NAN where those lie no farther off than the others do. */
static double find_near(const struct value_counts *counts) {
    uint64_t all = 0, above = 0;
    size_t at = counts->n;
    for (size_t i = 0; i < counts->n; i++)
        all += counts->items[i].all;
    while (at > 0 && above <= all / 100)
        above += counts->items[--at].all;
    double near = counts->n > 0 ? high_of(counts, &counts->items[at]) : (double)NAN;
    return near > counts->min && counts->max - near > near - counts->min ? near : (double)NAN;
}

/* An interval that reaches beyond the edge of its bin moves that edge. */
static void take_interval(const struct value_counts *counts, const struct value_count *count,
                          struct view_histogram *histogram) {
    size_t even = histogram->bins - (isnan(histogram->near) ? 0 : 1), bin = histogram->bins - 1;
    double low = low_of(counts, count), high = high_of(counts, count);
    double most = isnan(histogram->near) ? counts->max : histogram->near;
    if (low <= most) bin = points_bucket(low, counts->min, most, even);
    for (size_t edge = bin + 1; edge <= even && histogram->edges[edge] < high; edge++)
        histogram->edges[edge] = high;
    histogram->all[bin] += count->all;
    if (histogram->chosen != NULL) histogram->chosen[bin] += count->chosen;
}

/* Where the range is beyond a double its two ends are divided, and not their difference. */
void value_counts_fill(const struct value_counts *counts, bool near, struct view_histogram *histogram) {
    histogram->min = histogram->max = histogram->near = (double)NAN;
    if (counts->n == 0) return;
    histogram->min = counts->min;
    histogram->max = counts->max;
    if (near && histogram->bins > 1) histogram->near = find_near(counts);
    bool cut = !isnan(histogram->near);
    double bins = (double)(histogram->bins - cut), most = cut ? histogram->near : counts->max;
    double range = most - counts->min, width = isinf(range) ? most / bins - counts->min / bins : range / bins;
    for (size_t i = 0; i < histogram->bins; i++)
        histogram->edges[i] = counts->min + width * (double)i;
    if (cut) histogram->edges[histogram->bins - 1] = histogram->near;
    histogram->edges[histogram->bins] = counts->max;
    for (size_t i = 0; i < counts->n; i++)
        take_interval(counts, &counts->items[i], histogram);
}
