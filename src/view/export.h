/* What a run reported, for other programs: as rows, as TensorBoard's event files, as a trace. Memory stays the
 * same however many reports there are. */
#ifndef VIEW_EXPORT_H
#define VIEW_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/idset.h"
#include "view/series.h"

/* Takes a piece of the text, a few 10 KiB each; what it returns, when negative, ends the export. */
typedef int view_sink(void *context, const char *text, size_t size, ty_error *err);

/* Rows as CSV: id,time,attempt,rank,number, `lost` where all are selected, then the metrics in the order of
 * their first appearance, and no others: one that comes later has no column. */
struct view_csv; /* opaque */
int view_csv_open(const char *run_path, const struct view_selection *selection, struct view_csv **out,
                  ty_error *err);
void view_csv_close(struct view_csv *csv); /* NULL is fine */
int view_csv_write_head(struct view_csv *csv, view_sink *sink, void *context, ty_error *err);
/* The rows that are there now; the next call goes on behind the last one. */
int view_csv_write_rows(struct view_csv *csv, view_sink *sink, void *context, ty_error *err);

/* Rows as JSON, {"id", "time", "attempt", "rank", "number", "metrics": as reported}, a line each, "lost" where
 * all are selected. The selection's `after` becomes the id of the last report there is. */
int view_jsonl_write(const char *run_path, struct view_selection *selection, view_sink *sink, void *context,
                     ty_error *err);

/* The trace that Perfetto and chrome://tracing read. */
struct view_trace {
    const struct idset *ranks; /* NULL: all */
    uint64_t from, to;         /* report numbers; 0: from the first, to the last */
};
int view_trace_write(const char *name, const char *run_path, const struct view_trace *trace, view_sink *sink,
                     void *context, ty_error *err);

#endif
