/* Options of torchrun, mpirun and srun: who types one by habit is told what says the same here. A table, of
 * which a row is one option of theirs; it is asked only for options that are none of ours. */
#ifndef CLI_FOREIGN_OPTIONS_H
#define CLI_FOREIGN_OPTIONS_H

#include <stdbool.h>

#include "base/error.h"

/* `name` without dashes and without a value: "nproc-per-node", "nproc_per_node", "np", "N". False when it is no
 * option of theirs; else `err` has the line, TY_EUSAGE. `word` is how it was written. */
bool foreign_option(const char *name, const char *word, ty_error *err);

#endif
