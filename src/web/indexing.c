/* The index of a run grows step by step in a lane of its own, and behind it what else is drawn in the
 * background, on threads that are nicer than the others: whoever asks for the run meanwhile is answered from
 * what there is. They are not idle threads (SCHED_IDLE): those get nothing on a machine that trains, and here
 * they would stand still with locks that an answer waits for. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "web/site.h"

enum { TELL_MS = 250, REST = 49, OUTRUN_MS = 500, RETRY_SECONDS = 5 };

struct indexing_job {
    struct lane_job base;
    struct site_run *run;
    struct loop_timer rest;
    int more;
    bool follows; /* the run goes on */
    bool outrun;  /* and too fast */
    double scanned;
    nanoseconds took;
    ty_error err;
};

static void step(struct lane_job *base) {
    struct indexing_job *job = (struct indexing_job *)base;
    struct site_run *run = job->run;
    nanoseconds began = clock_monotonic();
    job->more = view_index_grow(run->index, &job->err);
    /* Kept before the drawings behind it are made, which take longer than it does. */
    if (job->more == 0 || view_index_scanned(run->index) >= 1) (void)view_index_keep(run->index, &job->err);
    job->follows = view_index_follows(run->index);
    job->scanned = view_index_progress(run->index);
    job->outrun = view_index_outrun(run->index);
    job->took = clock_monotonic() - began;
}

static void on_rested(void *context) {
    struct indexing_job *job = context;
    job->run->index_rests = NULL;
    lane_post(job->run->site->index_lanes, &job->run->index_lane, &job->base);
}

static void stepped(struct lane_job *base) {
    struct indexing_job *job = (struct indexing_job *)base;
    struct site_run *run = job->run;
    nanoseconds now = loop_now(run->site->loop);
    bool again = run->index_again && job->more == 0, due = now - run->index_told >= TELL_MS * NS_PER_MS;
    run->index_again = false;
    if (!again && (job->more <= 0 || job->scanned >= 1 || due)) {
        char data[64];
        run->index_told = now;
        (void)snprintf(data, sizeof data, "{\"scanned\": %.6g}", job->scanned);
        stream_tell(run->site, run, "index", data);
    }
    if (job->more <= 0 && !again) {
        run->indexing = false;
        if (job->more < 0) run->index_due = now + RETRY_SECONDS * NS_PER_S; /* its storage may be back then */
        free(job);
    } else if (job->follows) {
        /* A run that goes on needs the machine itself: of a core its index has a fiftieth, and nothing while
         * that would not be enough. */
        run->index_rests = job;
        job->rest = (struct loop_timer){.callback = on_rested, .context = job};
        (void)loop_timer_start(run->site->loop, &job->rest,
                               job->outrun ? OUTRUN_MS * NS_PER_MS : REST * job->took);
    } else {
        lane_post(run->site->index_lanes, &run->index_lane, &job->base);
    }
}

void indexing_begin(struct site_run *run) {
    run->index_again = run->indexing;
    if (run->indexing || loop_now(run->site->loop) < run->index_due) return;
    struct indexing_job *job = calloc(1, sizeof *job);
    if (job == NULL) return; /* what is asked for is answered from a sample */
    job->base = (struct lane_job){.work = step, .done = stepped};
    job->run = run;
    run->indexing = true;
    lane_post(run->site->index_lanes, &run->index_lane, &job->base);
}

void indexing_close(struct site *site) {
    uintptr_t value;
    for (size_t at = 0; hash_next(site->runs, &at, &value) != NULL;) {
        struct site_run *run = (struct site_run *)value;
        if (run->index_rests != NULL) loop_timer_stop(site->loop, &run->index_rests->rest);
        free(run->index_rests);
        view_index_close(run->index);
    }
}
