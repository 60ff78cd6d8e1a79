/* The points of a metric as cells of ranks and columns, each the mean of a rank's, and as counts of values.
 * With more ranks than rows, ranks share a row, which shows the greatest of their means: a rank that stands out
 * must not vanish among the others. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "view/drawings.h"
#include "view/encode.h"
#include "view/index.h"
#include "view/points.h"
#include "view/series.h"

static int by_rank(const void *a, const void *b) {
    const struct point *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->x > y->x) - (x->x < y->x);
}

/* Cells of each rank would take room for ten thousand of them: in order they come one after the other. */
struct heat_filling {
    struct view_heat *heat;
    double *means; /* of the rows; owned */
    double *sums;  /* of each column of the rank at hand, and behind them how many they are of; owned */
    int rank;
};

static int begin(struct heat_filling *filling, struct view_heat *heat, int rows) {
    size_t most = rows > 0 ? (size_t)rows : VIEW_ROWS_MAX;
    heat->ranks_per_row = heat->n_ranks > most ? (heat->n_ranks + most - 1) / most : 1;
    heat->rows = (heat->n_ranks + heat->ranks_per_row - 1) / heat->ranks_per_row;
    heat->min = heat->max = (double)NAN;
    heat->cells = calloc(heat->rows * heat->columns + 1, 1);
    *filling = (struct heat_filling){.heat = heat};
    filling->means = calloc(heat->rows * heat->columns + 1, sizeof *filling->means);
    filling->sums = calloc(2 * heat->columns, sizeof *filling->sums);
    for (size_t i = 0; i < heat->rows * heat->columns && filling->means != NULL; i++)
        filling->means[i] = (double)NAN;
    return heat->cells == NULL || filling->means == NULL || filling->sums == NULL ? -ENOMEM : 0;
}

/* A row shows the greatest mean of its ranks. */
static void end_rank(struct heat_filling *filling) {
    struct view_heat *heat = filling->heat;
    double *counts = filling->sums + heat->columns;
    for (size_t column = 0; column < heat->columns; column++) {
        if (!(counts[column] > 0)) continue;
        double mean = filling->sums[column] / counts[column];
        double *most = &filling->means[(size_t)filling->rank / heat->ranks_per_row * heat->columns + column];
        if (!(mean <= *most)) *most = mean;
        if (!(mean >= heat->min)) heat->min = mean;
        if (!(mean <= heat->max)) heat->max = mean;
    }
    memset(filling->sums, 0, 2 * heat->columns * sizeof *filling->sums);
}

/* By rising rank. */
static void add(struct heat_filling *filling, int rank, double x, double sum, double n) {
    struct view_heat *heat = filling->heat;
    size_t column = points_bucket(x, heat->from, heat->to, heat->columns);
    if (rank < 0 || (size_t)rank >= heat->n_ranks) return;
    if (rank != filling->rank) end_rank(filling);
    filling->rank = rank;
    filling->sums[column] += sum;
    filling->sums[heat->columns + column] += n;
}

static void end(struct heat_filling *filling) {
    struct view_heat *heat = filling->heat;
    end_rank(filling);
    double half = heat->max / 2 - heat->min / 2; /* of the range, which may be beyond a double */
    for (size_t i = 0; i < heat->rows * heat->columns; i++)
        if (!isnan(filling->means[i]))
            heat->cells[i] =
                (uint8_t)(1 + (half > 0 ? (filling->means[i] / 2 - heat->min / 2) / half * 254 : 0));
}

static int fill_by_points(struct points *points, int rows, struct view_heat *heat) {
    struct heat_filling filling;
    heat->n_ranks = (size_t)points->n_ranks;
    heat->exact = points->exact;
    heat->scanned = points->scanned;
    heat->x = points->x;
    heat->from = points->from;
    heat->to = points->to;
    int result = begin(&filling, heat, rows);
    if (points->n > 0) qsort(points->items, points->n, sizeof *points->items, by_rank);
    for (size_t i = 0; i < points->n && result == 0; i++) {
        const struct point *point = &points->items[i];
        if (isfinite(point->value)) add(&filling, point->rank, point->x, point->value, 1);
    }
    if (result == 0) end(&filling);
    free(filling.means);
    free(filling.sums);
    return result;
}

/* Those of a rank stand behind each other: what counts, and what was lost. */
static int fill_by_lines(const struct view_series *series, const struct view_query *query, int rows,
                         struct view_heat *heat) {
    struct heat_filling filling;
    heat->from = query->from;
    heat->to = query->to;
    for (size_t i = 0; i < series->n_lines; i++) {
        const struct view_line *line = &series->lines[i];
        if ((size_t)line->rank >= heat->n_ranks) heat->n_ranks = (size_t)line->rank + 1;
        for (size_t k = 0; k < line->n; k++) {
            if (isnan(query->from) && !(line->buckets[k].x >= heat->from)) heat->from = line->buckets[k].x;
            if (isnan(query->to) && !(line->buckets[k].x_last <= heat->to)) heat->to = line->buckets[k].x_last;
        }
    }
    heat->exact = series->exact;
    heat->scanned = series->scanned;
    heat->x = series->x;
    int result = begin(&filling, heat, rows);
    for (size_t i = 0; i < series->n_lines && result == 0; i++)
        for (size_t k = 0; k < series->lines[i].n; k++) {
            const struct view_bucket *bucket = &series->lines[i].buckets[k];
            if (bucket->n > 0) add(&filling, series->lines[i].rank, bucket->x, bucket->sum, (double)bucket->n);
        }
    if (result == 0) end(&filling);
    free(filling.means);
    free(filling.sums);
    return result;
}

