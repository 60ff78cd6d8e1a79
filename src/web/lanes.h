/* Threads for what reads files: a run's storage may be slow, or hang for good, and neither the loop nor another
 * run must wait for it. Each run has a lane; the jobs of a lane are done one after the other, so what they
 * share needs no lock, and the lanes go on beside each other, on as many threads as have work, LANE_THREADS at
 * most. */
#ifndef WEB_LANES_H
#define WEB_LANES_H

#include <stdbool.h>

#include "base/error.h"
#include "loop/loop.h"

enum { LANE_THREADS = 16 };

/* Embedded in what it is about, made by the poster. */
struct lane_job {
    struct lane_job *next;
    void (*work)(struct lane_job *job); /* in a thread */
    void (*done)(struct lane_job *job); /* on the loop, after it; frees it */
    void (*drop)(struct lane_job *job); /* frees one that will not be done any more */
};

/* Embedded in what its jobs are about, zero-initialised; must outlive them. */
struct lane {
    struct lane *next;
    struct lane_job *first, *last;
    bool at_work; /* in a thread, or waiting for one */
};

struct lanes; /* opaque */

/* The threads are by `nice` nicer than the process, from their first job to their last: only root gets back
 * from that. */
int lanes_create(struct loop *loop, int nice, struct lanes **out, ty_error *err);
/* Jobs that wait are dropped. What hangs is left to its thread: false, and nothing that jobs know may be
 * freed. */
bool lanes_destroy(struct lanes *lanes);
void lane_post(struct lanes *lanes, struct lane *lane, struct lane_job *job);

#endif
