/* The engines whose nodes come over a rendezvous. Join: the same command was started on each node, by
 * whatever starts commands there; rank 0 has the controller, the others serve it (join_node.h). Ssh: agents
 * on hosts that the user named, started by the user's own ssh. */
#ifndef ENGINE_JOIN_H
#define ENGINE_JOIN_H

#include "engine/engine.h"

extern const struct engine engine_join, engine_ssh;

/* An agent over a rendezvous, for engines whose nodes all come over one; the local node's is started here. */
int join_start_agent(const struct engine_agent *agent, int lease_fd, struct engine_handle *handle,
                     ty_error *err);

/* What --nnodes, --node-rank and --rendezvous, or --hosts or --hostfile say where nothing else says where a run
 * goes; workers do not find them. */
#define JOIN_NODES_VARIABLE "TRAINYARD_NNODES"
#define JOIN_RANK_VARIABLE "TRAINYARD_NODE_RANK"
#define JOIN_MEETING_VARIABLE "TRAINYARD_RENDEZVOUS"
#define HOSTS_VARIABLE "TRAINYARD_HOSTS"
#define HOSTFILE_VARIABLE "TRAINYARD_HOSTFILE"

/* N or MIN:MAX, and the rank of a node: as --nnodes and --node-rank have them. */
int join_parse_nodes(const char *value, struct engine_options *options, ty_error *err);
int join_parse_rank(const char *value, struct engine_options *options, ty_error *err);
/* Those variables, into options that say nothing of it yet: `hosts` (the caller's, empty before) is what they
 * point to then. What belongs together is not checked. */
int join_read_variables(struct engine_options *options, struct hosts *hosts, ty_error *err);

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
