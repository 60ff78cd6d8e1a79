/* The points of a metric as cells of ranks and columns, each the mean of a rank's. With more ranks than rows,
 * ranks share a row, which shows the greatest of their means: a rank that stands out must not vanish among the
 * others. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "view/drawings.h"
#include "view/encode.h"
#include "view/heat_cells.h"
#include "view/index.h"
#include "view/points.h"
#include "view/series.h"

/* The points lie by x, so that none comes too late. */
static int fill_by_points(const struct points *points, const struct view_query *query, struct view_heat *heat) {
    CLEANUP(heat_cells_done) struct heat_cells cells = {0};
    heat->exact = points->exact;
    heat->scanned = points->scanned;
    heat->x = points->x;
    int result = heat_cells_begin(&cells, query, (size_t)points->n_ranks, points->from, points->to);
    for (size_t i = 0; i < points->n && result == 0; i++) {
        const struct point *point = &points->items[i];
        if (isfinite(point->value)) (void)heat_cells_add(&cells, point->rank, point->x, point->value, 1);
    }
    return result < 0 ? result : heat_cells_draw(&cells, points->to, heat);
}

/* Lines that are kept of each rank, whose buckets stand for their values: a bucket that reaches over two
 * columns counts in the one where it begins. */
static int fill_by_lines(const struct view_series *series, const struct view_query *query,
                         struct view_heat *heat) {
    CLEANUP(heat_cells_done) struct heat_cells cells = {0};
    size_t n_ranks = 0;
    double from = query->from, to = query->to;
    for (size_t i = 0; i < series->n_lines; i++) {
        const struct view_line *line = &series->lines[i];
        if ((size_t)line->rank >= n_ranks) n_ranks = (size_t)line->rank + 1;
        for (size_t k = 0; k < line->n; k++) {
            if (isnan(query->from) && !(line->buckets[k].x >= from)) from = line->buckets[k].x;
            if (isnan(query->to) && !(line->buckets[k].x_last <= to)) to = line->buckets[k].x_last;
        }
    }
    int result = heat_cells_begin(&cells, query, n_ranks, from, to);
    for (size_t i = 0; i < series->n_lines && result == 0; i++)
        for (size_t k = 0; k < series->lines[i].n; k++) {
            const struct view_bucket *bucket = &series->lines[i].buckets[k];
            if (bucket->n > 0)
                (void)heat_cells_add(&cells, series->lines[i].rank, bucket->x, bucket->sum, (double)bucket->n);
        }
    return result < 0 ? result : heat_cells_draw(&cells, to, heat);
}

/* Of few reports all points, of many what the background has made of them, and a sample until then. */
static int draw(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                struct view_heat *heat, ty_error *err) {
    struct drawings *drawings = index_drawings(query->index);
    const struct drawing_request request = drawings_request(run_path, query, facts);
    CLEANUP(view_series_done) struct view_series series = {0};
    struct drawing_answer drawing = {0};
    struct points points;
    bool many = facts->reports > VIEW_WHOLE && request.x != NULL;
    int result = many ? drawings_take(drawings, &request, &series, &drawing, err) : 0;
    *heat = drawing.heat;
    if (result > 0) {
        heat->exact = series.exact;
        heat->scanned = series.scanned;
        heat->x = series.x;
        heat->behind = series.behind;
        return query->what == VIEW_CELLS ? fill_by_lines(&series, query, heat) : 0;
    }
    if (result == 0) result = points_gather(run_path, query, facts, &points, err);
    if (result < 0) return result;
    result = fill_by_points(&points, query, heat);
    points_done(&points);
    heat->behind = !heat->exact && drawings != NULL && drawings_want(drawings, &request);
    return result;
}

/* Ranks of few workers are kept as lines, which grow with the run; of many only cells fit (drawings.h). */
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
    cells.rows = rows;
    cells.buckets = query->buckets > 0 ? query->buckets : VIEW_COLUMNS_MAX;
    cells.what = drawings_fit_cells(&cells, facts->replay.n_workers) ? VIEW_CELLS : VIEW_ROWS;
    result = draw(run_path, &cells, facts, heat, err);
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
    buffer_char(out, '{');
    encode_scanned(out, heat->exact, heat->scanned);
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
