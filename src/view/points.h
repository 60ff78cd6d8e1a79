/* The points of one metric, gathered with their x: what series, heat maps and histograms are made of. */
#ifndef VIEW_POINTS_H
#define VIEW_POINTS_H

#include "view/facts.h"
#include "view/series.h"

struct point {
    double x, value; /* a value that is not finite is NAN */
    int64_t id;
    nanoseconds time;
    uint64_t number;
    int attempt, rank;
    bool lost; /* a later attempt took it back */
};

/* What is no metric of the reports, but made of them. */
enum made { MADE_NONE = -1, MADE_INTERVAL, MADE_LAG, MADE_RATE, MADE };
enum made points_made(const char *metric);

struct points {
    struct point *items; /* owned; n by x, then by id; behind them those that lie out of the range */
    size_t n, n_all;
    bool exact;
    double scanned;
    const char *x;   /* what was taken for it */
    double from, to; /* the query's, or the lowest and highest; NAN where there are no points */
    int n_ranks;     /* highest rank among them + 1 */
};

/* The points of the query's ranks, history and range. TY_EUSAGE for an x that is none. */
int points_gather(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                  struct points *points, ty_error *err);
/* The same of n metrics in place of the query's, none of them a made one, of all reports, which are read
 * once. */
int points_gather_each(const char *run_path, const struct view_query *query, const char *const *metrics,
                       size_t n, const struct view_facts *facts, struct points *points, ty_error *err);
/* The same of the reports with ids behind `after` up to `last`, all of which are read. `x` is by which name the
 * whole run has the query's (index_x): a piece of it could have another. */
int points_gather_between(const char *run_path, const struct view_query *query, const char *x,
                          const struct view_facts *facts, int64_t after, int64_t last, struct points *points,
                          ty_error *err);
void points_done(struct points *points);

/* What made metrics need of the reports before those at hand, of as many ranks and numbers as there is room
 * for. Zero-initialised. */
enum { POINTS_RANKS = 1 << 17, POINTS_NUMBERS = 1 << 20 };
struct points_before {
    struct point *last; /* of each rank, whose `rank` is -1 where there is none; owned; n_last */
    size_t n_last;
    bool notes, tells; /* of lags: when a number was first reported is noted, is gone by; else they are NAN */
    struct points_firsts {
        int attempt;
        uint64_t low;       /* number that times[0] is of */
        nanoseconds *times; /* of the first report of each number, 0: none; owned; n */
        size_t n;
    } * firsts; /* owned; one for each attempt, n_firsts */
    size_t n_firsts, n_times;
};
void points_before_done(struct points_before *before);

/* All reports behind `after` up to `last`, piece by piece. */
struct points_pass {
    const char *run_path;
    const struct view_query *query;
    const char *x; /* as of points_gather_between */
    const struct view_facts *facts;
    int64_t after, last;
    struct scan_rows *rows; /* that have these reports, as they were read before; NULL: they are read */
    struct points_before *before;
};
/* The points of the next piece, some 20,000 reports, in no order; `after` becomes the last of them. -E2BIG: of
 * a made metric, there are more than POINTS_RANKS or POINTS_NUMBERS. */
int points_gather_next(struct points_pass *pass, struct points *points, ty_error *err);

/* The bucket of x of `n` from `from` to `to`. */
size_t points_bucket(double x, double from, double to, size_t n);

/* TY_EUSAGE names the parameter that is wrong, and what is allowed. */
int points_check_query(const struct view_query *query, ty_error *err);

#endif
