/* Curves in a terminal: 2 x 4 dots a character, in the Braille patterns of Unicode; plain ASCII where the
 * terminal knows no UTF-8. What is drawn is gathered into buckets by view (view/series.h), and nothing is
 * computed of it here but places. */
#ifndef CLI_BRAILLE_H
#define CLI_BRAILLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "view/series.h"

struct braille_size {
    size_t columns, rows; /* of the whole drawing, with its scale */
    bool ascii;
};

/* The terminal's own columns (80 where there is none) and whether it knows UTF-8. */
struct braille_size braille_terminal(size_t rows);

/* The band of a line from min to max with its mean, a scale on the left, x below. */
void braille_plot(const struct view_line *line, const char *title, const char *x, struct braille_size size,
                  struct buffer *out);
/* One row of `columns` characters: the means. */
void braille_sparkline(const struct view_line *line, size_t columns, bool ascii, struct buffer *out);

#endif
