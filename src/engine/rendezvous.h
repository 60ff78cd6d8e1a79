/* Where the agents of other machines meet the controller.
 *
 * The controller opens a rendezvous: it listens, with the key of the run. Agents are started by whoever can
 * start them: the same command on every node (engine join), ssh, srun. Each executes
 *
 *     trainyard agent --rendezvous HOST:PORT[,HOST:PORT...] --node-rank I [--node-name NAME]
 *
 * with the key as the first line of its standard input (or in TRAINYARD_RUN_KEY), tries the addresses until one
 * answers, proves that it has the key, describes its node in a Join and waits until the run wants it. It serves
 * that run alone, and ends with the run's exit status. rendezvous_cluster is the cluster that those make which
 * have joined; the engine starts a node's agent by telling it so over the channel that it came by.
 *
 * Whoever connects without the key learns nothing and changes nothing: at most RENDEZVOUS_PENDING_MAX peers are
 * heard that have not proven it, each for RENDEZVOUS_PROOF_LIMIT; the oldest makes way for a newer one. */
#ifndef ENGINE_RENDEZVOUS_H
#define ENGINE_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/duration.h"
#include "cluster/cluster.h"
#include "loop/loop.h"
#include "wire/key.h"
#include "wire/trainyard.pb-c.h"

enum { RENDEZVOUS_PENDING_MAX = 256, RENDEZVOUS_NODES_MAX = 100000 };
#define RENDEZVOUS_PROOF_LIMIT (5 * NS_PER_S)
#define RENDEZVOUS_RANK_NONE UINT32_MAX /* of a node that asks for a rank */

struct rendezvous; /* opaque */
struct channel;

/* Starts agents; an engine's. All zero: somebody else does. */
struct rendezvous_starter {
    /* Starts the agents of the nodes with ranks first, .., first + n - 1, and does not wait for them: what is
     * heard of one, and what goes wrong, is said by rendezvous_note and rendezvous_give_up, from the loop.
     * Called again for a node whose agent was lost. */
    int (*start)(void *context, struct rendezvous *rendezvous, uint32_t first, uint32_t n, ty_error *err);
    /* The run is over, or does not come about: ends and reaps what start has started and still runs, and frees
     * the context. NULL: nothing is to be done. */
    void (*stop)(void *context);
    /* A node that a run waits for has so long to come back by itself, then `start` is called for it though
     * nobody has said that its agent is gone: what started that may wait for a machine that is no more. 0: for
     * ever. */
    nanoseconds patience;
    void *context;
};

struct rendezvous_config {
    struct loop *loop;
    const char
        *listen; /* HOST:PORT[,HOST:PORT...]; port 0: one that is free; NULL: each address of this machine */
    /* Copied. "": with a starter one is made, else only loopback is served, and there only this user. */
    const struct run_key *key;
    uint32_t min_nodes, max_nodes; /* how many are to be there, this machine's own among them */
    bool local;                    /* this machine is the node of rank 0: its agent does not join */
    const char *run;      /* as its user named it: a node of another one is refused; NULL: any; borrowed */
    const char *run_path; /* whose agents may be adrift (agent/adrift.h); NULL: none is */
    bool outlives;        /* agents that a starter starts look for another controller where this one dies */
    const struct cluster_overrides *overrides; /* of this machine; NULL: as probed; borrowed */
    const char *const
        *names;        /* of the nodes by rank, as the user calls them, for what is said of those that are
                                 missing; NULL: "node 3"; borrowed */
    nanoseconds limit; /* for rendezvous_wait */
    int signals_fd;    /* a byte of SIGINT, SIGTERM or SIGHUP ends it with TY_EINTERRUPTED; 0: none; borrowed */
    struct rendezvous_starter starter; /* its `stop` is called by rendezvous_close, also when opening fails */
};

/* Listens. TY_EUSAGE where a key is needed; TY_ESTART with the address that cannot be listened on, and why. */
int rendezvous_open(const struct rendezvous_config *config, struct rendezvous **rendezvous, ty_error *err);
/* Nodes whose channels are here are told the exit status with which their commands are to end, unless some came
 * to be adopted, and are neither adopted nor sent away: all look for another controller then. NULL is fine. */
void rendezvous_close(struct rendezvous *rendezvous, int status);

/* Keeps the port and the key on this machine, where the agents were started by a starter: for a controller that
 * follows this one, should it die, under the run's directory. */
int rendezvous_keep(struct rendezvous *rendezvous, const char *run_path, ty_error *err);

/* What a controller that died kept of a run that is removed. */
void rendezvous_forget(const char *run_path);

