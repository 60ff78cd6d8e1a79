/* The live lines: on a terminal, one that shows workers by state, the time gone by and the latest metrics, and
 * above it what stands in lines of workers that have not ended, such as progress bars. Elsewhere, and on a
 * terminal that knows no escapes (TERM=dumb), quiet. With PROGRESS_PLAIN whole lines, at most one in ten
 * seconds. */
#ifndef CONTROLLER_PROGRESS_H
#define CONTROLLER_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "controller/controller.h"
#include "loop/loop.h"
#include "run/pace.h"
#include "run/run.h"

/* The lines of workers that have not ended, such as progress bars: what stands in each, by rank and stream.
 * They are shown above the progress line, as many as there is room for. */

struct live_line {
    uint32_t rank, stream;
    struct buffer text;
};

struct live {                /* zero-initialised is empty */
    struct live_line *lines; /* in the order of ranks, and of streams in each */
    size_t n;
};

struct progress {
    struct loop *loop;
    const struct run *run;
    const char *name;
    enum { PROGRESS_STYLE_QUIET, PROGRESS_STYLE_LINE, PROGRESS_STYLE_PLAIN } style;
    nanoseconds started, shown; /* monotonic */
    bool visible;               /* the live lines stand on the terminal */
    bool within_line;           /* output stands there that has not ended its line: nothing can be shown */
    struct live live;           /* workers' lines that have not ended */
    struct buffer widths;       /* size_t: columns of each line as it was drawn, from the top */
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
/* Whether it is a terminal that knows escapes. */
bool progress_draws_on(int fd);
/* The streams, as of wire.Launch.live, of which progress_live is to be told: those that go to the terminal. */
uint32_t progress_streams(const struct progress *progress);
/* What stands in a worker's line that has not ended; size 0: nothing any more. */
void progress_live(struct progress *progress, uint32_t rank, uint32_t stream, const void *text, size_t size);
/* Output of workers was written that ends with this byte. */
void progress_wrote(struct progress *progress, int stream, uint8_t last);
/* The numbers and texts of a JSON object in a few words: "loss 0.31  step 40". */
void progress_words(const char *metrics, size_t size, struct buffer *out);
/* Takes the lines away, so that output can be written; progress_show brings it back. */
void progress_hide(struct progress *progress);
void progress_show(struct progress *progress);
void progress_close(struct progress *progress);

#endif
