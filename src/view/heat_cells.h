/* The cells of a heat map as values come: each the mean of a rank in a column, and a row of several ranks the
 * greatest of theirs. Values mostly come by rising x, so that of many ranks only the last few columns are
 * gathered for each rank, and those before are rows already: the memory hardly depends on how many ranks
 * there are. */
#ifndef VIEW_HEAT_CELLS_H
#define VIEW_HEAT_CELLS_H

#include <stdbool.h>
#include <stddef.h>

#include "view/series.h"

/* Zero-initialised is none. */
struct heat_cells {
    double from, to;
    size_t n_ranks, ranks_per_row, rows, columns;
    double *means;     /* owned; of the closed columns, row by row; NAN: none */
    double min, max;   /* of the ranks' means in these */
    struct heat_open { /* of each rank, in the columns that are gathered */
        double sum, n;
    } * open;           /* owned; `window` times n_ranks */
    size_t window, end; /* columns in front of end - window are closed; from `end` on there are no values yet */
};

/* rows: of the query, of which the number of columns is taken too. -ENOMEM. */
int heat_cells_begin(struct heat_cells *cells, const struct view_query *query, size_t n_ranks, double from,
                     double to);
/* The sum of n values of a rank. False: its column is closed, or there is no such rank. */
bool heat_cells_add(struct heat_cells *cells, int rank, double x, double sum, double n);
/* What there is so far, as a heat map up to `to`. -ENOMEM. */
int heat_cells_draw(const struct heat_cells *cells, double to, struct view_heat *heat);
void heat_cells_done(struct heat_cells *cells);

/* How much memory they take. */
size_t heat_cells_bytes(const struct view_query *query, size_t n_ranks);

#endif
