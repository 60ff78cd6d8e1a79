/* The two processes of a node that joins. */
#ifndef ENGINE_JOIN_KEEPER_H
#define ENGINE_JOIN_KEEPER_H

#include "engine/join_node.h"

/* What the keeper knows of the agent, in memory that both have. */
struct join_life {
    bool served; /* it has joined a run */
    bool again;  /* it has lost the controller by the network, ended what it ran, and may join again */
};

/* The agent's: connects, joins and serves until the end. `parent_fd`: a pidfd of the keeper, or -1. Its exit
 * status. `swept`: it comes after an agent of which nothing is left. */
int join_node_run(const struct join_node *node, bool swept, int parent_fd, struct join_life *life);

#endif
