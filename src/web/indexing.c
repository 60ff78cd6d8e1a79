/* The index of a run grows step by step in a lane of its own, on threads that are nicer than the others:
 * whoever asks for the run meanwhile is answered from what there is. They are not idle threads (SCHED_IDLE):
 * those get nothing on a machine that trains, and here they would stand still with locks that an answer waits
 * for. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "web/site.h"

struct indexing_job {
    struct lane_job base;
    struct site_run *run;
    int more;
    double scanned;
    ty_error err;
};

static void step(struct lane_job *base) {
    struct indexing_job *job = (struct indexing_job *)base;
    struct site_run *run = job->run;
    job->more = view_index_grow(run->index, &job->err);
    if (job->more == 0) (void)view_index_keep(run->index, &job->err);
    job->scanned = view_index_scanned(run->index);
}

static void stepped(struct lane_job *base) {
    struct indexing_job *job = (struct indexing_job *)base;
    struct site_run *run = job->run;
    char data[64];
    (void)snprintf(data, sizeof data, "{\"scanned\": %.6g}", job->scanned);
    stream_tell(run, "index", data);
    if (job->more > 0) {
        lane_post(run->site->index_lanes, &run->index_lane, base);
        return;
    }
    run->indexing = false;
    run->index_failed = job->more < 0;
    free(job);
}

static void drop(struct lane_job *base) {
    free(base);
}

void indexing_begin(struct site_run *run) {
    if (run->indexing || run->index_failed) return;
    struct indexing_job *job = calloc(1, sizeof *job);
    if (job == NULL) return; /* what is asked for is answered from a sample */
    job->base = (struct lane_job){.work = step, .done = stepped, .drop = drop};
    job->run = run;
    run->indexing = true;
    lane_post(run->site->index_lanes, &run->index_lane, &job->base);
}

void indexing_close(struct site *site) {
    uintptr_t value;
    for (size_t at = 0; hash_next(site->runs, &at, &value) != NULL;)
        view_index_close(((struct site_run *)value)->index);
}
