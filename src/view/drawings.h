/* What an index has no buckets for: lines of single ranks, of ranges of them, over another metric, of made
 * metrics; heat maps and counts of values. They are made of all reports, in passes over these: what x there is
 * and which ranks are drawn, then the buckets. That takes seconds of a long run, so it is done in the
 * background, piece by piece, and what was made is kept and grows with the run. */
#ifndef VIEW_DRAWINGS_H
#define VIEW_DRAWINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "view/facts.h"
#include "view/points.h"
#include "view/scan.h"
#include "view/series.h"
#include "view/value_counts.h"

struct drawing; /* opaque */

/* Of one run; in its index. */
struct drawings {
    pthread_mutex_t lock;  /* over the list, and all in it that no thread is at */
    struct drawing *first; /* owned; what was asked for last stands in front */
    struct scan_rows rows; /* of the step at hand, kept for the next */
};

void drawings_init(struct drawings *drawings);
void drawings_clear(struct drawings *drawings); /* by the thread that makes the steps */
void drawings_done(struct drawings *drawings);

/* What is to be drawn, of which run. */
struct drawing_request {
    const char *run_path;
    const struct view_query *query;
    const struct view_facts *facts;
    const char *x; /* by which name the run has the query's x (index_x), or the query's; NULL: not known yet, or
                    * there is no index */
};

struct drawing_request drawings_request(const char *run_path, const struct view_query *query,
                                        const struct view_facts *facts);

/* What a drawing tells beside its lines. */
struct drawing_told {
    struct point nonfinite; /* the first one in the range that counts */
    uint64_t n_nonfinite;
};

/* What it is where it has no lines; owned by whoever took it. */
struct drawing_answer {
    struct drawing_told told;
    struct view_heat heat;      /* of VIEW_ROWS: its cells and what they are of */
    struct value_counts counts; /* of VIEW_COUNTS */
};

/* 1: the lines of all reports are in the series, which is exact then; 0: they were not made yet. What came
 * since is read, where that are few reports. */
int drawings_take(struct drawings *drawings, const struct drawing_request *request, struct view_series *series,
                  struct drawing_answer *answer, ty_error *err);
/* Whether the cells of so many ranks are kept as lines (VIEW_CELLS); else they are made as rows. */
bool drawings_fit_cells(const struct view_query *query, size_t n_workers);
/* Has them made. False where there is no room for more, or they cannot be made. */
bool drawings_want(struct drawings *drawings, const struct drawing_request *request);
/* Makes the next piece of all drawings that are asked for: 1 when there is more to do. One thread at a time.
 * `index` tells the name of x, and where the reports of a range lie. *share: how far the last of them is, 0 to
 * 1; 1 when one is ready. */
int drawings_step(struct drawings *drawings, const char *run_path, const struct view_index *index,
                  const struct view_facts *facts, double *share, ty_error *err);

#endif
