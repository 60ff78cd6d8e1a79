/* A node that joins a controller elsewhere (rendezvous.h), from this process: it connects, describes the node,
 * and serves the run.
 *
 * Two processes: the agent, which has the channel and starts workers, and its keeper, which started it and is
 * what the user sees. The keeper hands signals on, ends an agent that is stopped for longer than its lease, so
 * that the workers of a node that cannot speak end all the same, sees to it that nothing is left, and tells the
 * exit status. */
#ifndef ENGINE_JOIN_NODE_H
#define ENGINE_JOIN_NODE_H

#include "agent/adrift.h"
#include "base/duration.h"
#include "cluster/cluster.h"
#include "engine/address.h"
#include "loop/loop.h"
#include "wire/channel.h"
#include "wire/key.h"

struct join_node {
    const char *command;                       /* in whose name is told what happens: "run" */
    const char *rendezvous;                    /* HOST:PORT[,HOST:PORT...] of the controller */
    uint32_t node_rank;                        /* RENDEZVOUS_RANK_NONE: the controller gives it one */
    const char *node_name;                     /* NULL: the host's name */
    const char *run;                           /* that its user named; NULL: none */
    struct run_key key;                        /* "": none */
    const struct cluster_overrides *overrides; /* NULL: as probed */
    bool ends_with_input;                      /* whoever started this holds its standard input open */
    bool outlives_input;                       /* once it has begun a run */
    bool awaits_another;                       /* where the controller died its user may resume the run there */
    nanoseconds limit;                         /* for the controller to be there; 0: the default */
};

/* Serves one run: the exit status of the run, or of the error, which was told on standard error then. This
 * process must have one thread. */
int join_node_serve(const struct join_node *node);

/* -- between the keeper and its agent */

/* What the keeper knows of the agent, in memory that both have. */
struct join_life {
    uint32_t node_rank; /* as given, or as the controller has given it */
    bool swept;         /* nothing is left of one before it that had a run: the keeper's word */
    bool served;        /* it has had a run */
    bool again; /* it has lost the controller, ended what it ran, and may join that one, or another, again */
};

/* Tells what happens in the name of the command and of the node. */
void join_node_tell(const struct join_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The agent's: connects, joins and serves until the end. `parent_fd`: a pidfd of the keeper, or -1. `leases`: a
 * local socket to the keeper, who lets what comes there lie, since a descriptor on its way is open: what the
 * agent claims stays claimed until nothing is left of it. Its exit status. `again`: it follows another. */
int join_node_run(const struct join_node *node, bool again, int parent_fd, int leases, struct join_life *life);

/* -- back to a controller, where workers outlive the one that there was */

/* The way (agent/adrift.h) to the address by which the node joined, again and again, without holding up the
 * agent's loop. */
struct way_back_home {   /* zero-initialised: not on the way */
    struct way_back way; /* for the agent */
    struct address address;
    const struct run_key *key; /* "": none; borrowed */
    uint32_t node_rank;
    struct loop *loop;
    struct transport transport; /* of the attempt to connect that is under way; its fd is -1 without */
    struct loop_watch watch;
    struct loop_timer retry, late;
    void (*there)(void *owner, struct transport *transport);
    void *owner;
};

/* `fd`: the connection by which the node joined. `join` and `key` are borrowed. False: there is no way back. */
bool way_back_note(struct way_back_home *home, int fd, const Wire__Join *join, const struct run_key *key,
                   uint32_t node_rank);

#endif
