/* The live line: on a terminal, one line that shows workers by state, the time gone by and the latest metrics;
 * elsewhere quiet. With PROGRESS_PLAIN whole lines, at most one in ten seconds. */
#ifndef CONTROLLER_PROGRESS_H
#define CONTROLLER_PROGRESS_H

#include "controller/controller.h"
#include "loop/loop.h"
#include "run/pace.h"
#include "run/run.h"

struct progress {
    struct loop *loop;
    const struct run *run;
    const char *name;
    enum { PROGRESS_STYLE_QUIET, PROGRESS_STYLE_LINE, PROGRESS_STYLE_PLAIN } style;
    nanoseconds started, shown; /* monotonic */
    bool visible;               /* the live line stands on the terminal */
    char metrics[512];
    struct pace *pace; /* owned; NULL: nothing is shown */
    int attempt;       /* that the pace is of */
    struct loop_timer timer;
};

void progress_open(struct progress *progress, struct loop *loop, const struct run *run, const char *name,
                   enum progress_mode mode);
/* A report of some rank came, at that time. */
void progress_report(struct progress *progress, uint32_t rank, uint32_t n_ranks, nanoseconds time);
/* The latest report of rank 0, a JSON object. */
void progress_metrics(struct progress *progress, const char *metrics, size_t size);
/* Takes the line away, so that output can be written; progress_show brings it back. */
void progress_hide(struct progress *progress);
void progress_show(struct progress *progress);
void progress_close(struct progress *progress);

#endif
