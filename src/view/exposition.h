/* Runs as Prometheus reads them: OpenMetrics 1.0, or the text format 0.0.4. */
#ifndef VIEW_EXPOSITION_H
#define VIEW_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

struct view_exposed {
    const char *name, *path;
};

struct view_exposition {
    bool openmetrics; /* else 0.0.4 */
    bool per_rank;    /* adds the label rank to `metric`, 10,000 series a run at most */
};

/* A run that cannot be read is left out. -ENOMEM. */
int view_exposition_encode(const struct view_exposed *runs, size_t n, const struct view_exposition *how,
                           struct buffer *out, ty_error *err);

/* The content type of each. */
const char *view_exposition_type(bool openmetrics);

#endif
