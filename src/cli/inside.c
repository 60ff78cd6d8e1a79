/* Finding the worker that a command was called from, by the socket that it has inherited; apart, as the fuzz
 * target of these commands brings a worker of its own. What is asked of the worker then is the command's
 * (report.c, store.c). Outside of a run the refusal says how to get inside one. */
#include "cli/command.h"

#include <stdlib.h>

#include "base/error.h"
#include "worker/link.h"

ty_worker *inside_worker(ty_error *err) {
    if (getenv(WORKER_FD_VARIABLE) != NULL) return ty_worker_self(err);
    (void)ty_fail(err, TY_EUSAGE, "this works inside a worker only: start one with trainyard run -n 1 -- PROG");
    return NULL;
}
