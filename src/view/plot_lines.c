/* Lines made of points, in buckets. A bucket keeps its first, last, least and greatest value, each with the
 * rank that had it, so that what is drawn keeps every extreme however few buckets are left of the points. Where
 * points come from (reports, an index, a sample) is not known here. */
#include "view/plot_lines.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

/* -- buckets */

/* Which is first and last goes by the ids of reports, as neither of the two need be the earlier one. */
void view_bucket_merge(struct view_bucket *into, const struct view_bucket *from) {
    if (view_bucket_is_empty(from)) return;
    if (view_bucket_is_empty(into)) {
        *into = *from;
        return;
    }
    if (from->x < into->x) into->x = from->x;
    if (from->x_last > into->x_last) into->x_last = from->x_last;
    into->nonfinite += from->nonfinite;
    if (from->n == 0) return;
    bool first = into->n == 0;
    if (first || from->min < into->min || (from->min <= into->min && from->rank_min < into->rank_min)) {
        into->min = from->min;
        into->rank_min = from->rank_min;
    }
    if (first || from->max > into->max || (from->max >= into->max && from->rank_max < into->rank_max)) {
        into->max = from->max;
        into->rank_max = from->rank_max;
    }
    if (first || from->id_first < into->id_first) {
        into->first = from->first;
        into->id_first = from->id_first;
    }
    if (first || from->id_last > into->id_last) {
        into->last = from->last;
        into->id_last = from->id_last;
    }
    into->sum = first ? from->sum : into->sum + from->sum;
    into->n += from->n;
}

struct view_bucket *plot_line_add(struct view_line *line) {
    if (ARRAY_GROW(line->buckets, line->n) < 0) return NULL;
    line->buckets[line->n] = (struct view_bucket){0};
    return &line->buckets[line->n++];
}

/* -- of points */

static bool is_before(const void *bucket, const void *x) {
    return ((const struct view_bucket *)bucket)->x < *(const double *)x;
}

/* Where x is among the buckets, or belongs between them: points mostly come by rising x. */
static size_t place_of(const struct view_line *line, double x) {
    const struct view_bucket *last = line->n > 0 ? &line->buckets[line->n - 1] : NULL;
    if (last != NULL && last->x <= x) return last->x < x ? line->n : line->n - 1;
    return array_place(line->buckets, line->n, sizeof *last, is_before, &x);
}

/* From a bucket for each x to `most` buckets over the range, of which some stay empty. */
static int divide(struct plot_lines *plot, struct plot_line *making) {
    struct view_bucket *divided = calloc(plot->most, sizeof *divided);
    if (divided == NULL) return -ENOMEM;
    for (size_t i = 0; i < making->line.n; i++) {
        const struct view_bucket *bucket = &making->line.buckets[i];
        view_bucket_merge(&divided[points_bucket(bucket->x, plot->from, plot->to, plot->most)], bucket);
    }
    free(making->line.buckets);
    making->line.buckets = divided;
    making->line.n = plot->most;
    making->divided = plot->divided = true;
    return 0;
}

/* Until the line is divided its buckets lie by x, and a new one moves those behind it: mostly none. */
static int add_point(struct plot_lines *plot, struct plot_line *making, const struct point *point) {
    struct view_line *line = &making->line;
    size_t place = making->divided ? 0 : place_of(line, point->x), n = line->n;
    bool there = !making->divided && place < n && line->buckets[place].x == point->x;
    if (!making->divided && !there && n == plot->most && divide(plot, making) < 0) return -ENOMEM;
    if (making->divided) {
        place = points_bucket(point->x, plot->from, plot->to, plot->most);
    } else if (!there) {
        if (plot_line_add(line) == NULL) return -ENOMEM;
        memmove(line->buckets + place + 1, line->buckets + place, (n - place) * sizeof *line->buckets);
        line->buckets[place] = (struct view_bucket){0};
    }
    view_bucket_add(&line->buckets[place], point->x, point->value, point->rank, point->id);
    return 0;
}

int plot_lines_begin(struct plot_lines *plot, const struct view_query *query, const struct plot_means *ranks,
                     double from, double to) {
    size_t n = ranks != NULL ? ranks->n : 1, each = query->history == VIEW_ALL ? 2 : 1;
    *plot = (struct plot_lines){.n = n * each, .from = from, .to = to};
    plot->most = query->buckets > 0 ? (size_t)query->buckets : VIEW_BUCKETS;
    plot->items = calloc(plot->n + 1, sizeof *plot->items);
    if (plot->items == NULL) return -ENOMEM;
    for (size_t i = 0; i < plot->n; i++)
        plot->items[i].line =
            (struct view_line){.rank = ranks != NULL ? ranks->items[i / each].rank : -1, .lost = i % each > 0};
    return 0;
}

int plot_lines_add(struct plot_lines *plot, const struct points *points) {
    int result = 0;
    for (size_t i = 0; i < points->n && result == 0; i++) {
        const struct point *point = &points->items[i];
        for (size_t tries = 0; tries < plot->n; tries++) { /* ranks report by turns */
            struct plot_line *line = &plot->items[plot->next];
            if (++plot->next >= plot->n) plot->next = 0;
            if (line->line.lost != point->lost || (line->line.rank >= 0 && line->line.rank != point->rank))
                continue;
            result = add_point(plot, line, point);
            break;
        }
    }
    return result;
}

