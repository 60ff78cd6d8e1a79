/* The ranks of a run: where each sits, how it stands, how fast it goes. */
#ifndef VIEW_RANKS_H
#define VIEW_RANKS_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "view/facts.h"
#include "view/summary.h"

struct view_rank {
    int rank;
    int node;      /* in the plan, -1: not told */
    char *devices; /* owned; as the plan tells them, "" without, NULL: not told */
    int64_t pid;   /* 0: not told */
    enum worker_standing standing;
    uint64_t number;         /* of its last report, 0: none */
    nanoseconds last_report; /* wall; 0: none */
    double interval, lag;    /* seconds: the median of its last intervals; behind the first; NAN: not known */
};

struct view_ranks {
    struct view_rank *items; /* owned; slowest interval first */
    size_t n;
    char **nodes; /* owned; names of the plan */
    size_t n_nodes;
    char **slices; /* owned; as the plan tells them */
    size_t n_slices;
    double usual; /* median of the intervals; NAN */
};

int view_ranks_read(const char *run_path, struct view_ranks *ranks, ty_error *err);
/* The same, of facts that were read. */
int view_ranks_read_of(const char *run_path, const struct view_facts *facts, struct view_ranks *ranks,
                       ty_error *err);
void view_ranks_done(struct view_ranks *ranks);
/* {"usual_interval", "ranks": n, "items": [{"rank", "node", "devices", "pid", "state", "number", "last_report",
 * "interval", "lag"}]} from the `from`th on, `limit` of them at most. */
void view_ranks_encode(const struct view_ranks *ranks, size_t from, size_t limit, struct buffer *out);
/* Where they sit: {"grids": [...], "nodes": [{"node", "name", "ranks": [{"rank", "devices", "state"}]}]}. */
void view_placement_encode(const struct view_ranks *ranks, struct buffer *out);
/* [{"name", "type", "topology", "columns", "ranks": [[rank of each chip of a row, or null]]}], a slice each
 * (grids.c). */
void view_grids_encode(const struct view_ranks *ranks, struct buffer *out);

#endif
