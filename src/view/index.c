/* An index of a long run: one pass over the reports, each value into the bucket of each x, so that a plot of
 * millions of reports is drawn without reading them again. Buckets double their width when a row is full;
 * the index may be kept in the user's cache, and is void there once the journal is another one. */
#include "view/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "view/points.h"
#include "view/runs.h"
#include "view/scan.h"
#include "view/values.h"

enum { INDEX_STEP = 20000, INDEX_METRICS = 500, INDEX_SLOTS = 65536, TIME_SLOTS = 16384, INDEX_VERSION = 1 };

/* X(enumerator, name): each x that has buckets */
#define INDEX_AXES(X)         \
    X(INDEX_NUMBER, "number") \
    X(INDEX_TIME, "time")     \
    X(INDEX_STEP_X, "step")   \
    X(INDEX_EPOCH, "epoch")   \
    X(INDEX_AXES_N, NULL)

enum index_axis {
#define X(name, text) name,
    INDEX_AXES(X)
#undef X
};

static const char *const steps[] = {"step", "global_step", "iteration", "training_iteration"};

/* Buckets side by side: slot i holds the x from (base + i) * width on. */
struct index_row {
    struct view_bucket *slots; /* n, owned */
    size_t n;
    int64_t base;
    double width;
};

struct index_metric {
    char *name;                             /* owned */
    struct index_row rows[2][INDEX_AXES_N]; /* of what counts, and of what was lost */
};

/* What the cache keeps in front. */
struct index_head {
    uint32_t version, step; /* place in `steps`; 4: there is none */
    uint64_t device, inode;
    int64_t first; /* event, ns */
    int64_t last;  /* id of the last report that it has */
    uint64_t rows, with_step, with_epoch;
    uint64_t n_attempts, n_metrics;
    uint64_t same_step; /* every step was the report's number: it needs no buckets of its own */
};

struct view_index {
    char *run_path, *cache; /* owned; the cache's file, NULL: none */
    pthread_mutex_t lock;   /* over what queries read while it grows */
    struct index_head head;
    struct view_facts facts;
    struct index_metric *metrics; /* owned */
    struct hash *places;          /* name -> place + 1 */
    uint64_t there;               /* reports, when it was last looked */
    /* the report at hand */
    double xs[INDEX_AXES_N];
    const struct journal_report *report;
    size_t n_values;
    struct {
        size_t metric;
        double value;
    } values[INDEX_METRICS];
};

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
}

/* Begins anew: the journal is another one, or another attempt took reports back. */
static void forget(struct view_index *index, bool same_step) {
    free_metrics(index);
    index->head =
        (struct index_head){.version = INDEX_VERSION, .step = ARRAY_SIZE(steps), .same_step = same_step};
}

/* -- buckets */

static int64_t slot_of(double x, double width) {
    double at = x / width;
    int64_t slot = (int64_t)at; /* towards 0 */
    return (double)slot > at ? slot - 1 : slot;
}

/* Two neighbours become one. */
static void widen(struct index_row *row) {
    int64_t base = row->base >> 1;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        size_t at = (size_t)(((row->base + (int64_t)i) >> 1) - base);
        struct view_bucket moved = row->slots[i];
        if (at != i) row->slots[i] = (struct view_bucket){0};
        if (at + 1 > n) {
            n = at + 1;
            row->slots[at] = moved;
        } else {
            view_bucket_merge(&row->slots[at], &moved);
        }
    }
    row->base = base;
    row->n = n;
    row->width *= 2;
}