/* HOST:PORT[,...] for agents: what is listened on, each address of this machine where that is all of them. */
const char *rendezvous_addresses(const struct rendezvous *rendezvous);
const struct run_key *rendezvous_key(const struct rendezvous *rendezvous);
bool rendezvous_outlives(const struct rendezvous *rendezvous);
struct loop *rendezvous_loop(const struct rendezvous *rendezvous);
void *rendezvous_starter(const struct rendezvous *rendezvous); /* the context of its starter */
/* Whether it starts the agents itself: nobody waits for their exit status. */
bool rendezvous_starts(const struct rendezvous *rendezvous);

/* What was heard of a node that has not joined ("ssh: connect to host b port 22: Connection refused"): told
 * with those that are missing. The later word replaces the earlier. */
void rendezvous_note(struct rendezvous *rendezvous, uint32_t node_rank, const char *text);
/* A node will not come: the wait ends with this. Once the run goes on without it that node is lost. */
void rendezvous_give_up(struct rendezvous *rendezvous, uint32_t node_rank, const char *why);

/* Starts the agents, where there is a starter, and turns the loop until min_nodes are there (and then a moment
 * longer for up to max_nodes). Who is missing is told as a warning every few seconds; at the limit TY_ESTART
 * names them, with what was heard of each, as TY_EINTERRUPTED does. Then the nodes try which of their addresses
 * connect them all. */
int rendezvous_wait(struct rendezvous *rendezvous, ty_error *err);

/* The nodes that are there now, by rank: the caller's. Node names are unique. */
int rendezvous_cluster(struct rendezvous *rendezvous, struct cluster **cluster, ty_error *err);
/* The node that does not join, since it is this machine. */
bool rendezvous_is_local(const struct rendezvous *rendezvous, const char *node_name);
/* The node has joined again, or would have where its rank is none any more, and nothing is left of its agent
 * that was lost, nor of that agent's workers. */
bool rendezvous_is_swept(const struct rendezvous *rendezvous, const char *node_name);
/* `changed` is called from the loop when a node has joined, left, or was given up. */
void rendezvous_listen(struct rendezvous *rendezvous, void (*changed)(void *context), void *context);
/* Where a node is reached by the others; NULL: not known. */
const char *rendezvous_address_of(const struct rendezvous *rendezvous, const char *node_name);
/* The network interface with that address; "" when it is not known. */
const char *rendezvous_interface_of(const struct rendezvous *rendezvous, const char *node_name);
/* The network that was found to connect the nodes, "10.0.0.0/24"; "" when none was. */
const char *rendezvous_network(const struct rendezvous *rendezvous);
/* A line for each network that was tried, that one first; "" when none was. */
const char *rendezvous_table(const struct rendezvous *rendezvous);

/* Who has what is not free of the nodes' devices, as they said when they came: "; node b: run a of root has
 * held ..". */
void rendezvous_list_holders(const struct rendezvous *rendezvous, struct buffer *out);

/* What an agent that is adrift has told; NULL: there is none, or it has been sent away. */
const Wire__Adrift *rendezvous_adrift(const struct rendezvous *rendezvous, const char *node_name);
/* An agent of this machine is still there that a controller before this one had started, or it is not proven
 * that nothing is left of it. */
bool rendezvous_has_left(const struct rendezvous *rendezvous);
/* Agents that are adrift end what they run, and come again where they joined; so do any that come later. When
 * one of them was last counted as alive, by clock_boot; 0: none was there. */
nanoseconds rendezvous_send_away(struct rendezvous *rendezvous);

/* Starts the agent of a node for a run, whose channel is then the caller's. TY_ENODE: it is not there. */
int rendezvous_take(struct rendezvous *rendezvous, const char *node_name, const Wire__Start *start,
                    struct channel **channel, ty_error *err);
/* The same of an agent that is adrift, of this machine as well. */
int rendezvous_adopt(struct rendezvous *rendezvous, const char *node_name, const Wire__Start *start,
                     struct channel **channel, ty_error *err);
/* After a clean Bye: the node waits for another start, or the end. Or the channel is NULL, since it was lost:
 * the node may join again; `why` is what was heard of it last. */
void rendezvous_give_back(struct rendezvous *rendezvous, const char *node_name, struct channel *channel,
                          const char *why);
/* The node is given up: told so, if it hears that, and not waited for. Takes over the channel. */
void rendezvous_dismiss(struct rendezvous *rendezvous, const char *node_name, struct channel *channel,
                        const char *why);

#endif
