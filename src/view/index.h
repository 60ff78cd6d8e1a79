/* The index of a run's reports: its points in buckets over x, made in the background and grown with the run, so
 * that a drawing of all of them is a merge of some. Buckets begin narrow and double their width when there are
 * too many. What a later attempt took back has buckets of its own; when another attempt does so, all is made
 * anew. */
#ifndef VIEW_INDEX_H
#define VIEW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "view/facts.h"
#include "view/series.h"

/* An empty one, which takes over what the cache has of the run when it grows. `cached` false: in memory
 * alone. */
int view_index_open(const char *run_path, bool cached, struct view_index **out, ty_error *err);
/* Of a run that is gone all is forgotten, in the cache too (-ENOENT). Else reads the next reports, some 20,000
 * at most, or when it has all makes a piece of a drawing that is wanted (drawings.h): 1 when there is more to
 * do, 0 when there is not, or there are so few reports that they are read whole each time. One thread at a time
 * makes steps; queries may go on beside. */
int view_index_grow(struct view_index *index, ty_error *err);
/* Whether more reports were made between the last two steps, or behind one nothing says that the run is over.
 * For the thread that grows it. */
bool view_index_follows(const struct view_index *index);
/* Whether these were so many that the last step left it there: what it reads would be ever less of all. For
 * the thread that grows it. */
bool view_index_outrun(const struct view_index *index);
/* The share of the reports that it has, 0 to 1. */
double view_index_scanned(const struct view_index *index);
/* The same of what the last step was at: the index, or behind it a drawing, of which 1 tells that it is ready.
 * For the thread that grows it. */
double view_index_progress(const struct view_index *index);
/* Writes it to the cache, $XDG_CACHE_HOME/trainyard/index, unless that has all but an eighth of it; the error
 * says why it is in memory alone. */
int view_index_keep(struct view_index *index, ty_error *err);
void view_index_close(struct view_index *index); /* NULL is fine */
/* Removes what the cache has of a run that is to be removed. */
void view_index_forget(const char *run_path);

/* -- for the series */

/* The sample that answers are made of while it grows. */
struct scan_sample *index_sample(const struct view_index *index);
/* The facts that answers about the run go by; NULL without an index. */
struct facts_kept *index_facts(const struct view_index *index);

/* Lines that were made in the background; NULL without an index. */
struct drawings *index_drawings(const struct view_index *index);

/* Reads what came since it was grown, where it has buckets for the query, that is not much and nobody else is
 * at it: so of a run that goes on each report is read once, whoever asks. Right: the index may be asked; due:
 * it may, and is to be grown behind the answer; stale: not all that it has counts as the facts say, and it is
 * to be grown before it is asked. */
enum index_standing { INDEX_IS_RIGHT, INDEX_IS_DUE, INDEX_IS_STALE };
enum index_standing index_follow(const struct view_index *index, const struct view_query *query,
                                 const struct view_facts *facts);

/* By which name most of all reports have the x of a query: "global_step", or "number" where it has none;
 * another metric by its own. NULL where the index has not enough of them. Static, or the query's. */
const char *index_x(const struct view_index *index, const char *x);

/* Reports beside those of a bucket that may have its x too: its ids are those of its numbers alone. */
enum { INDEX_MARGIN = 2048 };

/* Where the reports lie that have the query's metric, and an x in its range: from `first` to `last`, and among
 * those behind `have`, which are in no bucket yet. False: that is not known. */
struct index_span {
    int64_t first, last, have; /* ids; first above last: none are known */
};
bool index_find(const struct view_index *index, const struct view_query *query, struct index_span *span);

/* The highest x of all points of the query's metric, or of any metric, whatever the query's range and ranks
 * are. False: that is not known, or of wall time not to the last bit. */
bool index_end(const struct view_index *index, const struct view_query *query, bool any, double *to);

/* A piece of the index: copies of the buckets of a metric, by x, and what is to be read beside them. */
struct index_piece {
    struct view_bucket *buckets; /* n, owned */
    size_t n;
    const char *x;
    int64_t last; /* id of the last report that they hold */
};

/* The buckets over the query's x and range of all points that count, or of those that were `lost`; those at the
 * ends of the range, and some beside them, may reach out of it. False: it has none, as the query asks for
 * ranks, a made metric or another x. -ENOMEM. */
int index_take(const struct view_index *index, const struct view_query *query, bool lost,
               struct index_piece *piece);

#endif