/* Room for the slot of x; NULL when memory is short. */
static struct view_bucket *find_slot(struct index_row *row, double x, size_t most) {
    int64_t slot = slot_of(x, row->width);
    if (slot >= row->base && slot - row->base < (int64_t)row->n) return &row->slots[slot - row->base];
    if (row->n == 0) row->base = slot;
    for (;;) {
        slot = slot_of(x, row->width);
        int64_t low = slot < row->base ? slot : row->base, high = row->base + (int64_t)row->n - 1;
        if (slot > high) high = slot;
        if ((uint64_t)(high - low) < most) break;
        widen(row);
    }
    size_t front = slot < row->base ? (size_t)(row->base - slot) : 0;
    size_t n = front > 0                                 ? row->n + front
               : (size_t)(slot - row->base) + 1 > row->n ? (size_t)(slot - row->base) + 1
                                                         : row->n;
    if (n > row->n) {
        struct view_bucket *slots = row->slots;
        /* Room doubles, so that a row that grows slot by slot is not copied each time. */
        size_t held = row->n, room = held == 0 ? 0 : (size_t)1 << (64 - __builtin_clzll((held - 1) | 15));
        size_t wanted = (size_t)1 << (64 - __builtin_clzll((n - 1) | 15));
        if (wanted > room || slots == NULL) slots = reallocarray(slots, wanted, sizeof *slots);
        if (slots == NULL) return NULL;
        row->slots = slots;
        if (front > 0) memmove(slots + front, slots, held * sizeof *slots);
        memset(front > 0 ? slots : slots + held, 0, (n - held) * sizeof *slots);
        if (front > 0) row->base = slot;
        row->n = n;
    }
    return &row->slots[slot - row->base];
}

static int add_value(struct view_index *index, const struct journal_report *report, bool lost, size_t metric,
                     double value) {
    bool finite = isfinite(value);
    for (int axis = 0; axis < INDEX_AXES_N; axis++) {
        double x = index->xs[axis];
        if (!(fabs(x) < 1e15) || (axis == INDEX_STEP_X && index->head.same_step)) continue;
        struct index_row *row = &index->metrics[metric].rows[lost][axis];
        if (row->n == 0) row->width = axis == INDEX_TIME || x != floor(x) ? 1.0 / 128 : 1;
        struct view_bucket *bucket = find_slot(row, x, axis == INDEX_TIME ? TIME_SLOTS : INDEX_SLOTS);
        if (bucket == NULL) return -ENOMEM;
        const struct view_bucket point = {.x = x,
                                          .x_last = x,
                                          .n = finite,
                                          .nonfinite = !finite,
                                          .min = value,
                                          .max = value,
                                          .sum = value,
                                          .first = value,
                                          .last = value,
                                          .rank_min = report->rank,
                                          .rank_max = report->rank,
                                          .id_first = report->id,
                                          .id_last = report->id};
        view_bucket_merge(bucket, &point);
    }
    return 0;
}

/* -- reports */

static int look_up_metric(struct view_index *index, const struct value *value, size_t *place) {
    char name[1025];
    if (value->name_size >= sizeof name) return 0;
    memcpy(name, value->name != NULL ? value->name : "", value->name_size);
    name[value->name_size] = '\0';
    const uintptr_t *known = hash_get(index->places, name);
    if (known != NULL) {
        *place = *known - 1;
        return 1;
    }
    if (index->head.n_metrics == INDEX_METRICS) return 0;
    char *copy = ARRAY_GROW(index->metrics, index->head.n_metrics) < 0 ? NULL : strdup(name);
    if (copy == NULL || hash_set(index->places, name, index->head.n_metrics + 1) < 0) {
        free(copy);
        return -ENOMEM;
    }
    *place = index->head.n_metrics++;
    index->metrics[*place] = (struct index_metric){.name = copy};
    return 1;
}

static int find_metric(struct view_index *index, const struct value *value, size_t *place) {
    if (index->n_values < index->head.n_metrics) { /* reports name theirs in the same order */
        const char *likely = index->metrics[index->n_values].name;
        if (strncmp(likely, value->name, value->name_size) == 0 && likely[value->name_size] == '\0') {
            *place = index->n_values;
            return 1;
        }
    }
    return look_up_metric(index, value, place);
}

static bool is_named(const struct value *value, const char *name) {
    return value->name_size == strlen(name) && memcmp(value->name, name, value->name_size) == 0;
}

