/* The two processes of a node that joins. */
#ifndef ENGINE_JOIN_KEEPER_H
#define ENGINE_JOIN_KEEPER_H

#include "engine/join_node.h"

/* The agent's: connects, joins and serves until the end. `parent_fd`: a pidfd of the keeper, or -1. Its exit
 * status. */
int join_node_run(const struct join_node *node, int parent_fd);

#endif