/* Of few reports all points, of many what the background has made of them, and a sample until then. */
static int draw(const char *run_path, const struct view_query *query, const struct view_facts *facts, int rows,
                struct view_heat *heat, ty_error *err) {
    struct drawings *drawings = index_drawings(query->index);
    const struct drawing_request request = {run_path, query, facts,
                                            drawings != NULL ? index_x(query->index, query->x) : NULL};
    CLEANUP(view_series_done) struct view_series series = {0};
    struct drawing_told told;
    struct points points;
    bool many = facts->reports > VIEW_WHOLE && request.x != NULL;
    int result = many ? drawings_take(drawings, &request, &series, &told, err) : 0;
    if (result != 0) {
        heat->behind = series.behind;
        return result < 0 ? result : fill_by_lines(&series, query, rows, heat);
    }
    result = points_gather(run_path, query, facts, &points, err);
    if (result < 0) return result;
    result = fill_by_points(&points, rows, heat);
    points_done(&points);
    heat->behind = !heat->exact && drawings != NULL && drawings_want(drawings, &request);
    return result;
}

int view_heat_read(const char *run_path, const struct view_query *query, int rows, struct view_heat *heat,
                   ty_error *err) {
    struct facts_kept *kept = index_facts(query->index);
    struct view_query cells = *query;
    struct view_facts own;
    const struct view_facts *facts;
    *heat = (struct view_heat){0};
    if (rows < 0 || rows > VIEW_ROWS_MAX)
        return ty_fail(err, TY_EUSAGE, "rows: %d is not between 1 and %d", rows, VIEW_ROWS_MAX);
    if (query->buckets > VIEW_COLUMNS_MAX)
        return ty_fail(err, TY_EUSAGE, "columns: %d is not between 1 and %d", query->buckets, VIEW_COLUMNS_MAX);
    int result = points_check_query(query, err);
    if (result >= 0) result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    heat->columns = query->buckets > 0 ? (size_t)query->buckets : VIEW_COLUMNS_MAX;
    cells.what = VIEW_CELLS;
    cells.buckets = (int)heat->columns;
    result = draw(run_path, &cells, facts, rows, heat, err);
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    facts_give_back(kept, &own);
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

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Above which 1 of 100 values lies; NAN where those lie no farther off than the others do. -ENOMEM. */
static int find_near(const struct points *points, struct view_histogram *histogram) {
    CLEANUP_FREE double *values = calloc(points->n + 1, sizeof *values);
    size_t n = 0;
    if (values == NULL) return -ENOMEM;
    for (size_t i = 0; i < points->n; i++)
        if (isfinite(points->items[i].value)) values[n++] = points->items[i].value;
    if (n > 0) qsort(values, n, sizeof *values, by_value);
    double near = n > 0 ? values[n - 1 - n / 100] : (double)NAN;
    bool far = near > histogram->min && (histogram->max - near) > (near - histogram->min);
    histogram->near = far && histogram->bins > 1 ? near : (double)NAN;
    return 0;
}

static size_t bin_of(const struct view_histogram *histogram, double value) {
    if (isnan(histogram->near)) return points_bucket(value, histogram->min, histogram->max, histogram->bins);
    if (value > histogram->near) return histogram->bins - 1;
    return points_bucket(value, histogram->min, histogram->near, histogram->bins - 1);
}

static int count(const struct points *points, const struct view_query *query,
                 struct view_histogram *histogram) {
    histogram->min = histogram->max = histogram->near = (double)NAN;
    for (size_t i = 0; i < points->n; i++) {
        double value = points->items[i].value;
        if (!isfinite(value)) continue;
        if (!(value >= histogram->min)) histogram->min = value;
        if (!(value <= histogram->max)) histogram->max = value;
    }
    int result = query->near ? find_near(points, histogram) : 0;
    for (size_t i = 0; i < points->n && result == 0; i++) {
        const struct point *point = &points->items[i];
        if (!isfinite(point->value)) continue;
        size_t bin = bin_of(histogram, point->value);
        histogram->all[bin]++;
        if (histogram->chosen != NULL && idset_has(query->ranks, point->rank)) histogram->chosen[bin]++;
    }
    return result;
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
    bool room = histogram->all != NULL && (query->ranks == NULL || histogram->chosen != NULL);
    if (!room || count(&points, query, histogram) < 0) result = ty_fail_memory(err);
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
    bool cut = !isnan(histogram->near);
    double bins = (double)histogram->bins - cut, high = cut ? histogram->near : histogram->max;
    double range = high - histogram->min;
    double width = isinf(range) ? high / bins - histogram->min / bins : range / bins;
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
