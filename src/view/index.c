/* An index of a long run: one pass over the reports, each value into the bucket of each x, so that a plot of
 * millions of reports is drawn without reading them again. Buckets double their width when a row is full, or
 * all rows together have much memory; the index may be kept in the user's cache, and is void there once the
 * journal is another one. */
#include "view/index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "view/drawings.h"
#include "view/points.h"
#include "view/runs.h"
#include "view/scan.h"
#include "view/values.h"

enum { INDEX_METRICS = 500, INDEX_SLOTS = 65536, TIME_SLOTS = 16384, INDEX_VERSION = 3 };

/* INDEX_BYTES: what all slots take of memory together. A row that has few is not asked to have fewer, and none
 * before a longer one: with a slot for each x it has what is asked for, x by x. */
enum { INDEX_NAME_BYTES = 1025, INDEX_BYTES = 32 << 20, FEW_SLOTS = 64 };

/* X(enumerator, name): each x that has buckets; from INDEX_STEP_X on, what reports call theirs. The first that
 * most of them have, up to the epoch, is the step. */
#define INDEX_AXES(X)                                 \
    X(INDEX_NUMBER, "number")                         \
    X(INDEX_TIME, "time")                             \
    X(INDEX_STEP_X, "step")                           \
    X(INDEX_GLOBAL_STEP, "global_step")               \
    X(INDEX_ITERATION, "iteration")                   \
    X(INDEX_TRAINING_ITERATION, "training_iteration") \
    X(INDEX_EPOCH, "epoch")                           \
    X(INDEX_AXES_N, NULL)

enum index_axis {
#define X(name, text) name,
    INDEX_AXES(X)
#undef X
};

static const char *const axis_names[] = {
#define X(name, text) text,
    INDEX_AXES(X)
#undef X
};

/* Buckets side by side: slot i holds the x from (base + i) / scale on. */
struct index_row {
    struct view_bucket *slots; /* n of `room`, owned */
    size_t n, room;
    int64_t base;
    double scale; /* a power of two */
};

struct index_metric {
    char *name; /* owned */
    size_t name_size;
    enum index_axis axis;                   /* whose x its values are; INDEX_AXES_N: none */
    struct index_row rows[2][INDEX_AXES_N]; /* of what counts, and of what was lost */
    struct view_bucket gathered;            /* values of the group, whose x are the group's */
    int64_t report;                         /* id of the last with a value, which it is */
    double value;
};

/* Reports behind each other with the same metrics, whose x fall into the same slot of every row, as those of
 * all ranks with the same number mostly do. Their values are gathered first and go into the rows together. */
struct index_group {
    uint64_t n, with[INDEX_AXES_N]; /* reports; those that have an x */
    int64_t last;                   /* id of the last of them */
    bool lost;
    struct {
        double low, high; /* x; NAN: they have none */
        double scale;     /* of the finest of their rows */
        int64_t slot;     /* at that scale */
    } axes[INDEX_AXES_N];
    size_t n_values, values[INDEX_METRICS]; /* places of their metrics */
};

/* What the cache keeps in front. */
struct index_head {
    uint32_t version;
    uint32_t unlike; /* bits: axes whose x is not the number of every report, which need buckets of their own */
    uint64_t device, inode;
    int64_t first;                     /* event, ns */
    int64_t last;                      /* id of the last report that it has */
    uint64_t rows, with[INDEX_AXES_N]; /* reports; those that have an x */
    uint64_t n_attempts, n_metrics;
};

struct view_index {
    char *run_path, *cache; /* owned; the cache's file, NULL: none */
    bool cached;            /* there is to be one, and it was not looked for yet */
    struct scan_sample sample;
    struct facts_kept answering; /* facts of those who ask; `facts` are the index's own */
    struct drawings drawings;
    struct scan_rows rows;   /* of the step at hand, kept for the next: their pages are many */
    pthread_mutex_t growing; /* of the thread that reads more, or keeps what there is; taken before `lock` */
    pthread_mutex_t lock;    /* over what queries read while it grows */
    struct index_head head;
    struct view_facts facts;
    const struct view_facts *counting; /* by which the reports at hand count: `facts`, or those of an answer */
    struct index_metric *metrics;      /* owned */
    struct hash *places;               /* name -> place + 1 */
    size_t n_slots;                    /* of all rows */
    struct index_group group;          /* behind head.last, and in no row yet */
    /* told without the lock, which its thread has for long */
    _Atomic uint64_t there; /* reports, when it was last looked */
    _Atomic int64_t done;   /* id of the last report that it had then; -1: it was not looked yet */
    int64_t kept;           /* id of the last that the cache has */
    bool follows;           /* there were more reports than when it had looked before, or may be */
    bool outrun;            /* and more of them than a step reads */
    double drawn;           /* how far the drawing at hand is, 0 to 1 */
    /* the report at hand */
    int64_t report;
    double xs[INDEX_AXES_N];
    struct values_shape shape;
    size_t members[VALUES_MEMBERS];         /* place of the metric that each is + 1; 0: to be looked up */
    size_t n_values, values[INDEX_METRICS]; /* places of its metrics; SIZE_MAX: memory is short */
};

