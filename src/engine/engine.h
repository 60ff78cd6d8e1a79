/* Where agents run. One file an engine: local (this machine; also logical nodes); slurm and sim follow. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "cluster/cluster.h"
#include "cluster/lease.h"

struct engine_agent {
    uint32_t node;         /* index in the cluster */
    const char *node_name; /* borrowed */
    uint32_t node_rank;
};

/* An agent that was started: the controller's end of its channel, and its process where it is one of ours (else
 * -1). */
struct engine_handle {
    int channel_fd;
    int pid;
    int pidfd;
};

struct engine {
    const char *name; /* "local" */
    /* Starts one agent. `lease_fd` may be -1. `log_path`: file for the agent's own messages. */
    int (*start_agent)(const struct engine_agent *agent, int lease_fd, const char *log_path,
                       struct engine_handle *handle, ty_error *err);
};

/* "auto" or "local"; TY_EUSAGE names what is allowed. */
int engine_find(const char *name, const struct engine **engine, ty_error *err);

#endif
