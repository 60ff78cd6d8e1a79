/* What a journal tells beside its reports, as whoever draws them needs it: the state of the run, checkpoints,
 * faults, and which reports count. */
#ifndef VIEW_FACTS_H
#define VIEW_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"
#include "run/replay.h"

/* For the pace of ranks the last few reports of each are enough. */
enum { PACE_REPORTS = 10, PACE_REPORTS_MAX = 100000 };

struct fact_checkpoint {
    uint64_t number;
    int attempt;
    nanoseconds time;
    char *name, *metrics; /* owned; metrics NULL without */
};

struct fact_hung {
    nanoseconds time;
    int rank;
    char *text; /* owned */
};

/* Of an attempt: up to which number what it reported counts. */
struct fact_attempt {
    int attempt;
    uint64_t began_from; /* number of the checkpoint, 0 without */
    uint64_t counts_to;  /* UINT64_MAX where no later attempt began */
};

struct view_facts {
    struct run_replay replay;
    nanoseconds first;                   /* event, wall; 0: none */
    struct fact_checkpoint *checkpoints; /* owned; that are kept, by number */
    size_t n_checkpoints;
    uint64_t lost_checkpoints; /* given up */
    struct fact_hung *hung;    /* owned */
    size_t n_hung;
    struct fact_attempt *attempts; /* owned; in their order */
    size_t n_attempts;
    uint64_t reports; /* how many there are */
    nanoseconds first_report;
};

int view_facts_read(const char *run_path, struct view_facts *facts, ty_error *err);
void view_facts_done(struct view_facts *facts);

/* Whether a report counts, or a later attempt took it back. */
bool view_facts_count(const struct view_facts *facts, int attempt, uint64_t number);

#endif
