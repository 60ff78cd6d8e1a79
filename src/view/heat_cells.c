/* Cells of a heat map as sums: a value goes to its rank and column, a column that is closed becomes the
 * greatest mean of each row's ranks. Where the values come from (points, lines that were drawn) is not known
 * here, nor what the query asks for beside rows and columns. */
#include "view/heat_cells.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "view/points.h"

/* What is gathered for each rank; two columns at least, as ranks are not at the same x. */
enum { OPEN_BYTES = 2 << 20, WINDOW_LEAST = 2 };

static size_t columns_of(const struct view_query *query) {
    return query->buckets > 0 ? (size_t)query->buckets : VIEW_COLUMNS_MAX;
}

/* Where ranks come one after the other, each with all of its columns, there is room for all of them. */
static size_t window_of(const struct view_query *query, size_t n_ranks) {
    if (query->what == VIEW_CELLS) return columns_of(query);
    size_t window = n_ranks > 0 ? OPEN_BYTES / sizeof(struct heat_open) / n_ranks : 1;
    if (window < WINDOW_LEAST) window = WINDOW_LEAST;
    return window < columns_of(query) ? window : columns_of(query);
}

/* As many ranks in each row as fill no more rows than are asked for: a row may stay less full, at the end. */
static size_t per_row(const struct view_query *query, size_t n_ranks) {
    size_t most = query->rows > 0 ? (size_t)query->rows : VIEW_ROWS_MAX;
    return n_ranks > most ? (n_ranks + most - 1) / most : 1;
}

size_t heat_cells_bytes(const struct view_query *query, size_t n_ranks) {
    return n_ranks / per_row(query, n_ranks) * columns_of(query) * sizeof(double) +
           n_ranks * window_of(query, n_ranks) * sizeof(struct heat_open);
}

int heat_cells_begin(struct heat_cells *cells, const struct view_query *query, size_t n_ranks, double from,
                     double to) {
    *cells = (struct heat_cells){.from = from,
                                 .to = to,
                                 .n_ranks = n_ranks,
                                 .ranks_per_row = per_row(query, n_ranks),
                                 .columns = columns_of(query),
                                 .min = (double)NAN,
                                 .max = (double)NAN,
                                 .window = window_of(query, n_ranks)};
    cells->rows = (n_ranks + cells->ranks_per_row - 1) / cells->ranks_per_row;
    cells->means = calloc(cells->rows * cells->columns + 1, sizeof *cells->means);
    cells->open = calloc(n_ranks * cells->window + 1, sizeof *cells->open);
    if (cells->means == NULL || cells->open == NULL) {
        heat_cells_done(cells);
        return -ENOMEM;
    }
    for (size_t i = 0; i < cells->rows * cells->columns; i++)
        cells->means[i] = (double)NAN;
    return 0;
}

/* Columns that are gathered lie in a ring of `window` of them, each with all ranks. */
static struct heat_open *column_at(const struct heat_cells *cells, size_t column) {
    return cells->open + column % cells->window * cells->n_ranks;
}

/* The column's means become those of rows. Comparisons with NAN are false, so that "not greater" also takes the
 * first mean of a row. */
static void fold(struct heat_cells *cells, size_t column) {
    const struct heat_open *open = column_at(cells, column);
    for (size_t rank = 0; rank < cells->n_ranks; rank++) {
        if (!(open[rank].n > 0)) continue;
        double mean = open[rank].sum / open[rank].n;
        double *most = &cells->means[rank / cells->ranks_per_row * cells->columns + column];
        if (!(mean <= *most)) *most = mean;
        if (!(mean >= cells->min)) cells->min = mean;
        if (!(mean <= cells->max)) cells->max = mean;
    }
}

/* A value in a column from `end` on closes as many of the oldest columns as it is ahead; their places in the
 * ring are cleared for the new ones. */
bool heat_cells_add(struct heat_cells *cells, int rank, double x, double sum, double n) {
    size_t column = points_bucket(x, cells->from, cells->to, cells->columns);
    if (rank < 0 || (size_t)rank >= cells->n_ranks || column + cells->window < cells->end) return false;
    for (; cells->end <= column; cells->end++) {
        if (cells->end < cells->window) continue;
        fold(cells, cells->end - cells->window);
        memset(column_at(cells, cells->end), 0, cells->n_ranks * sizeof *cells->open);
    }
    struct heat_open *open = &column_at(cells, column)[rank];
    open->sum += sum;
    open->n += n;
    return true;
}

/* Columns that are still gathered are folded into a copy, so that values may go on coming. Of a map that
 * reaches beyond the run's end, as that of a run that goes on, the columns that nothing is in yet are left out.
 *
 * A mean becomes 1 + 254 (mean - min) / (max - min), halves of all three: their difference may be beyond a
 * double where the half of it is not. */
int heat_cells_draw(const struct heat_cells *cells, double to, struct view_heat *heat) {
    struct heat_cells all = *cells;
    size_t columns = to < cells->to && cells->end > 0 ? cells->end : cells->columns, n = cells->rows * columns;
    all.means = calloc(cells->rows * cells->columns + 1, sizeof *all.means);
    heat->cells = calloc(n + 1, 1);
    if (all.means == NULL || heat->cells == NULL) {
        free(all.means);
        return -ENOMEM;
    }
    memcpy(all.means, cells->means, cells->rows * cells->columns * sizeof *all.means);
    for (size_t column = cells->end > cells->window ? cells->end - cells->window : 0; column < cells->end;
         column++)
        fold(&all, column);
    heat->from = cells->from;
    heat->to = columns < cells->columns
                   ? cells->from + (cells->to - cells->from) * (double)columns / (double)cells->columns
                   : cells->to;
    heat->min = all.min;
    heat->max = all.max;
    heat->rows = cells->rows;
    heat->columns = columns;
    heat->ranks_per_row = cells->ranks_per_row;
    heat->n_ranks = cells->n_ranks;
    double half = all.max / 2 - all.min / 2; /* of the range, which may be beyond a double */
    for (size_t i = 0; i < n; i++) {
        double mean = all.means[i / columns * cells->columns + i % columns];
        if (!isnan(mean))
            heat->cells[i] = (uint8_t)(1 + (half > 0 ? (mean / 2 - all.min / 2) / half * 254 : 0));
    }
    free(all.means);
    return 0;
}

void heat_cells_done(struct heat_cells *cells) {
    free(cells->means);
    free(cells->open);
    *cells = (struct heat_cells){0};
}
