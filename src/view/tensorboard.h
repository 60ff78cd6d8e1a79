/* Reports as TensorBoard's event files: a directory for each rank, `rank-N`, and `mean`, with float64 scalars
 * over the step. Each record is its length and its bytes, each with a masked CRC-32C. */
#ifndef VIEW_TENSORBOARD_H
#define VIEW_TENSORBOARD_H

#include "base/error.h"
#include "view/series.h"

struct tensorboard; /* opaque */

/* Makes `directory`; TY_EUSAGE where there is something in it already. */
int tensorboard_open(const char *run_path, const char *directory, const struct view_selection *selection,
                     struct tensorboard **out, ty_error *err);
/* Writes what was reported since the last call. Means of numbers that not all ranks have made yet wait for
 * them, with `last` no longer. */
int tensorboard_write(struct tensorboard *board, bool last, ty_error *err);
void tensorboard_close(struct tensorboard *board); /* NULL is fine */

#endif