/* Leaves the index without metrics and ready for new ones, unless memory is short: then without `places`. */
static void free_metrics(struct view_index *index) {
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

/* Begins anew: the journal is another one, or another attempt took reports back. */
static void forget(struct view_index *index) {
    free_metrics(index);
    index->head = (struct index_head){.version = INDEX_VERSION};
}

/* -- buckets */

/* The scale is a power of two, so that x times it is exact, and slots of half the scale are pairs of these. */
static int64_t slot_of(double scale, double x) {
    double at = x * scale;
    int64_t slot = (int64_t)at; /* towards 0 */
    return (double)slot > at ? slot - 1 : slot;
}

/* Room for n slots, and some more: a row that grows slot by slot is not copied each time. */
static int reserve(struct index_row *row, size_t n) {
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
    (void)reserve(row, n);
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
    if (n > row->room && reserve(row, n) < 0) return NULL;
    memmove(row->slots + front, row->slots, row->n * sizeof *row->slots);
    memset(row->slots, 0, front * sizeof *row->slots);
    memset(row->slots + front + row->n, 0, (n - front - row->n) * sizeof *row->slots);
    index->n_slots += n - row->n;
    row->base -= (int64_t)front;
    row->n = n;
    return &row->slots[slot - row->base];
}

/* -- groups */

enum { FINEST_SCALE = 128 };

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
static int end_group(struct view_index *index) {
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
        forget(index);
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

/* -- reports */

static enum index_axis axis_of(const char *name, size_t size) {
    int axis = INDEX_STEP_X;
    while (axis < INDEX_AXES_N &&
           (strlen(axis_names[axis]) != size || memcmp(axis_names[axis], name, size) != 0))
        axis++;
    return (enum index_axis)axis;
}

/* Takes the name, also where it fails. */
static int add_metric(struct view_index *index, char *name) {
    size_t place = index->head.n_metrics;
    if (name == NULL || ARRAY_GROW(index->metrics, place) < 0 || hash_set(index->places, name, place + 1) < 0) {
        free(name);
        return -ENOMEM;
    }
    size_t size = strlen(name);
    index->metrics[place] = (struct index_metric){.name = name, .name_size = size, .axis = axis_of(name, size)};
    index->head.n_metrics++;
    return 0;
}

/* NULL: there are too many, or its name is too long; or memory is short, which `n_values` tells. */
static struct index_metric *find_metric(struct view_index *index, const struct value *value) {
    char name[INDEX_NAME_BYTES];
    if (index->n_values < index->head.n_metrics) { /* reports name theirs in the same order */
        struct index_metric *likely = &index->metrics[index->n_values];
        if (value_is_named(value, likely->name, likely->name_size)) return likely;
    }
    if (value->name_size >= sizeof name) return NULL;
    memcpy(name, value->name != NULL ? value->name : "", value->name_size);
    name[value->name_size] = '\0';
    const uintptr_t *known = hash_get(index->places, name);
    if (known != NULL) return &index->metrics[*known - 1];
    if (index->head.n_metrics == INDEX_METRICS) return NULL;
    (void)pthread_mutex_lock(&index->lock);
    int result = add_metric(index, strdup(name));
    (void)pthread_mutex_unlock(&index->lock);
    if (result == 0) return &index->metrics[index->head.n_metrics - 1];
    index->n_values = SIZE_MAX;
    return NULL;
}

/* A name that has a number in the report at hand stands there once more, and for no number. */
static void withdraw_value(struct view_index *index, const struct value *value) {
    enum index_axis axis = axis_of(value->name, value->name_size);
    if (axis < INDEX_AXES_N) index->xs[axis] = (double)NAN;
    for (size_t i = 0; i < index->n_values; i++) {
        struct index_metric *metric = &index->metrics[index->values[i]];
        if (!value_is_named(value, metric->name, metric->name_size)) continue;
        metric->report = 0;
        index->n_values--;
        memmove(index->values + i, index->values + i + 1, (index->n_values - i) * sizeof *index->values);
        return;
    }
}

/* One value of the report at hand. Names that the parser has at the same place as in the report before
 * (value->same) are not looked up again. */
static bool note_value(void *context, const struct value *value) {
    struct view_index *index = context;
    size_t none = 0, *known = value->member < VALUES_MEMBERS ? &index->members[value->member] : &none;
    if (!value->same) *known = 0;
    if (value->type != VALUE_NUMBER && value->type != VALUE_NONFINITE) {
        if (index->n_values > 0) withdraw_value(index, value);
        return true;
    }
    struct index_metric *metric = *known > 0 ? &index->metrics[*known - 1] : find_metric(index, value);
    if (index->n_values == SIZE_MAX) return false;
    if (metric != NULL) *known = (size_t)(metric - index->metrics) + 1;
    enum index_axis axis = metric != NULL ? metric->axis : axis_of(value->name, value->name_size);
    if (axis < INDEX_AXES_N) index->xs[axis] = value->type == VALUE_NUMBER ? value->number : (double)NAN;
    if (metric == NULL) return true;
    if (metric->report != index->report) index->values[index->n_values++] = (size_t)(metric - index->metrics);
    metric->report = index->report; /* of a name given twice the last counts */
    metric->value = value->type == VALUE_NUMBER ? value->number : (double)NAN;
    return true;
}

enum { INDEX_ANEW = 1 };

/* Axes whose x is the number of each report have no buckets of their own: INDEX_ANEW where that ends behind
 * reports of which it was so. */
static int note_unlike(struct view_index *index) {
    uint32_t unlike = index->head.unlike;
    for (int axis = INDEX_STEP_X; axis < INDEX_AXES_N; axis++)
        if (index->xs[axis] != index->xs[INDEX_NUMBER]) unlike |= 1U << axis;
    if (unlike == index->head.unlike) return 0;
    bool anew = index->head.rows + index->group.n > 0;
    (void)pthread_mutex_lock(&index->lock);
    struct index_head before = index->head; /* of the same journal */
    if (anew) forget(index);
    index->head.device = before.device;
    index->head.inode = before.inode;
    index->head.first = before.first;
    index->head.n_attempts = before.n_attempts;
    index->head.unlike = unlike;
    (void)pthread_mutex_unlock(&index->lock);
    return anew ? INDEX_ANEW : 0;
}

/* A report's number and time are there always; an x of another name where the report has one, and then with a
 * row of its own only if it is not the number of every report. An x beyond 1e15 has no slot, so that the
 * numbers of slots, and the difference of any two, stay far below what an int64_t holds. */
static int add_report(void *context, const struct journal_report *report) {
    struct view_index *index = context;
    double *xs = index->xs;
    index->n_values = 0;
    index->report = report->id;
    xs[INDEX_NUMBER] = (double)report->number;
    xs[INDEX_TIME] = duration_seconds(report->time - index->head.first);
    for (int axis = INDEX_STEP_X; axis < INDEX_AXES_N; axis++)
        xs[axis] = (double)NAN;
    (void)values_each_like(&index->shape, report->metrics, report->metrics_size, note_value, index);
    if (index->n_values == SIZE_MAX) return -ENOMEM;
    int result = note_unlike(index);
    if (result != 0) return result;
    bool has[INDEX_AXES_N];
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        has[axis] = !isnan(xs[axis]);
        bool own = axis < INDEX_STEP_X || (index->head.unlike >> axis & 1) != 0;
        if (!own || !(fabs(xs[axis]) < 1e15)) xs[axis] = (double)NAN;
    }
    bool lost = !view_facts_count(index->counting, report->attempt, report->number);
    if (!joins_group(index, lost)) {
        result = end_group(index);
        if (result < 0) return result;
        begin_group(index, lost);
    }
    for (int axis = 0; axis < INDEX_AXES_N; axis++)
        index->group.with[axis] += has[axis];
    gather(index, report);
    return 0;
}

/* The run was removed: what is kept of it, here and in the cache, serves nobody. */
static void clear(struct view_index *index) {
    if (index->cache != NULL) (void)unlink(index->cache);
    view_facts_done(&index->facts);
    drawings_clear(&index->drawings);
    (void)pthread_mutex_lock(&index->lock);
    forget(index);
    index->there = 0;
    index->done = -1;
    index->kept = 0;
    (void)pthread_mutex_unlock(&index->lock);
}

/* Whether what it has is of this journal, and still counts as it did. */
static int check(struct view_index *index, ty_error *err) {
    struct index_head *head = &index->head;
    struct view_facts *facts = &index->facts;
    struct stat status;
    CLEANUP(buffer_done) struct buffer path = {0};
    buffer_printf(&path, "%s/run.db", index->run_path);
    int result = path.failed ? -ENOMEM : stat(path.data, &status) < 0 ? -errno : 0;
    if (result == -ENOENT) clear(index);
    if (result < 0)
        return ty_fail(err, result, "cannot read %s/run.db: %s", index->run_path, strerror(-result));
    bool same = head->device == status.st_dev && head->inode == status.st_ino;
    if (!same) view_facts_done(facts);
    result = view_facts_renew(index->run_path, facts, err);
    if (result < 0) return result;
    (void)pthread_mutex_lock(&index->lock);
    same = same && head->first == facts->first && (int64_t)facts->reports >= head->last &&
           head->n_attempts == facts->n_attempts;
    if (!same) {
        forget(index);
        head->device = status.st_dev;
        head->inode = status.st_ino;
        head->first = facts->first;
        head->n_attempts = facts->n_attempts;
    }
    index->there = facts->reports;
    index->done = head->last;
    (void)pthread_mutex_unlock(&index->lock);
    return 0;
}

static void read_cache(struct view_index *index);

/* Reads one piece behind what it has, in the thread that holds `growing`: 1 where there is more. */
static int grow(struct view_index *index, ty_error *err) {
    struct view_scan scan = {
        .after = index->head.last, .last = (int64_t)index->there, .piece = true, .rows = &index->rows};
    if (scan.last <= scan.after) return 0;
    int result = view_scan(index->run_path, &scan, add_report, index, err);
    int ended = end_group(index);
    if (result == 0) result = ended;
    if (result == 0) { /* where reports are missing it has all that there are */
        (void)pthread_mutex_lock(&index->lock);
        index->head.last = scan.last;
        (void)pthread_mutex_unlock(&index->lock);
    }
    if (result < 0 || scan.last >= (int64_t)index->there) scan_rows_done(&index->rows);
    if (result == INDEX_ANEW) return 1;
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    index->done = index->head.last;
    return index->done < (int64_t)index->there;
}

/* What came since it was looked at last, unless a run reports so fast that this is of no use. */
static int step(struct view_index *index, ty_error *err) {
    enum { STEP_REPORTS = 20000 }; /* as many as a piece has */
    if (TAKE(index->cached)) read_cache(index);
    uint64_t known = index->there;
    int result = check(index, err);
    index->follows = known > 0 ? index->there > known : index->facts.replay.end.event.time == 0;
    index->outrun = known > 0 && index->there > known + STEP_REPORTS;
    if (result < 0 || index->places == NULL) {
        scan_rows_done(&index->rows);
        return result < 0 ? result : ty_fail_memory(err);
    }
    index->drawn = 1;
    if (index->there <= VIEW_WHOLE) return 0;
    index->counting = &index->facts;
    return index->outrun ? 1 : grow(index, err);
}

/* Drawings are made without `growing`: they take long, and an answer may take along what came meanwhile. */
int view_index_grow(struct view_index *index, ty_error *err) {
    (void)pthread_mutex_lock(&index->growing);
    int result = step(index, err);
    (void)pthread_mutex_unlock(&index->growing);
    if (result != 0 || index->there <= VIEW_WHOLE) return result;
    return drawings_step(&index->drawings, index->run_path, index, &index->facts, &index->drawn, err);
}

static bool is_of(const struct view_index *index, const struct view_facts *facts) {
    const struct index_head *head = &index->head;
    return head->first == facts->first && head->n_attempts == facts->n_attempts &&
           head->last <= (int64_t)facts->reports;
}

/* Whether the cache lacks more than an eighth of what it could have. */
static bool is_to_be_kept(const struct view_index *index) {
    int64_t last = index->head.last;
    return index->cache != NULL && (last < index->kept || last - index->kept > index->kept / 8);
}

/* Whether there are buckets of such: of ranks, and of made metrics, there are none. */
static bool has_buckets(const struct view_query *query) {
    return query->ranks == NULL && query->what == VIEW_BAND && query->metric[0] != '@';
}

/* An answer that finds another thread at work takes what there is: it never waits for the background. The
 * answer's own facts decide what counts, as it goes by these. */
enum index_standing index_follow(const struct view_index *const_index, const struct view_query *query,
                                 const struct view_facts *facts) {
    struct view_index *index = (struct view_index *)const_index; /* its locks */
    int64_t there = (int64_t)facts->reports;
    bool grows = has_buckets(query) && pthread_mutex_trylock(&index->growing) == 0;
    (void)pthread_mutex_lock(&index->lock);
    int64_t last = index->head.last;
    bool stale = last > 0 && !is_of(index, facts);
    (void)pthread_mutex_unlock(&index->lock);
    if (grows && last > 0 && !stale && there > last && there - last <= VIEW_WHOLE) {
        index->there = facts->reports;
        index->counting = facts;
        while (grow(index, NULL) > 0 && index->head.last > last)
            last = index->head.last;
    }
    bool due = grows && last > 0 && is_to_be_kept(index);
    if (grows) (void)pthread_mutex_unlock(&index->growing);
    return stale ? INDEX_IS_STALE : due ? INDEX_IS_DUE : INDEX_IS_RIGHT;
}

bool view_index_follows(const struct view_index *index) {
    return index->follows;
}

bool view_index_outrun(const struct view_index *index) {
    return index->outrun;
}

double view_index_scanned(const struct view_index *index) {
    uint64_t there = index->there;
    int64_t done = index->done;
    return done < 0 ? 0 : there <= VIEW_WHOLE ? 1 : (double)done / (double)there;
}

double view_index_progress(const struct view_index *index) {
    double scanned = view_index_scanned(index);
    return scanned < 1 ? scanned : index->drawn;
}

/* -- asked */

/* The axis whose row has the query's x, -1 where there is none, and by which name: one for the whole run, so
 * that all that an answer is made of has the same. */
static int find_axis(const struct view_index *index, const char *asked, const char **x) {
    const struct index_head *head = &index->head;
    *x = asked == NULL ? "step" : asked;
    if (str_equal(*x, "number")) return INDEX_NUMBER;
    if (str_equal(*x, "time") || str_equal(*x, "relative")) return INDEX_TIME;
    bool epoch = str_equal(*x, "epoch");
    if (!epoch && !str_equal(*x, "step")) return -1;
    int last = epoch ? INDEX_EPOCH : INDEX_TRAINING_ITERATION;
    for (int axis = epoch ? INDEX_EPOCH : INDEX_STEP_X; axis <= last && head->rows > 0; axis++) {
        if (head->with[axis] * 100 < head->rows * 99) continue;
        *x = axis_names[axis];
        return (head->unlike >> axis & 1) != 0 ? axis : INDEX_NUMBER;
    }
    *x = axis_names[INDEX_NUMBER];
    return INDEX_NUMBER;
}

/* Where a slot with x lies in the row, or its nearest end. */
static size_t place_of(const struct index_row *row, double x) {
    double at = floor(x * row->scale) - (double)row->base;
    return !(at > 0) ? 0 : at < (double)row->n ? (size_t)at : row->n;
}

/* One slot more is taken at each end of the range: an x that is shifted is rounded, and may lie on the other
 * side of an edge. Whoever asked leaves out what is outside. */
static int copy_row(const struct index_row *row, const struct view_query *query, double shift,
                    struct index_piece *piece) {
    size_t from = isnan(query->from) ? 0 : place_of(row, query->from - shift);
    size_t to = isnan(query->to) ? row->n : place_of(row, query->to - shift);
    from = from > 0 ? from - 1 : 0; /* what is shifted is rounded */
    to = to + 2 < row->n ? to + 2 : row->n;
    piece->buckets = malloc((to - from + 1) * sizeof *piece->buckets);
    if (piece->buckets == NULL) return -ENOMEM;
    for (size_t i = from; i < to; i++) {
        if (view_bucket_is_empty(&row->slots[i])) continue;
        struct view_bucket *bucket = &piece->buckets[piece->n++];
        *bucket = row->slots[i];
        bucket->x += shift;
        bucket->x_last += shift;
    }
    return 1;
}

struct scan_sample *index_sample(const struct view_index *index) {
    return &((struct view_index *)index)->sample; /* with a lock of its own */
}

struct facts_kept *index_facts(const struct view_index *index) {
    return index != NULL ? &((struct view_index *)index)->answering : NULL; /* likewise */
}

struct drawings *index_drawings(const struct view_index *index) {
    return index != NULL ? &((struct view_index *)index)->drawings : NULL; /* likewise */
}

const char *index_x(const struct view_index *const_index, const char *x) {
    struct view_index *index = (struct view_index *)const_index; /* its lock */
    const char *chosen;
    (void)pthread_mutex_lock(&index->lock);
    bool known = index->head.rows > 0 && (int64_t)index->there - index->head.last <= VIEW_WHOLE;
    (void)find_axis(index, x, &chosen);
    (void)pthread_mutex_unlock(&index->lock);
    return known ? chosen : NULL;
}

/* The ids of all buckets that reach into the range, or are next to it by a rounded shift. An end that the query
 * leaves open is NAN, which nothing is below or above. */
static void widen_span(const struct index_row *row, const struct view_query *query, double shift,
                       struct index_span *span) {
    double from = query->from - shift, to = query->to - shift, rounded = 1.0 / FINEST_SCALE;
    for (size_t i = 0; i < row->n; i++) {
        const struct view_bucket *bucket = &row->slots[i];
        if (view_bucket_is_empty(bucket) || bucket->x_last < from - rounded || bucket->x > to + rounded)
            continue;
        if (bucket->id_first < span->first) span->first = bucket->id_first;
        if (bucket->id_last > span->last) span->last = bucket->id_last;
    }
}

bool index_find(const struct view_index *const_index, const struct view_query *query, struct index_span *span) {
    struct view_index *index = (struct view_index *)const_index; /* its lock */
    const char *x;
    (void)pthread_mutex_lock(&index->lock);
    *span = (struct index_span){.first = INT64_MAX, .have = index->head.last};
    int axis = find_axis(index, query->x, &x);
    const uintptr_t *place = index->places != NULL ? hash_get(index->places, query->metric) : NULL;
    bool known = index->head.rows > 0 && axis >= 0 && place != NULL;
    /* Relative time is what the rows have; wall time is shifted. */
    double shift = known && str_equal(x, "time") ? duration_seconds(index->head.first) : 0;
    for (size_t lost = 0; lost < 2 && known; lost++)
        widen_span(&index->metrics[*place - 1].rows[lost][axis], query, shift, span);
    (void)pthread_mutex_unlock(&index->lock);
    return known;
}

bool index_end(const struct view_index *const_index, const struct view_query *query, bool any, double *to) {
    struct view_index *index = (struct view_index *)const_index; /* its lock */
    const char *x;
    (void)pthread_mutex_lock(&index->lock);
    int axis = find_axis(index, query->x, &x);
    *to = (double)NAN;
    for (size_t i = 0; i < index->head.n_metrics && axis >= 0; i++) {
        const struct index_metric *metric = &index->metrics[i];
        if (!any && !str_equal(metric->name, query->metric)) continue;
        for (size_t lost = 0; lost < (query->history == VIEW_ALL ? 2 : 1); lost++)
            for (size_t k = metric->rows[lost][axis].n; k > 0; k--) {
                const struct view_bucket *bucket = &metric->rows[lost][axis].slots[k - 1];
                if (view_bucket_is_empty(bucket)) continue;
                if (!(bucket->x_last <= *to)) *to = bucket->x_last;
                break; /* slots lie by x */
            }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return !isnan(*to) && !str_equal(x, "time");
}

int index_take(const struct view_index *const_index, const struct view_query *query, bool lost,
               struct index_piece *piece) {
    struct view_index *index = (struct view_index *)const_index; /* its lock */
    *piece = (struct index_piece){0};
    piece->last = index->done > 0 ? index->done : 0;
    if (!has_buckets(query)) return 0;
    if ((int64_t)index->there - piece->last > VIEW_WHOLE) return 0;
    (void)pthread_mutex_lock(&index->lock);
    piece->last = index->head.last;
    int axis = find_axis(index, query->x, &piece->x), result = 0;
    const uintptr_t *place = index->places != NULL ? hash_get(index->places, query->metric) : NULL;
    if (axis >= 0 && place != NULL) {
        double shift = str_equal(piece->x, "time") ? duration_seconds(index->head.first) : 0;
        result = copy_row(&index->metrics[*place - 1].rows[lost][axis], query, shift, piece);
    }
    (void)pthread_mutex_unlock(&index->lock);
    return result;
}

/* -- kept */

/* $XDG_CACHE_HOME/trainyard/index/ID.db, in directories that are the user's alone; NULL: there is no place. */
static char *cache_path(const char *run_path) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    CLEANUP(buffer_done) struct buffer path = {0};
    char id[VIEW_ID_SIZE];
    if (!view_run_id(run_path, id)) return NULL;
    if (cache != NULL && cache[0] == '/')
        buffer_printf(&path, "%s/trainyard/index/%s.db", cache, id);
    else if (home != NULL && home[0] == '/')
        buffer_printf(&path, "%s/.cache/trainyard/index/%s.db", home, id);
    return path.size == 0 || path.failed ? NULL : buffer_take(&path);
}

/* The head, then each metric with its rows, as they lie in memory: INDEX_VERSION changes with any of these
 * structs. A row is written at a time, so that the whole is not in memory twice. */
static int write_cache(const struct view_index *index, int fd) {
    CLEANUP(buffer_done) struct buffer out = {0};
    buffer_append(&out, &index->head, sizeof index->head);
    for (size_t i = 0; i < index->head.n_metrics; i++) {
        const struct index_metric *metric = &index->metrics[i];
        uint64_t size = strlen(metric->name);
        buffer_append(&out, &size, sizeof size);
        buffer_append(&out, metric->name, size);
        for (size_t row = 0; row < 2 * INDEX_AXES_N; row++) {
            const struct index_row *slots = &metric->rows[row / INDEX_AXES_N][row % INDEX_AXES_N];
            uint64_t n = slots->n;
            buffer_append(&out, &n, sizeof n);
            buffer_append(&out, &slots->base, sizeof slots->base);
            buffer_append(&out, &slots->scale, sizeof slots->scale);
            if (n > 0) buffer_append(&out, slots->slots, n * sizeof *slots->slots);
            if (out.failed) return -ENOMEM;
            int result = file_write_all(fd, out.data, out.size);
            if (result < 0) return result;
            buffer_clear(&out);
        }
    }
    return out.size > 0 ? file_write_all(fd, out.data, out.size) : 0;
}

/* What a dashboard that was killed while it wrote has left: a file takes seconds to write. And the index of a
 * run that nobody asked about for long: where that was removed by other means than ours nothing else tells. */
static void sweep(const char *directory) {
    enum { PART_S = 3600, UNUSED_S = 30 * 24 * 3600 };
    DIR *entries = opendir(directory);
    struct stat status;
    if (entries == NULL) return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *ending = strstr(entry->d_name, ".db");
        bool whole = str_equal(ending, ".db");
        if (ending != NULL && (whole || str_prefix(ending, ".db.part-", NULL)) &&
            fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - status.st_mtime > (whole ? UNUSED_S : PART_S))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    (void)closedir(entries);
}

void view_index_forget(const char *run_path) {
    CLEANUP_FREE char *cache = cache_path(run_path);
    if (cache != NULL) (void)unlink(cache);
}

/* What could not be written is tried again when there is an eighth more, and not before. */
static int keep(struct view_index *index, ty_error *err) {
    if (!is_to_be_kept(index)) return 0;
    index->kept = index->head.last;
    CLEANUP_FREE char *directory = strdup(index->cache);
    struct file_draft draft;
    if (directory == NULL) return ty_fail_memory(err);
    *strrchr(directory, '/') = '\0';
    int result = file_make_directories(directory, 0700, err);
    if (result < 0) return result;
    sweep(directory);
    result = file_draft_open(index->cache, 0600, &draft);
    if (result == 0) result = file_draft_close(&draft, write_cache(index, draft.fd));
    return result < 0 ? ty_fail(err, result, "cannot keep the index in %s: %s", index->cache, strerror(-result))
                      : 0;
}

int view_index_keep(struct view_index *index, ty_error *err) {
    (void)pthread_mutex_lock(&index->growing);
    int result = keep(index, err);
    (void)pthread_mutex_unlock(&index->growing);
    return result;
}

/* A cache that anybody may have damaged: nothing behind its end is taken. It is as large as the index, so it is
 * never in memory as a whole. */
struct cache_reading {
    FILE *file;
    size_t left;
};

static bool take(struct cache_reading *reading, void *into, size_t size) {
    if (reading->left < size || fread(into, 1, size, reading->file) != size) return false;
    reading->left -= size;
    return true;
}

/* A row that could have been one of ours: what is computed of its base and scale later stays within the
 * numbers. */
static bool take_row(struct view_index *index, struct cache_reading *reading, struct index_row *row) {
    uint64_t n;
    if (!take(reading, &n, sizeof n) || !take(reading, &row->base, sizeof row->base) ||
        !take(reading, &row->scale, sizeof row->scale) || n > INDEX_SLOTS ||
        n * sizeof *row->slots > reading->left)
        return false;
    if (n == 0) return true;
    if (!(row->scale > 1e-18 && row->scale <= FINEST_SCALE) || row->base > INT64_MAX / 4 ||
        row->base < INT64_MIN / 4)
        return false;
    if (reserve(row, n) < 0) return false;
    row->n = n;
    index->n_slots += n;
    return take(reading, row->slots, n * sizeof *row->slots);
}

static bool take_metric(struct view_index *index, struct cache_reading *reading) {
    uint64_t size;
    char name[INDEX_NAME_BYTES];
    if (!take(reading, &size, sizeof size) || size >= sizeof name || !take(reading, name, size)) return false;
    name[size] = '\0';
    if (hash_get(index->places, name) != NULL || add_metric(index, strdup(name)) < 0) return false;
    struct index_metric *metric = &index->metrics[index->head.n_metrics - 1];
    for (size_t row = 0; row < 2 * INDEX_AXES_N; row++)
        if (!take_row(index, reading, &metric->rows[row / INDEX_AXES_N][row % INDEX_AXES_N])) return false;
    return true;
}

static bool take_all(struct view_index *index, struct cache_reading *reading) {
    struct index_head head;
    if (!take(reading, &head, sizeof head) || head.version != INDEX_VERSION || head.n_metrics > INDEX_METRICS ||
        head.last < 0)
        return false;
    uint64_t n = head.n_metrics;
    head.n_metrics = 0;
    index->head = head;
    for (uint64_t i = 0; i < n; i++)
        if (!take_metric(index, reading)) return false;
    return reading->left == 0;
}

/* Whether the file is of this journal, as it is now, check() finds out, before anything is taken of it. */
static void read_cache(struct view_index *index) {
    struct stat status;
    index->cache = cache_path(index->run_path);
    if (index->cache == NULL || stat(index->cache, &status) < 0 || !S_ISREG(status.st_mode)) return;
    FILE *file = fopen(index->cache, "re");
    if (file == NULL) return;
    struct cache_reading reading = {file, (size_t)status.st_size};
    (void)futimens(fileno(file), NULL); /* it is used (sweep) */
    (void)pthread_mutex_lock(&index->lock);
    if (!take_all(index, &reading)) forget(index);
    index->kept = index->head.last;
    (void)pthread_mutex_unlock(&index->lock);
    (void)fclose(file);
}

int view_index_open(const char *run_path, bool cached, struct view_index **out, ty_error *err) {
    struct view_index *index = calloc(1, sizeof *index);
    if (index == NULL) return ty_fail_memory(err);
    (void)pthread_mutex_init(&index->growing, NULL);
    (void)pthread_mutex_init(&index->lock, NULL);
    scan_sample_init(&index->sample);
    facts_kept_init(&index->answering);
    drawings_init(&index->drawings);
    index->run_path = strdup(run_path);
    index->cached = cached;
    index->done = -1;
    forget(index);
    if (index->run_path == NULL || index->places == NULL) {
        view_index_close(index);
        return ty_fail_memory(err);
    }
    *out = index;
    return 0;
}

void view_index_close(struct view_index *index) {
    if (index == NULL) return;
    free_metrics(index);
    hash_destroy(index->places);
    view_facts_done(&index->facts);
    scan_sample_done(&index->sample);
    facts_kept_done(&index->answering);
    drawings_done(&index->drawings);
    scan_rows_done(&index->rows);
    (void)pthread_mutex_destroy(&index->lock);
    (void)pthread_mutex_destroy(&index->growing);
    free(index->run_path);
    free(index->cache);
    free(index);
}
