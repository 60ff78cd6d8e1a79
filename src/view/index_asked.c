/* What an index answers: copies of its buckets, by which name reports have an x, where those of a range lie.
 * Nothing is read here, and nothing changed. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/str.h"
#include "view/index_parts.h"

bool index_has_buckets(const struct view_query *query) {
    return query->ranks == NULL && query->what == VIEW_BAND && query->metric[0] != '@';
}

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
        *x = index_axis_names[axis];
        return (head->unlike >> axis & 1) != 0 ? axis : INDEX_NUMBER;
    }
    *x = index_axis_names[INDEX_NUMBER];
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
    if (!index_has_buckets(query)) return 0;
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
