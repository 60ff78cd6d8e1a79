/* The buckets of an index: those of a metric over an x lie side by side in a row, and double their width when
 * the row is full, or all rows together have much memory. Reports come in groups; what they say is index.c's to
 * find. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "view/index_parts.h"

/* INDEX_BYTES: what all slots take of memory together. A row that has few is not asked to have fewer, and none
 * before a longer one: with a slot for each x it has what is asked for, x by x. */
enum { TIME_SLOTS = 16384, INDEX_BYTES = 32 << 20, FEW_SLOTS = 64 };

const char *const index_axis_names[] = {
#define X(name, text) text,
    INDEX_AXES(X)
#undef X
};

enum index_axis index_axis_of(const char *name, size_t size) {
    int axis = INDEX_STEP_X;
    while (axis < INDEX_AXES_N &&
           (strlen(index_axis_names[axis]) != size || memcmp(index_axis_names[axis], name, size) != 0))
        axis++;
    return (enum index_axis)axis;
}

int index_add_metric(struct view_index *index, char *name) {
    size_t place = index->head.n_metrics;
    if (name == NULL || ARRAY_GROW(index->metrics, place) < 0 || hash_set(index->places, name, place + 1) < 0) {
        free(name);
        return -ENOMEM;
    }
    size_t size = strlen(name);
    index->metrics[place] =
        (struct index_metric){.name = name, .name_size = size, .axis = index_axis_of(name, size)};
    index->head.n_metrics++;
    return 0;
}

void index_free_metrics(struct view_index *index) {
    for (size_t i = 0; i < index->head.n_metrics; i++) {
        free(index->metrics[i].name);
        for (size_t row = 0; row < 2 * INDEX_AXES_N; row++)
            free(index->metrics[i].rows[row / INDEX_AXES_N][row % INDEX_AXES_N].slots);
    }
    free(TAKE(index->metrics));
    hash_destroy(index->places);
    index->places = hash_create();
    index->head.n_metrics = 0;
    memset(index->members, 0, sizeof index->members);
    index->n_slots = 0;
    index->group.n = 0;
}

void index_forget(struct view_index *index) {
    index_free_metrics(index);
    index->head = (struct index_head){.version = INDEX_VERSION};
}

/* -- buckets */

/* The scale is a power of two, so that x times it is exact, and slots of half the scale are pairs of these. */
static int64_t slot_of(double scale, double x) {
    double at = x * scale;
    int64_t slot = (int64_t)at; /* towards 0 */
    return (double)slot > at ? slot - 1 : slot;
}

int index_reserve(struct index_row *row, size_t n) {
    size_t room = n + n / 8 + 16;
    if (ARRAY_RESIZE(row->slots, room) < 0) return -ENOMEM;
    row->room = room;
    return 0;
}

/* Two neighbours become one: those whose number, counted from x 0, is 2 i and 2 i + 1, wherever the row
 * begins. */
static void widen(struct view_index *index, struct index_row *row) {
    int64_t base = row->base >> 1;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        size_t at = (size_t)(((row->base + (int64_t)i) >> 1) - base);
        struct view_bucket moved = row->slots[i];
        if (at + 1 > n) {
            n = at + 1;
            row->slots[at] = moved;
        } else {
            view_bucket_merge(&row->slots[at], &moved);
        }
    }
    index->n_slots -= row->n - n;
    row->base = base;
    row->n = n;
    row->scale /= 2;
    (void)index_reserve(row, n);
}

/* How much a row has of what all share. Slots of time, that hold no x alone, are the first to be wide. */
static size_t weight_of(enum index_axis axis, size_t n) {
    return axis == INDEX_TIME ? 4 * n : n;
}

/* The row that is to have fewer slots, so that `row` may have n: that with the most, and no short one. NULL:
 * all are short. */
static struct index_row *find_longest(const struct view_index *index, struct index_row *row,
                                      enum index_axis axis, size_t n) {
    struct index_row *longest = row;
    size_t most = weight_of(axis, n);
    for (size_t i = 0; i < index->head.n_metrics; i++)
        for (int lost = 0; lost < 2; lost++)
            for (int other = 0; other < INDEX_AXES_N; other++) {
                struct index_row *found = &index->metrics[i].rows[lost][other];
                size_t weight = weight_of((enum index_axis)other, found->n);
                if (found == row || found->n <= FEW_SLOTS || weight <= most) continue;
                longest = found;
                most = weight;
            }
    return longest == row && n <= FEW_SLOTS ? NULL : longest;
}

/* Grows the row until it has a slot for x: wider ones where there would be too many, there or in a longer row.
 * NULL when memory is short. */
