/* Output of a worker made into whole lines that are fit to be shown. Pure: bytes in, bytes out.
 *
 * A line ends with LF, CR LF, or a CR alone (a progress bar redraws itself: each drawing is a line; what a
 * lone CR leaves empty is no line). A line above LINES_MAX is shown in pieces, each a line of its own that
 * ends with LINES_CUT; no byte is lost. With `escape`, ESC and other control characters but tab, DEL, the C1
 * code points and bytes that are not UTF-8 become \xNN. With neither `escape` nor a prefix a program's bytes
 * pass as they are: only LF ends a line, and pieces of a long one are not marked. */
#ifndef AGENT_LINES_H
#define AGENT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum { LINES_MAX = 64 << 10, LINES_PREFIX_SIZE = 24 };
#define LINES_CUT "\\" /* as a shell continues a line */

struct lines {
    char prefix[LINES_PREFIX_SIZE]; /* "[rank 3] " or "" */
    size_t prefix_size;
    bool escape;
    bool after_cr;         /* the last byte was a CR that ended a line: a LF that follows belongs to it */
    bool after_empty_cr;   /* the last byte was a CR that ended nothing: a LF makes it an empty line */
    struct buffer partial; /* a line without its end yet, at most LINES_MAX bytes */
};

/* `rank` below 0: no prefix. */
void lines_init(struct lines *lines, long rank, bool escape);
void lines_done(struct lines *lines);

/* Appends to `out` the lines that `bytes` complete. */
void lines_add(struct lines *lines, const char *bytes, size_t size, struct buffer *out);

/* The stream is over: a last line without an end gets one. */
void lines_end(struct lines *lines, struct buffer *out);

#endif