static bool has_rank(const struct plot_means *ranks, int rank) {
    for (size_t i = 0; i < ranks->n; i++)
        if (ranks->items[i].rank == rank) return true;
    return false;
}

bool plot_lines_keep(struct plot_lines *plot, const struct plot_means *ranks) {
    size_t n = 0, n_found = 0;
    for (size_t i = 0; i < plot->n; i++) {
        struct plot_line *line = &plot->items[i];
        if (has_rank(ranks, line->line.rank)) {
            n_found += !line->line.lost;
            plot->items[n++] = *line;
        } else {
            free(line->line.buckets);
        }
    }
    plot->n = n;
    plot->next = 0;
    return n_found == ranks->n;
}

struct view_line *plot_lines_end(struct plot_lines *plot, size_t *n) {
    struct view_line *lines = calloc(plot->n + 1, sizeof *lines);
    *n = 0;
    for (size_t i = 0; i < plot->n; i++) {
        struct view_line *line = &plot->items[i].line;
        size_t n_full = 0;
        for (size_t k = 0; k < line->n; k++)
            if (!view_bucket_is_empty(&line->buckets[k])) line->buckets[n_full++] = line->buckets[k];
        if (n_full > 0) (void)ARRAY_RESIZE(line->buckets, n_full);
        line->n = n_full;
        if (lines != NULL && (line->n > 0 || (line->rank < 0 && !line->lost)))
            lines[(*n)++] = *line;
        else
            free(line->buckets);
    }
    free(plot->items);
    *plot = (struct plot_lines){0};
    return lines;
}

void plot_lines_free(struct view_line *lines, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(lines[i].buckets);
    free(lines);
}

/* -- of buckets */

static int by_bucket(const void *a, const void *b) {
    const struct view_bucket *x = a, *y = b;
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return (x->id_first > y->id_first) - (x->id_first < y->id_first);
}

/* Buckets that overlap are merged first, however few there are: of two reports with one x, or where a bucket
 * grew over the beginning of the next. Then those of one place of the range, in place. */
void plot_line_fold(struct view_line *line, double from, double to, size_t most) {
    size_t n = 0;
    if (line->n == 0) return;
    bool sorted = true;
    for (size_t i = 1; i < line->n && sorted; i++)
        sorted = by_bucket(&line->buckets[i - 1], &line->buckets[i]) <= 0;
    if (!sorted) qsort(line->buckets, line->n, sizeof *line->buckets, by_bucket);
    for (size_t i = 1; i < line->n; i++) {
        if (line->buckets[i].x <= line->buckets[n].x_last)
            view_bucket_merge(&line->buckets[n], &line->buckets[i]);
        else
            line->buckets[++n] = line->buckets[i];
    }
    line->n = n + 1;
    if (line->n <= most) return;
    size_t at = 0, before = points_bucket(line->buckets[0].x, from, to, most);
    for (size_t i = 1; i < line->n; i++) {
        size_t place = points_bucket(line->buckets[i].x, from, to, most);
        if (place == before)
            view_bucket_merge(&line->buckets[at], &line->buckets[i]);
        else
            line->buckets[++at] = line->buckets[i];
        before = place;
    }
    line->n = at + 1;
}

/* -- which ranks */

static int compare_doubles(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int by_distance(const void *a, const void *b) {
    const struct plot_mean *x = a, *y = b;
    if (x->away != y->away) return x->away > y->away ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_rank(const void *a, const void *b) {
    const struct plot_mean *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The median, not the mean of all: one rank that is far off must not make the others seem so. */
static int keep_farthest(struct plot_mean *means, size_t n, size_t most) {
    CLEANUP_FREE double *sorted = calloc(n + 1, sizeof *sorted);
    size_t n_sorted = 0;
    if (sorted == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (means[i].n > 0) sorted[n_sorted++] = means[i].sum / (double)means[i].n;
    qsort(sorted, n_sorted, sizeof *sorted, compare_doubles);
    double median = n_sorted > 0 ? sorted[(n_sorted - 1) / 2] : 0;
    for (size_t i = 0; i < n; i++)
        means[i].away = means[i].n > 0 ? fabs(means[i].sum / (double)means[i].n - median) : (double)INFINITY;
    qsort(means, n, sizeof *means, by_distance);
    qsort(means, most, sizeof *means, by_rank);
    return 0;
}

int plot_means_add(struct plot_means *means, const struct points *points) {
    size_t n = (size_t)points->n_ranks;
    if (n > means->n) {
        struct plot_mean *items = calloc(n, sizeof *items); /* of ranks that nobody has no memory is touched */
        if (items == NULL) return -ENOMEM;
        if (means->n > 0) memcpy(items, means->items, means->n * sizeof *items);
        free(means->items);
        means->items = items;
        means->n = n;
    }
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        struct plot_mean *mean = &means->items[point->rank];
        mean->there = true;
        if (!isfinite(point->value)) continue;
        mean->n++;
        mean->sum += point->value;
    }
    return 0;
}

int plot_means_choose(struct plot_means *means, size_t most) {
    size_t n = 0;
    for (size_t rank = 0; rank < means->n; rank++) {
        if (!means->items[rank].there) continue;
        means->items[n] = means->items[rank];
        means->items[n++].rank = (int)rank;
    }
    if (n > most && keep_farthest(means->items, n, most) < 0) return -ENOMEM;
    means->n = n < most ? n : most;
    return (int)n;
}
