/* Output of a worker made into whole lines that are fit to be shown. Pure: bytes in, bytes out.
 *
 * A line ends with LF or CR LF. A CR alone begins the line anew, as progress bars do: what is written next
 * stands in place of what stood there, so that the line is the last of its drawings, and none when that only
 * erased. Meanwhile lines_live has the drawing that stands. ESC [ A at the end of a drawing goes back up to the
 * line above, as bars below each other do: from then on these are rows that end together, when a LF comes in
 * the last of them. A line above LINES_MAX is shown in pieces, each a line of its own that ends with LINES_CUT;
 * no byte is lost. With `escape`, ESC and other control characters but tab, DEL, the C1 code points and bytes
 * that are not UTF-8 become \xNN. With `terminal` a program believes that it has one: its escape sequences are
 * left out, but for colours with `colour`, and a backspace takes a character back. With neither `escape` nor a
 * prefix a program's bytes pass as they are: CR is a byte like others, and pieces of a long line are not
 * marked. */
#ifndef AGENT_LINES_H
#define AGENT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum { LINES_MAX = 64 << 10, LINES_LIVE_MAX = 1 << 10, LINES_PREFIX_SIZE = 24, LINES_ROWS = 8 };
#define LINES_CUT "\\" /* as a shell continues a line */

struct lines {
    char prefix[LINES_PREFIX_SIZE]; /* "[rank 3] " or "" */
    size_t prefix_size;
    bool escape;
    bool terminal; /* what a program says to one: see above */
    bool colour;   /* and colours go on */
    enum { TEXT_PLAIN, TEXT_ESCAPE, TEXT_SEQUENCE, TEXT_COMMAND } text; /* where in such words it is */
    char sequence[24]; /* what has come of a TEXT_SEQUENCE, as far as it can be of a colour */
    size_t sequence_size;
    bool pass;             /* without prefix and escape: bytes go on as they come */
    bool within;           /* the last one that went on was no LF */
    bool returned;         /* the last byte was a CR: the next one begins a drawing, unless it is a LF */
    bool redrawn;          /* `partial` is a drawing that took the place of another one, or of nothing */
    bool settled;          /* a line that lines_live may have shown has ended; for the caller to clear */
    struct buffer partial; /* a line without its end yet, at most LINES_MAX bytes */
    struct buffer rows[LINES_ROWS]; /* bars below each other; that of `row` is `partial` */
    unsigned n_rows, row;
};

/* `rank` below 0: no prefix. */
void lines_init(struct lines *lines, long rank, bool escape);
void lines_done(struct lines *lines);

/* Appends to `out` the lines that `bytes` complete. */
void lines_add(struct lines *lines, const char *bytes, size_t size, struct buffer *out);

/* The stream is over: a last line without an end gets one. */
void lines_end(struct lines *lines, struct buffer *out);

/* Appends what stands in the line that has not ended, fit for a terminal and at most LINES_LIVE_MAX bytes
 * before escapes; nothing when it is empty or blank. */
void lines_live(const struct lines *lines, struct buffer *out);

#endif
