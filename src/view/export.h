/* What a run reported, for other programs: as rows, as a trace, as TensorBoard's event files, as Prometheus
 * reads it. But for the last, memory stays the same however many reports there are. */
#ifndef VIEW_EXPORT_H
#define VIEW_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/idset.h"
#include "view/series.h"

/* Takes a piece of the text, a few 10 KiB each; what it returns, when negative, ends the export. */
typedef int view_sink(void *context, const char *text, size_t size, ty_error *err);

/* Rows as CSV: id,time,attempt,rank,number, `lost` where all are selected, then the metrics in the order of
 * their first appearance, and no others: one that comes later has no column. One that is called like a column
 * in front ends in _2. */
struct view_csv; /* opaque */
int view_csv_open(const char *run_path, const struct view_selection *selection, struct view_csv **out,
                  ty_error *err);
void view_csv_close(struct view_csv *csv); /* NULL is fine */
int view_csv_write_head(struct view_csv *csv, view_sink *sink, void *context, ty_error *err);
/* The rows that are there now; the next call goes on behind the last one. */
int view_csv_write_rows(struct view_csv *csv, view_sink *sink, void *context, ty_error *err);

/* Rows as JSON, {"id", "time", "attempt", "rank", "number", "metrics": as reported}, a line each, "lost" where
 * all are selected. The selection's `after` becomes the id of the last report there is, and its `unreadable`
 * that of the first whose metrics are no JSON: {} stands in their place. */
int view_jsonl_write(const char *run_path, struct view_selection *selection, view_sink *sink, void *context,
                     ty_error *err);

/* The trace that Perfetto and chrome://tracing read. */
struct view_trace {
    const struct idset *ranks; /* NULL: all */
    uint64_t from, to;         /* report numbers; 0: from the first, to the last */
    bool with_profile;         /* and what torch's profiler wrote; TY_EUSAGE where that is nothing */
};
int view_trace_write(const char *name, const char *run_path, const struct view_trace *trace, view_sink *sink,
                     void *context, ty_error *err);

/* Reports as TensorBoard's event files: a directory for each rank, `rank-N`, and `mean`, with float64 scalars
 * over the step. Each record is its length and its bytes, each with a masked CRC-32C. */

struct tensorboard; /* opaque */

/* Makes `directory`; TY_EUSAGE where there is something in it already. */
int tensorboard_open(const char *run_path, const char *directory, const struct view_selection *selection,
                     struct tensorboard **out, ty_error *err);
/* Writes what was reported since the last call. Means of numbers that not all ranks have made yet wait for
 * them, with `last` no longer. */
int tensorboard_write(struct tensorboard *board, bool last, ty_error *err);
void tensorboard_close(struct tensorboard *board); /* NULL is fine */

/* How many values of each metric were not finite, counted on from one exposition to the next; of the metrics
 * that appeared first. Zero-initialised: none were counted. */
enum { VIEW_COUNTS_MAX = 100 };
struct view_counts {
    char *run_path; /* owned; of which, and when that began */
    nanoseconds began;
    int64_t last; /* id of the last report that was counted */
    struct view_count {
        char *name; /* owned */
        size_t size;
        uint64_t n;
        int64_t report; /* id of the last that has it, and whether it is not finite there */
        bool nonfinite;
    } items[VIEW_COUNTS_MAX];
    size_t n;
};

void view_counts_done(struct view_counts *counts);
int view_counts_copy(const struct view_counts *counts,
                     struct view_counts *out); /* -ENOMEM, and `out` is empty */
/* Counts what was reported up to `last`, some 200,000 reports at most with `piece`: then `last` may not be
 * reached yet. */
int view_counts_renew(struct view_counts *counts, const char *run_path, nanoseconds began, int64_t last,
                      bool piece, ty_error *err);

/* Runs as Prometheus reads them: OpenMetrics 1.0, or the text format 0.0.4. */
struct view_exposed {
    const char *name, *path;
    struct view_counts *counts; /* that are kept; NULL: all reports are counted each time */
};

struct view_exposition {
    bool openmetrics; /* else 0.0.4 */
    bool per_rank;    /* adds the label rank to `metric`, 10,000 series a run at most */
    bool per_device;  /* all nodes and devices, not the first 128 alone */
};

/* What there is to tell of a run, once it was read: whoever must not wait for its storage reads it in a thread.
 * Nothing of it is shared with the counts that are kept, so that another thread may read the run again. */
struct exposed_run; /* opaque */
int exposed_run_read(const struct view_exposed *run, bool per_rank, struct exposed_run **out, ty_error *err);
void exposed_run_free(struct exposed_run *run); /* NULL is fine */
/* All of them as one text; runs of one name are told apart by their paths. -ENOMEM. */
int exposed_runs_encode(struct exposed_run *const *runs, size_t n, const struct view_exposition *how,
                        struct buffer *out, ty_error *err);

/* Reads and writes. Of several runs one that cannot be read is left out. */
int view_exposition_encode(const struct view_exposed *runs, size_t n, const struct view_exposition *how,
                           struct buffer *out, ty_error *err);

/* The content type of each. */
const char *view_exposition_type(bool openmetrics);

/* Text that is written out piece by piece, as it becomes worth a call. */
struct view_outlet {
    struct buffer text;
    view_sink *sink;
    void *context;
    ty_error *err;
    uint64_t written; /* bytes */
};

/* Writes out what gathered when that is enough. */
int view_outlet_drain(struct view_outlet *outlet);
/* Writes out the rest, unless `result` is an error, and frees; `result`, or why that failed. */
int view_outlet_finish(struct view_outlet *outlet, int result);

/* Traces of torch's profiler, logs/profile/rank-3.pt.trace.json.gz: the name of a rank's, the directory (a
 * descriptor, the caller's, or -errno), and the ranks that have one there. */
enum { VIEW_PROFILE_NAME = 48 };
void view_profile_name(int rank, char name[VIEW_PROFILE_NAME]);
int view_profiles_open(const char *run_path);
int view_profiles_list(int directory, struct idset *ranks); /* 0, or -errno */
/* Writes their events, `,` before each, with times since `first`, until `limit` bytes went out: then 1. Each
 * process is one of its own that is named after its rank. */
int view_profiles_write(const char *run_path, const struct idset *chosen, nanoseconds first, uint64_t limit,
                        struct view_outlet *outlet);

#endif
