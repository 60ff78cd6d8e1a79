/* Text that is written out piece by piece, as it becomes worth a call. */
#ifndef VIEW_OUTLET_H
#define VIEW_OUTLET_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "view/export.h"

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

#endif
