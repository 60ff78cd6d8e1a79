/* The index of a run's reports: buckets of points, made in the background, kept in the user's cache directory and
 * grown with the run. Thrown away where the journal is another one. */
#ifndef VIEW_INDEX_H
#define VIEW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "view/series.h"

/* What the cache has of the run, or an empty one. `cached` false: in memory alone. */
int view_index_open(const char *run_path, bool cached, struct view_index **index, ty_error *err);
/* Reads the next reports, VIEW_INDEX_STEP at most: 1 when there is more to read, 0 when it has all. One thread at a
 * time grows it; queries beside that see what was there when they began. */
int view_index_grow(struct view_index *index, ty_error *err);
/* The share of the reports that it has, 0 to 1. */
double view_index_scanned(const struct view_index *index);
/* Writes it to the cache; `*told` (may be NULL) is why that did not go. */
int view_index_keep(struct view_index *index, ty_error *err);
void view_index_close(struct view_index *index); /* NULL is fine */

#endif
