/* The engines whose nodes come over a rendezvous. Join: the same command was started on each node, by
 * whatever starts commands there; rank 0 has the controller, the others serve it (join_node.h). Ssh: agents
 * on hosts that the user named, started by the user's own ssh. */
#ifndef ENGINE_JOIN_H
#define ENGINE_JOIN_H

#include "engine/engine.h"

extern const struct engine engine_join, engine_ssh;

/* An agent over a rendezvous, for engines whose nodes all come over one; the local node's is started here. */
int join_start_agent(const struct engine_agent *agent, int lease_fd, const char *log_path,
                     struct engine_handle *handle, ty_error *err);

/* What --nnodes, --node-rank and --rendezvous say where none of them is given; workers do not find them. */
#define JOIN_NODES_VARIABLE "TRAINYARD_NNODES"
#define JOIN_RANK_VARIABLE "TRAINYARD_NODE_RANK"
#define JOIN_MEETING_VARIABLE "TRAINYARD_RENDEZVOUS"

/* Checks the words of a user: --nnodes, --node-rank and --rendezvous belong together. */
int join_check(const struct engine_options *options, ty_error *err);
/* Where they meet can be read, and without a key is of this machine alone. */
int join_check_rendezvous(const struct engine_options *options, ty_error *err);
/* Whether this process is the node of rank 0, where nobody says which is: HOST of HOST:PORT is this machine,
 * and no process here that asked before is still there. TY_EUSAGE: it is no HOST:PORT. */
int join_claim_host(const char *rendezvous, bool *claimed, ty_error *err);
/* The same of one who gave hosts: nothing speaks of other machines otherwise. */
int ssh_check(const struct engine_options *options, ty_error *err);

#endif
