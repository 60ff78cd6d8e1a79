/* The agent: one process per node. Starts, watches and ends that node's workers; speaks frames with the controller.
 *
 * Order of things: hello; launch -> each worker spawned, a few a turn (started); its lines relayed, its messages forwarded (ready,
 * reports, store); its end seen by pidfd (exited); its pipes drained, its process group killed (gone); when all are gone and
 * the attempt is over, the sweep: the agent is a subreaper, so that no child left (waitid: ECHILD) proves that no
 * descendant is left; others are killed and counted. Then bye and the end. When the channel closes before that, workers are stopped
 * at once (TERM, grace, KILL), swept, and the agent ends. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "base/error.h"

struct agent_config {
    int channel_fd; /* stream socket to the controller */
    int lease_fd;   /* kept open while this process lives, so that its lease does; -1 without */
    unsigned node;  /* index in the plan's node order */
    const char *node_name;
    const char *log_path; /* file for its own messages, NULL: none */
};

/* Runs the agent until its end; the process's exit status. Used by `trainyard agent`. */
int agent_main(const struct agent_config *config);

#endif
