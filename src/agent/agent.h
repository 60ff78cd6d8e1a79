/* The agent: one process per node. Starts, watches and ends that node's workers; speaks frames with the
 * controller.
 *
 * It serves one run after another: waits for a Start on its channel, serves that run (node_run.h), and, when
 * it is kept, waits for the next. Of a run nothing is left in it then but the zygote (template/template.h).
 * While it waits it does nothing, and ends as soon as its channel closes or the process that started it is
 * gone. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <sys/types.h>

/* The descriptors that an agent begins with, beside the standard ones. */
enum {
    AGENT_CHANNEL_FD = 3,
    AGENT_COPY_FD = 4 /* the socket to the copy of the driver */
};

/* Runs the agent until its end on this stream socket to the controller; the process's exit status. `copy`:
 * the child that workers are forked from (engine/local.h), 0 without. Used by `trainyard agent`. */
int agent_main(int channel_fd, pid_t copy);

#endif
