/* The first cause on one screen. */
#ifndef CONTROLLER_FAILURE_H
#define CONTROLLER_FAILURE_H

#include "base/buffer.h"
#include "run/run.h"

struct failure_context {
    const struct run *run;
    const char *node;      /* name of the one that failed, or NULL */
    const char *path;      /* the run's directory */
    nanoseconds started;   /* wall: when the attempt was launched */
    nanoseconds stop_time; /* between the failure and the last worker's end */
};

/* "rank 3 exited with code 1, on node n2": the cause on one line; `node` NULL: not of a node. */
void failure_line(const struct run_failure *failure, const char *node, struct buffer *out);

/* Which rank failed first, where and how; its last lines; the other ranks folded; whether anything is left;
 * where to look. Appends nothing when nothing failed. */
void failure_format(const struct failure_context *context, struct buffer *out);

#endif
