/* What a worker that ended well left in its process group: jobs in the background, as an upload that goes
 * on. */
#ifndef AGENT_LEFTOVERS_H
#define AGENT_LEFTOVERS_H

#include <stddef.h>
#include <sys/types.h>

#include "base/buffer.h"

/* How many processes of the group live; `out` gets "2 processes: python upload.py, sleep 100". Every byte of it
 * can be printed. */
size_t leftovers_describe(pid_t group, struct buffer *out);

#endif
