/* The lines of workers that have not ended, such as progress bars: what stands in each, by rank and stream.
 * They are shown above the progress line, as many as there is room for. */
#ifndef CONTROLLER_LIVE_H
#define CONTROLLER_LIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct live_line {
    uint32_t rank, stream;
    struct buffer text;
};

struct live {                /* zero-initialised is empty */
    struct live_line *lines; /* in the order of ranks, and of streams in each */
    size_t n;
};

/* What stands there now; nothing any more when `size` is 0. */
void live_set(struct live *live, uint32_t rank, uint32_t stream, const void *text, size_t size);
void live_clear(struct live *live); /* frees as well */

#endif
