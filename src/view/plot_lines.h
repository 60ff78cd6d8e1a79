/* The lines of a plot as they are made, of points, or of buckets that an index has of them. */
#ifndef VIEW_PLOT_LINES_H
#define VIEW_PLOT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "view/points.h"
#include "view/series.h"

struct plot_mean {
    int rank;
    bool there; /* has points */
    uint64_t n; /* finite ones, and their sum */
    double sum, away;
};

/* The ranks that have points, and the mean of each. Zero-initialised. */
struct plot_means {
    struct plot_mean *items; /* owned; n, one for each rank up to the highest */
    size_t n;
};

int plot_means_add(struct plot_means *means, const struct points *points); /* -ENOMEM */
/* Leaves those that are drawn, in the order of ranks: all that have points, but `most` where there are more,
 * whose means lie farthest from the median of all; a rank without a finite point stands out most. How many had
 * points, or -ENOMEM. */
int plot_means_choose(struct plot_means *means, size_t most);

/* A line over x, as points are added in any order: a bucket for each x, as long as there are no more than
 * `most` of these, then `most` buckets that divide the range. */
struct plot_line {
    struct view_line line; /* owned; by x, with empty buckets between the others where the range is divided */
    bool divided;
};

/* The lines of a query: of each of the ranks, or of all together. */
struct plot_lines {
    struct plot_line *items; /* owned; n; of one's lost points behind those that count */
    size_t n, most, next;    /* next: whose point is likely to come */
    double from, to;
    bool divided; /* some line is */
};

/* `ranks`: those that were chosen, NULL: all together. -ENOMEM. */
int plot_lines_begin(struct plot_lines *plot, const struct view_query *query, const struct plot_means *ranks,
                     double from, double to);
int plot_lines_add(struct plot_lines *plot, const struct points *points); /* -ENOMEM */
/* Leaves the lines of these ranks alone. False: one of them has no line. */
bool plot_lines_keep(struct plot_lines *plot, const struct plot_means *ranks);
/* The lines without empty buckets, which the caller frees, with all buckets; without those that have none, but
 * that of all ranks together. NULL when memory is short; nothing is left of the plot's in either case. */
struct view_line *plot_lines_end(struct plot_lines *plot, size_t *n);
void plot_lines_free(struct view_line *lines, size_t n);

/* An empty bucket behind the others; NULL when memory is short. */
struct view_bucket *plot_line_add(struct view_line *line);
/* Puts the buckets into order; those that overlap, and where there are more than `most` those of one place of
 * the range, become one. */
void plot_line_fold(struct view_line *line, double from, double to, size_t most);

#endif
