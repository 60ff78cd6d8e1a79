/* The points of a metric as cells of ranks and columns, and as counts of values. With more ranks than rows,
 * ranks share a row, which shows the greatest of their means: a rank that stands out must not vanish among
 * the others. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "view/encode.h"
#include "view/index.h"
#include "view/points.h"
#include "view/series.h"

static int gather(const char *run_path, const struct view_query *query, struct points *points, ty_error *err) {
    struct facts_kept *kept = index_facts(query->index);
    struct view_facts own;
    const struct view_facts *facts;
    int result = points_check_query(query, err);
    if (result >= 0) result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    result = points_gather(run_path, query, facts, points, err);
    facts_give_back(kept, &own);
    return result;
}

static int by_rank(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->x > y->x) - (x->x < y->x);
}

/* A cell of each rank and column would take room for ten thousand ranks; in order they come one after the
 * other. */
static int fill(struct points *points, struct view_heat *heat) {
    size_t cells = heat->rows * heat->columns;
    CLEANUP_FREE double *means = calloc(cells + 1, sizeof *means);
    heat->cells = calloc(cells + 1, 1);
    heat->min = heat->max = (double)NAN;
    if (means == NULL || heat->cells == NULL) return -ENOMEM;
    for (size_t i = 0; i < cells; i++)
        means[i] = (double)NAN;
    double sum = 0, n = 0;
    if (points->n > 0) qsort(points->items, points->n, sizeof *points->items, by_rank);
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i], *next = point + 1;
        size_t column = points_bucket(point->x, points->from, points->to, heat->columns);
        bool shown = isfinite(point->value) && point->rank >= 0 && (size_t)point->rank < heat->n_ranks;
        if (shown) {
            sum += point->value;
            n++;
        }
        bool last = i + 1 == points->n || next->rank != point->rank ||
                    points_bucket(next->x, points->from, points->to, heat->columns) != column;
        if (!last) continue;
        if (n > 0) {
            /* A row shows the greatest mean of its ranks. */
            double mean = sum / n;
            double *most = &means[(size_t)point->rank / heat->ranks_per_row * heat->columns + column];
            if (!(mean <= *most)) *most = mean;
            if (!(mean >= heat->min)) heat->min = mean;
            if (!(mean <= heat->max)) heat->max = mean;
        }
        sum = n = 0;
    }
    double half = heat->max / 2 - heat->min / 2; /* of the range, which may be beyond a double */
    for (size_t i = 0; i < cells; i++)
        if (!isnan(means[i]))
            heat->cells[i] = (uint8_t)(1 + (half > 0 ? (means[i] / 2 - heat->min / 2) / half * 254 : 0));
    return 0;
}

int view_heat_read(const char *run_path, const struct view_query *query, int rows, struct view_heat *heat,
                   ty_error *err) {
    struct points points;
    *heat = (struct view_heat){0};
    if (rows < 0 || rows > VIEW_ROWS_MAX)
        return ty_fail(err, TY_EUSAGE, "rows: %d is not between 1 and %d", rows, VIEW_ROWS_MAX);
    if (query->buckets > VIEW_COLUMNS_MAX)
        return ty_fail(err, TY_EUSAGE, "columns: %d is not between 1 and %d", query->buckets, VIEW_COLUMNS_MAX);
    int result = gather(run_path, query, &points, err);
    if (result < 0) return result;
    size_t most = rows > 0 ? (size_t)rows : VIEW_ROWS_MAX;
    heat->n_ranks = (size_t)points.n_ranks;
    heat->ranks_per_row = heat->n_ranks > most ? (heat->n_ranks + most - 1) / most : 1;
    heat->rows = (heat->n_ranks + heat->ranks_per_row - 1) / heat->ranks_per_row;
    heat->columns = query->buckets > 0 ? (size_t)query->buckets : VIEW_COLUMNS_MAX;
    heat->exact = points.exact;
    heat->scanned = points.scanned;
    heat->x = points.x;
    heat->from = points.from;
    heat->to = points.to;
    if (fill(&points, heat) < 0) result = ty_fail_memory(err);
    points_done(&points);
    if (result < 0) view_heat_done(heat);
    return result;
}

void view_heat_done(struct view_heat *heat) {
    free(heat->cells);
    *heat = (struct view_heat){0};
}

