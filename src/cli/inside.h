/* For the commands that work from inside a worker. */
#ifndef CLI_INSIDE_H
#define CLI_INSIDE_H

#include <trainyard/worker.h>

/* The worker that this process belongs to, or NULL: TY_EUSAGE outside of a run. */
ty_worker *inside_worker(ty_error *err);

#endif