static void note_x(struct view_index *index, const struct value *value) {
    if (value->type != VALUE_NUMBER) return;
    for (uint32_t i = 0; i < ARRAY_SIZE(steps) && i <= index->head.step; i++)
        if (is_named(value, steps[i])) {
            if (index->head.rows == 0) index->head.step = i; /* the first report says by which name */
            if (i == index->head.step) index->xs[INDEX_STEP_X] = value->number;
        }
    if (is_named(value, "epoch")) index->xs[INDEX_EPOCH] = value->number;
}

static bool note_value(void *context, const struct value *value) {
    struct view_index *index = context;
    size_t place;
    if (value->type != VALUE_NUMBER && value->type != VALUE_NONFINITE) return true;
    note_x(index, value);
    int found = index->n_values < INDEX_METRICS ? find_metric(index, value, &place) : 0;
    if (found < 0) {
        index->n_values = SIZE_MAX;
        return false;
    }
    for (size_t i = 0; i < index->n_values && found > 0; i++)
        if (index->values[i].metric == place) {
            index->values[i].value = value->type == VALUE_NUMBER ? value->number : (double)NAN;
            return true;
        }
    if (found > 0) {
        index->values[index->n_values].metric = place;
        index->values[index->n_values++].value = value->type == VALUE_NUMBER ? value->number : (double)NAN;
    }
    return true;
}

enum { INDEX_ANEW = 1 };

static int add_report(void *context, const struct journal_report *report) {
    struct view_index *index = context;
    index->n_values = 0;
    index->xs[INDEX_NUMBER] = (double)report->number;
    index->xs[INDEX_TIME] = (double)(report->time - index->head.first) / (double)NS_PER_S;
    index->xs[INDEX_STEP_X] = index->xs[INDEX_EPOCH] = (double)NAN;
    (void)pthread_mutex_lock(&index->lock);
    (void)values_each(report->metrics, report->metrics_size, note_value, index);
    int result = index->n_values == SIZE_MAX ? -ENOMEM : 0;
    bool step = !isnan(index->xs[INDEX_STEP_X]);
    if (step && index->head.same_step && index->xs[INDEX_STEP_X] != index->xs[INDEX_NUMBER])
        result = INDEX_ANEW;
    bool lost = !view_facts_count(&index->facts, report->attempt, report->number);
    for (size_t i = 0; i < index->n_values && result == 0; i++)
        result = add_value(index, report, lost, index->values[i].metric, index->values[i].value);
    if (result == 0) {
        index->head.rows++;
        index->head.with_step += step;
        index->head.with_epoch += !isnan(index->xs[INDEX_EPOCH]);
        index->head.last = report->id;
    }
    (void)pthread_mutex_unlock(&index->lock);
    return result;
}

static int look_at_file(const struct view_index *index, struct stat *status) {
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/run.db", index->run_path) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return stat(path, status) < 0 ? -errno : 0;
}

/* Whether what it has is of this journal, and still counts as it did. */
static int check(struct view_index *index, ty_error *err) {
    struct view_facts facts;
    struct stat status;
    int result = view_facts_read(index->run_path, &facts, err);
    if (result < 0) return result;
    result = look_at_file(index, &status);
    if (result < 0) {
        view_facts_done(&facts);
        return ty_fail(err, result, "cannot read %s/run.db: %s", index->run_path, strerror(-result));
    }
    (void)pthread_mutex_lock(&index->lock);
    struct index_head *head = &index->head;
    bool same = head->device == status.st_dev && head->inode == status.st_ino && head->first == facts.first &&
                (int64_t)facts.reports >= head->last && head->n_attempts == facts.n_attempts;
    if (!same) {
        forget(index, true);
        head->device = status.st_dev;
        head->inode = status.st_ino;
        head->first = facts.first;
        head->n_attempts = facts.n_attempts;
    }
    view_facts_done(&index->facts);
    index->facts = facts;
    index->there = facts.reports;
    (void)pthread_mutex_unlock(&index->lock);
    return 0;
}