static struct view_bucket *add_slot(struct view_index *index, struct index_row *row, double x,
                                    enum index_axis axis) {
    size_t most = axis == INDEX_TIME ? TIME_SLOTS : INDEX_SLOTS;
    int64_t slot = slot_of(row->scale, x);
    if (row->n == 0) row->base = slot;
    uint64_t n, front;
    for (;;) {
        slot = slot_of(row->scale, x);
        int64_t low = slot < row->base ? slot : row->base, high = row->base + (int64_t)row->n - 1;
        n = (uint64_t)((slot > high ? slot : high) - low) + 1;
        front = (uint64_t)(row->base - low);
        bool fits = (index->n_slots - row->n + n) * sizeof *row->slots <= INDEX_BYTES;
        struct index_row *longest = n > most ? row : fits ? NULL : find_longest(index, row, axis, n);
        if (longest == NULL) break;
        widen(index, longest);
    }
    if (n > row->room && index_reserve(row, n) < 0) return NULL;
    if (front > 0) {
        memmove(row->slots + front, row->slots, row->n * sizeof *row->slots);
        memset(row->slots, 0, front * sizeof *row->slots);
    }
    memset(row->slots + front + row->n, 0, (n - front - row->n) * sizeof *row->slots);
    index->n_slots += n - row->n;
    row->base -= (int64_t)front;
    row->n = n;
    return &row->slots[slot - row->base];
}

/* -- groups */

/* The group's values of a metric go into its rows. A row begins as finely as whole numbers need, or with 128
 * slots to 1 for any other x, and becomes coarser as it grows. All x of the group fall into one slot: they did
 * at the finest scale of its rows (joins_group), and a coarser slot holds whole finer ones. */
static int merge_gathered(struct view_index *index, struct index_metric *metric) {
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        double x = index->group.axes[axis].low;
        struct index_row *row = &metric->rows[index->group.lost][axis];
        if (isnan(x)) continue;
        if (row->n == 0) row->scale = axis == INDEX_TIME || x != floor(x) ? FINEST_SCALE : 1;
        uint64_t at = (uint64_t)(slot_of(row->scale, x) - row->base);
        struct view_bucket *bucket = at < row->n ? &row->slots[at] : NULL;
        if (bucket == NULL) bucket = add_slot(index, row, x, (enum index_axis)axis);
        if (bucket == NULL) return -ENOMEM;
        metric->gathered.x = x;
        metric->gathered.x_last = index->group.axes[axis].high;
        view_bucket_merge(bucket, &metric->gathered);
    }
    return 0;
}

/* Only now the index has the group's reports: what it has of them before counts for nobody. Where memory is
 * short in the midst of that, some values are in and others are not: all is made anew. */
int index_end_group(struct view_index *index) {
    struct index_group *group = &index->group;
    struct index_head *head = &index->head;
    int result = 0;
    if (group->n == 0) return 0;
    (void)pthread_mutex_lock(&index->lock);
    for (size_t i = 0; i < group->n_values && result == 0; i++)
        result = merge_gathered(index, &index->metrics[group->values[i]]);
    if (result == 0) {
        head->rows += group->n;
        for (int axis = 0; axis < INDEX_AXES_N; axis++)
            head->with[axis] += group->with[axis];
        head->last = group->last;
    } else {
        index_forget(index);
    }
    (void)pthread_mutex_unlock(&index->lock);
    group->n = 0;
    return result;
}

/* Whether the report at hand is one of the group. */
static bool joins_group(const struct view_index *index, bool lost) {
    const struct index_group *group = &index->group;
    if (group->n == 0 || group->lost != lost || group->n_values != index->n_values ||
        memcmp(group->values, index->values, group->n_values * sizeof *group->values) != 0)
        return false;
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        double x = index->xs[axis];
        if (isnan(x) != isnan(group->axes[axis].low)) return false;
        if (!isnan(x) && slot_of(group->axes[axis].scale, x) != group->axes[axis].slot) return false;
    }
    return true;
}

/* A row that is still empty counts as the finest there may be, since its first x decides. */
static void begin_group(struct view_index *index, bool lost) {
    struct index_group *group = &index->group;
    *group = (struct index_group){.lost = lost};
    for (size_t i = 0; i < index->n_values; i++) {
        group->values[group->n_values++] = index->values[i];
        index->metrics[index->values[i]].gathered = (struct view_bucket){0};
    }
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        double x = index->xs[axis], scale = 0;
        for (size_t i = 0; i < index->n_values; i++) {
            const struct index_row *row = &index->metrics[index->values[i]].rows[lost][axis];
            double own = row->n > 0 ? row->scale : FINEST_SCALE;
            if (own > scale) scale = own;
        }
        group->axes[axis].low = group->axes[axis].high = x;
        group->axes[axis].scale = scale;
        if (!isnan(x)) group->axes[axis].slot = slot_of(scale, x);
    }
}

/* A bucket that is gathered is shared by all axes; each axis' own x goes in when it is merged. */
static void gather(struct view_index *index, const struct journal_report *report) {
    struct index_group *group = &index->group;
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        double x = index->xs[axis];
        if (x < group->axes[axis].low) group->axes[axis].low = x;
        if (x > group->axes[axis].high) group->axes[axis].high = x;
    }
    for (size_t i = 0; i < index->n_values; i++) {
        struct index_metric *metric = &index->metrics[index->values[i]];
        view_bucket_add(&metric->gathered, 0, metric->value, report->rank, report->id);
    }
    group->n++;
    group->last = report->id;
}

int index_add(struct view_index *index, const struct journal_report *report, bool lost,
              const bool has[INDEX_AXES_N]) {
    if (!joins_group(index, lost)) {
        int result = index_end_group(index);
        if (result < 0) return result;
        begin_group(index, lost);
    }
    for (int axis = 0; axis < INDEX_AXES_N; axis++)
        index->group.with[axis] += has[axis];
    gather(index, report);
    return 0;
}