void view_heat_encode(const struct view_heat *heat, struct buffer *out) {
    buffer_printf(out, "{\"exact\": %s, \"scanned\": ", heat->exact ? "true" : "false");
    encode_number(out, heat->scanned);
    buffer_text(out, ", \"x\": ");
    buffer_json_text(out, heat->x);
    buffer_text(out, ", \"from\": ");
    encode_number(out, heat->from);
    buffer_text(out, ", \"to\": ");
    encode_number(out, heat->to);
    buffer_text(out, ", \"min\": ");
    encode_number(out, heat->min);
    buffer_text(out, ", \"max\": ");
    encode_number(out, heat->max);
    buffer_printf(out,
                  ", \"rows\": %zu, \"columns\": %zu, \"ranks_per_row\": %zu, \"ranks\": %zu, \"cells\": \"",
                  heat->rows, heat->columns, heat->ranks_per_row, heat->n_ranks);
    encode_base64(out, heat->cells, heat->rows * heat->columns);
    buffer_text(out, "\"}");
}

/* -- histogram */

static void count(const struct points *points, const struct idset *ranks, struct view_histogram *histogram) {
    histogram->min = histogram->max = (double)NAN;
    for (size_t i = 0; i < points->n; i++) {
        double value = points->items[i].value;
        if (!isfinite(value)) continue;
        if (!(value >= histogram->min)) histogram->min = value;
        if (!(value <= histogram->max)) histogram->max = value;
    }
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (!isfinite(point->value)) continue;
        size_t bin = points_bucket(point->value, histogram->min, histogram->max, histogram->bins);
        histogram->all[bin]++;
        if (histogram->chosen != NULL && idset_has(ranks, point->rank)) histogram->chosen[bin]++;
    }
}

int view_histogram_read(const char *run_path, const struct view_query *query, int bins,
                        struct view_histogram *histogram, ty_error *err) {
    enum { BINS = 50 };
    struct points points;
    struct view_query all = *query;
    *histogram = (struct view_histogram){0};
    if (bins < 0 || bins > VIEW_BINS_MAX)
        return ty_fail(err, TY_EUSAGE, "bins: %d is not between 1 and %d", bins, VIEW_BINS_MAX);
    all.ranks = NULL;
    int result = gather(run_path, &all, &points, err);
    if (result < 0) return result;
    histogram->bins = bins > 0 ? (size_t)bins : BINS;
    histogram->exact = points.exact;
    histogram->scanned = points.scanned;
    histogram->all = calloc(histogram->bins, sizeof *histogram->all);
    if (query->ranks != NULL) histogram->chosen = calloc(histogram->bins, sizeof *histogram->chosen);
    if (histogram->all == NULL || (query->ranks != NULL && histogram->chosen == NULL))
        result = ty_fail_memory(err);
    else
        count(&points, query->ranks, histogram);
    points_done(&points);
    if (result < 0) view_histogram_done(histogram);
    return result;
}

void view_histogram_done(struct view_histogram *histogram) {
    free(histogram->all);
    free(histogram->chosen);
    *histogram = (struct view_histogram){0};
}

static void encode_counts(const uint64_t *counts, size_t n, struct buffer *out) {
    if (counts == NULL) {
        buffer_text(out, "null");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        buffer_char(out, i == 0 ? '[' : ',');
        encode_count(out, counts[i]);
    }
    buffer_char(out, ']');
}

void view_histogram_encode(const struct view_histogram *histogram, struct buffer *out) {
    double bins = (double)histogram->bins, range = histogram->max - histogram->min;
    double width = isinf(range) ? histogram->max / bins - histogram->min / bins : range / bins;
    buffer_printf(out, "{\"exact\": %s, \"scanned\": ", histogram->exact ? "true" : "false");
    encode_number(out, histogram->scanned);
    buffer_text(out, ", \"edges\": [");
    for (size_t i = 0; i <= histogram->bins && !isnan(width); i++) {
        if (i > 0) buffer_char(out, ',');
        encode_number(out, i == histogram->bins ? histogram->max : histogram->min + width * (double)i);
    }
    buffer_text(out, "], \"all\": ");
    encode_counts(histogram->all, histogram->bins, out);
    buffer_text(out, ", \"chosen\": ");
    encode_counts(histogram->chosen, histogram->bins, out);
    buffer_char(out, '}');
}