int view_index_grow(struct view_index *index, ty_error *err) {
    int result = check(index, err);
    if (result < 0 || index->places == NULL) return result < 0 ? result : ty_fail_memory(err);
    struct view_scan scan = {.after = index->head.last, .last = (int64_t)index->there};
    if (scan.last - scan.after > INDEX_STEP) scan.last = scan.after + INDEX_STEP;
    if (scan.last <= scan.after) return 0;
    result = view_scan(index->run_path, &scan, add_report, index, err);
    if (result == INDEX_ANEW) { /* steps go their own way: they need buckets of their own */
        (void)pthread_mutex_lock(&index->lock);
        struct index_head before = index->head;
        forget(index, false);
        index->head.device = before.device;
        index->head.inode = before.inode;
        index->head.first = before.first;
        index->head.n_attempts = before.n_attempts;
        (void)pthread_mutex_unlock(&index->lock);
        return 1;
    }
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    return index->head.last < (int64_t)index->there;
}

double view_index_scanned(const struct view_index *index) {
    return index->there == 0 ? 1 : (double)index->head.last / (double)index->there;
}

/* -- asked */

static int find_axis(const struct view_index *index, const struct view_query *query, const char **x) {
    const struct index_head *head = &index->head;
    *x = query->x == NULL ? "step" : query->x;
    if (str_equal(*x, "number")) return INDEX_NUMBER;
    if (str_equal(*x, "time") || str_equal(*x, "relative")) return INDEX_TIME;
    bool step = head->with_step * 100 >= head->rows * 99, epoch = head->with_epoch * 100 >= head->rows * 99;
    if (str_equal(*x, "step") && step && head->step < ARRAY_SIZE(steps)) {
        *x = steps[head->step];
        return head->same_step ? INDEX_NUMBER : INDEX_STEP_X;
    }
    if (str_equal(*x, "epoch") && epoch) return INDEX_EPOCH;
    bool falls_back = str_equal(*x, "step") || str_equal(*x, "epoch");
    *x = "number";
    return falls_back ? INDEX_NUMBER : -1;
}

static int copy_row(const struct view_index *index, const struct index_row *row, double shift,
                    struct index_piece *piece) {
    piece->buckets = calloc(row->n + 1, sizeof *piece->buckets);
    if (piece->buckets == NULL) return -ENOMEM;
    for (size_t i = 0; i < row->n; i++) {
        if (row->slots[i].n + row->slots[i].nonfinite == 0) continue;
        struct view_bucket *bucket = &piece->buckets[piece->n++];
        *bucket = row->slots[i];
        bucket->x += shift;
        bucket->x_last += shift;
    }
    piece->last = index->head.last;
    return 1;
}

int index_take(const struct view_index *const_index, const struct view_query *query, bool lost,
               struct index_piece *piece) {
    struct view_index *index = (struct view_index *)const_index; /* its lock */
    *piece = (struct index_piece){0};
    if (query->ranks != NULL || query->what != VIEW_BAND || query->metric[0] == '@') return 0;
    (void)pthread_mutex_lock(&index->lock);
    int axis = find_axis(index, query, &piece->x), result = 0;
    const uintptr_t *place = index->places != NULL ? hash_get(index->places, query->metric) : NULL;
    if (axis >= 0 && place != NULL) {
        double shift = str_equal(piece->x, "time") ? (double)index->head.first / (double)NS_PER_S : 0;
        result = copy_row(index, &index->metrics[*place - 1].rows[lost][axis], shift, piece);
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
            buffer_append(&out, &slots->width, sizeof slots->width);
            if (n > 0) buffer_append(&out, slots->slots, n * sizeof *slots->slots);
            if (out.failed) return -ENOMEM;
            int result = file_write_all(fd, out.data, out.size);
            if (result < 0) return result;
            buffer_clear(&out);
        }
    }
    return out.size > 0 ? file_write_all(fd, out.data, out.size) : 0;
}

