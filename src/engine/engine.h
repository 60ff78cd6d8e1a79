/* Where agents run. One file an engine: local (this machine; also logical nodes), join (one command was started
 * on each node), ssh (hosts that the user named), slurm (the nodes of an allocation). The cluster that does not
 * exist (sim.h) has no agents to start, and stands beside them. An engine says which nodes there are and starts
 * an agent on each; what the agents are told is the controller's. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "cluster/cluster.h"
#include "cluster/hosts.h"
#include "cluster/lease.h"
#include "engine/rendezvous.h"

struct engine_agent {
    const Wire__Start *start;      /* what it is told, all but whether a lease comes with it; borrowed */
    bool copied;                   /* the one that was made with a copy of this process (engine/local.h) */
    bool once;                     /* for this run alone: none of those that rest, nor to rest behind it */
    struct rendezvous *rendezvous; /* of an engine that has one, else NULL; borrowed */
};

/* An agent that was started: the controller's end of its channel, and its process where it is one of ours (else
 * -1). An agent that joined has a channel already, whose owner the caller then is (channel_adopt); its
 * channel_fd is -1. */
struct engine_handle {
    int channel_fd;
    int pid;
    int pidfd;
    struct channel *channel; /* NULL: to be made of channel_fd */
    uint64_t inheritance;    /* of one of ours: a digest of what it has of this process, as it was then */
};

/* What a user may say of where the run goes, for the engines to read; borrowed. All zero is nothing. */
struct engine_options {
    uint32_t min_nodes, max_nodes; /* --nnodes; 0: not given */
    int64_t node_rank;             /* --node-rank; -1: not given */
    const char *rendezvous;        /* --rendezvous; NULL */
    struct run_key key;            /* "": none */
    nanoseconds join_limit;        /* 0: the default */
    int signals_fd;                /* gives numbers of signals, of which some end the wait for nodes; 0: none */
    int told_fd;                   /* takes lines of what is told while nodes are waited for; 0: none */
    const struct hosts *hosts;     /* --hosts, --hostfile; NULL: none */
    bool copy;                     /* --copy: hosts are brought the command and its library */
};

struct demand;

struct engine {
    const char *name; /* "local" */
    /* An engine whose agents come over the network: says where to listen, how many nodes there are to be, and
     * how they are started. Nothing is started yet. NULL: this machine's nodes are all there are. */
    int (*prepare)(const struct engine_options *options, struct rendezvous_config *config, ty_error *err);
    /* The nodes to plan on, where the engine knows more of them than they say of themselves
     * (rendezvous_cluster, which NULL means). The cluster is the caller's. */
    int (*look)(struct rendezvous *rendezvous, const struct demand *demand, struct cluster **cluster,
                ty_error *err);
    bool adopts;         /* workers may go on where the controller dies, and be adopted by another one: */
    nanoseconds outlive; /* for so long where the user does not say */
    bool allots; /* a scheduler gives each device to one job, and may number a job's anew: nothing is leased */
    /* What a scheduler says of nodes of this run that are not well: appends a line for each, NODE, STATE and
     * REASON with tabs between. Waits for another program, so that it is called in a thread. NULL: there is no
     * scheduler. */
    int (*ask)(struct buffer *out, ty_error *err);
    /* Starts one agent, or takes one that rests. `lease_fd` may be -1; it stays the caller's. */
    int (*start_agent)(const struct engine_agent *agent, int lease_fd, struct engine_handle *handle,
                       ty_error *err);
    /* Takes back an agent that was sent Finish with keep and has said a clean Bye: it may serve a later
     * start_agent of this process, for any node. Takes over the handle's descriptors (the channel's from
     * channel_release) and clears it; whether the agent still lives need not be known. NULL: agents of this
     * engine cannot rest. */
    void (*rest)(struct engine_handle *handle);
    /* Ends the agents that rest, and waits for them (two seconds at most, then by force). Nobody need call it
     * before the end of the process: agents end when that does. NULL as `rest`. */
    void (*close)(void);
};

/* Says which engine "auto" is, where no option says where the run goes; workers do not find it. */
#define ENGINE_VARIABLE "TRAINYARD_ENGINE"

/* "auto", "local", "join", "ssh" or "slurm"; TY_EUSAGE names what is allowed. "auto" is ssh where there are
 * hosts among the options (NULL: there are none), join where there are several nodes, then what the variable
 * says, slurm in an allocation of several nodes, else local. */
int engine_find(const char *name, const struct engine_options *options, const struct engine **engine,
                ty_error *err);

#endif
