/* An index of a long run: one pass over the reports, each value into the bucket of each x (index_rows.c), so
 * that a plot of millions of reports is drawn without reading them again. It grows with the run. */
#include "view/index.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "view/drawings.h"
#include "view/index_parts.h"
#include "view/scan.h"
#include "view/values.h"

/* NULL: there are too many, or its name is too long; or memory is short, which `n_values` tells. */
static struct index_metric *find_metric(struct view_index *index, const struct value *value) {
    char name[METRIC_NAME_BYTES + 1];
    if (index->n_values < index->head.n_metrics) { /* reports name theirs in the same order */
        struct index_metric *likely = &index->metrics[index->n_values];
        if (value_is_named(value, likely->name, likely->name_size)) return likely;
    }
    if (value->name_size >= INDEX_NAME_BYTES || !value_name(value, name)) return NULL;
    const uintptr_t *known = hash_get(index->places, name);
    if (known != NULL) return &index->metrics[*known - 1];
    if (index->head.n_metrics == INDEX_METRICS) return NULL;
    (void)pthread_mutex_lock(&index->lock);
    int result = index_add_metric(index, strdup(name));
    (void)pthread_mutex_unlock(&index->lock);
    if (result == 0) return &index->metrics[index->head.n_metrics - 1];
    index->n_values = SIZE_MAX;
    return NULL;
}

/* A name that has a number in the report at hand stands there once more, and for no number. */
static void withdraw_value(struct view_index *index, const struct value *value) {
    enum index_axis axis = index_axis_of(value->name, value->name_size);
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
    if (!value_is_number(value)) {
        if (index->n_values > 0) withdraw_value(index, value);
        return true;
    }
    struct index_metric *metric = *known > 0 ? &index->metrics[*known - 1] : find_metric(index, value);
    if (index->n_values == SIZE_MAX) return false;
    if (metric != NULL) *known = (size_t)(metric - index->metrics) + 1;
    enum index_axis axis = metric != NULL ? metric->axis : index_axis_of(value->name, value->name_size);
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
    if (anew) index_forget(index);
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
    return index_add(index, report, !view_facts_count(index->counting, report->attempt, report->number), has);
}

/* The run was removed: what is kept of it, here and in the cache, serves nobody. */
static void clear(struct view_index *index) {
    if (index->cache != NULL) (void)unlink(index->cache);
    view_facts_done(&index->facts);
    drawings_clear(&index->drawings);
    (void)pthread_mutex_lock(&index->lock);
    index_forget(index);
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
        index_forget(index);
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

/* Reads one piece behind what it has, in the thread that holds `growing`: 1 where there is more. */
static int grow(struct view_index *index, ty_error *err) {
    struct view_scan scan = {
        .after = index->head.last, .last = (int64_t)index->there, .piece = true, .rows = &index->rows};
    if (scan.last <= scan.after) return 0;
    int result = view_scan(index->run_path, &scan, add_report, index, err);
    int ended = index_end_group(index);
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
    if (TAKE(index->cached)) index_cache_read(index);
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

/* An answer that finds another thread at work takes what there is: it never waits for the background. The
 * answer's own facts decide what counts, as it goes by these. */
enum index_standing index_follow(const struct view_index *const_index, const struct view_query *query,
                                 const struct view_facts *facts) {
    struct view_index *index = (struct view_index *)const_index; /* its locks */
    int64_t there = (int64_t)facts->reports;
    bool grows = index_has_buckets(query) && pthread_mutex_trylock(&index->growing) == 0;
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
    bool due = grows && last > 0 && index_cache_lags(index);
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
    index_forget(index);
    if (index->run_path == NULL || index->places == NULL) {
        view_index_close(index);
        return ty_fail_memory(err);
    }
    *out = index;
    return 0;
}

void view_index_close(struct view_index *index) {
    if (index == NULL) return;
    index_free_metrics(index);
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