int view_index_keep(struct view_index *index, ty_error *err) {
    CLEANUP_FREE char *directory = index->cache != NULL ? strdup(index->cache) : NULL;
    CLEANUP_FREE char *part = NULL;
    if (directory == NULL) return 0;
    *strrchr(directory, '/') = '\0';
    int result = file_make_directories(directory, 0700, err);
    if (result < 0) return result;
    CLEANUP_FD int fd = file_open_part(index->cache, 0600, &part);
    result = fd < 0 ? fd : write_cache(index, fd);
    if (result >= 0 && rename(part, index->cache) < 0) result = -errno;
    if (result < 0 && part != NULL) (void)unlink(part);
    return result < 0 ? ty_fail(err, result, "cannot keep the index in %s: %s", index->cache, strerror(-result))
                      : 0;
}

/* Bytes of a cache that anybody may have damaged: nothing behind its end is taken. */
struct cache_reading {
    const char *at;
    size_t left;
};

static bool take(struct cache_reading *reading, void *into, size_t size) {
    if (reading->left < size) return false;
    memcpy(into, reading->at, size);
    reading->at += size;
    reading->left -= size;
    return true;
}

static bool take_row(struct cache_reading *reading, struct index_row *row) {
    uint64_t n;
    if (!take(reading, &n, sizeof n) || !take(reading, &row->base, sizeof row->base) ||
        !take(reading, &row->width, sizeof row->width) || n > INDEX_SLOTS ||
        n * sizeof *row->slots > reading->left)
        return false;
    if (n == 0) return true;
    if (!(row->width > 1e-9 && row->width < 1e18) || row->base > INT64_MAX / 4 || row->base < INT64_MIN / 4)
        return false;
    row->slots = calloc((size_t)1 << (64 - __builtin_clzll((n - 1) | 15)), sizeof *row->slots);
    row->n = n;
    return row->slots != NULL && take(reading, row->slots, n * sizeof *row->slots);
}

static bool take_metric(struct view_index *index, struct cache_reading *reading) {
    uint64_t size;
    if (!take(reading, &size, sizeof size) || size > 1024 || size > reading->left) return false;
    char *name = ARRAY_GROW(index->metrics, index->head.n_metrics) < 0 ? NULL : strndup(reading->at, size);
    if (name == NULL) return false;
    reading->at += size;
    reading->left -= size;
    struct index_metric *metric = &index->metrics[index->head.n_metrics];
    *metric = (struct index_metric){.name = name};
    if (hash_set(index->places, name, ++index->head.n_metrics) <= 0) return false;
    for (size_t row = 0; row < 2 * INDEX_AXES_N; row++)
        if (!take_row(reading, &metric->rows[row / INDEX_AXES_N][row % INDEX_AXES_N])) return false;
    return true;
}

static bool read_cache(struct view_index *index) {
    CLEANUP(buffer_done) struct buffer text = {0};
    struct index_head head;
    if (index->cache == NULL || file_read(index->cache, (size_t)1 << 30, &text, NULL) < 0) return false;
    struct cache_reading reading = {text.data, text.size};
    if (!take(&reading, &head, sizeof head) || head.version != INDEX_VERSION ||
        head.n_metrics > INDEX_METRICS || head.step > ARRAY_SIZE(steps) || head.last < 0)
        return false;
    uint64_t n = head.n_metrics;
    head.n_metrics = 0;
    index->head = head;
    for (uint64_t i = 0; i < n; i++)
        if (!take_metric(index, &reading)) return false;
    return reading.left == 0;
}

int view_index_open(const char *run_path, bool cached, struct view_index **out, ty_error *err) {
    struct view_index *index = calloc(1, sizeof *index);
    if (index == NULL) return ty_fail_memory(err);
    (void)pthread_mutex_init(&index->lock, NULL);
    index->run_path = strdup(run_path);
    index->cache = cached ? cache_path(run_path) : NULL;
    forget(index, true);
    if (index->run_path == NULL || index->places == NULL) {
        view_index_close(index);
        return ty_fail_memory(err);
    }
    if (!read_cache(index)) forget(index, true);
    *out = index;
    return 0;
}

void view_index_close(struct view_index *index) {
    if (index == NULL) return;
    free_metrics(index);
    hash_destroy(index->places);
    view_facts_done(&index->facts);
    (void)pthread_mutex_destroy(&index->lock);
    free(index->run_path);
    free(index->cache);
    free(index);
}
