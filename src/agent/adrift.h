/* An agent that is adrift: its controller has died, and its workers go on until another one adopts them, or the
 * time that the run gives for that is over (Launch.outlive).
 *
 * From the launch on it keeps what that one would need: reports that may not be on record (outbox.h), what
 * channels wait for and what workers gave to the store (worker_channel.h). Where that does not do, as where a
 * worker was told to end, workers end as ever.
 *
 * Attempts must not overlap. Whoever joined over the network looks for a controller where it found the one
 * before. An end of the connection that is no fault is that of the controller's process: its workers are gone
 * when the time is over, counted from when that one last had counted them as alive, and a controller that
 * begins anew waits for as long where a node has not come back. After a fault it may be the network that went,
 * and the controller live: then their time is the lease that they have anyway (wire/channel.h). The agent of a
 * controller's own machine is found by the next one: it listens, from the launch on and whether it may be
 * adrift or not, at a name made of the run's directory and the node, so that nobody there means that nothing
 * is left of it. Any user may take that name, or knock there: each side asks the kernel whose the other end is,
 * and what is no proof is none. */
#ifndef AGENT_ADRIFT_H
#define AGENT_ADRIFT_H

#include "loop/loop.h"
#include "wire/channel.h"

struct node_run;

/* How an agent that joined comes to a controller again; `context` goes to both. */
struct way_back {
    const Wire__Join *join; /* what it said when it joined */
    /* From now on: `there` is called once, not from within, with a controller that has the key, whose transport
     * is the callee's. */
    int (*begin)(void *context, struct loop *loop, void (*there)(void *owner, struct transport *transport),
                 void *owner);
    void (*end)(void *context); /* twice is fine */
    void *context;
};

struct adrift { /* zero-initialised but for `door`, -1 */
    bool on;
    nanoseconds until; /* by clock_boot */
    struct loop_timer limit;
    /* To a controller that has not decided yet; NULL: none. At the door, one that has decided against it keeps
     * its channel until nothing is left of the attempt. */
    struct channel *channel;
    nanoseconds came_at; /* it, by the same clock; nothing was heard of that controller before */
    int door;            /* of the controller's own node */
    struct loop_listener knocked;
    bool turned_away; /* another user was, and it is told */
};

/* An attempt begins, or is over: what is to be kept. */
void adrift_prepare(struct node_run *run);
void adrift_forget(struct node_run *run);
/* Whether workers could go on without the controller, or, where they have ended by themselves, be adopted. */
bool adrift_is_possible(const struct node_run *run);
/* The controller is gone, which had last counted this node as alive at `proven` (channel_proven_at); `fault`:
 * or the network. False: workers cannot go on. Else node_run_lose follows unless another one adopts them. */
bool adrift_begin(struct node_run *run, nanoseconds proven, bool fault);
void adrift_end(struct node_run *run); /* looks for nobody any more; twice is fine */

/* -- where an agent on the controller's machine is found, while it has an attempt */

/* A socket that is connected to whoever listens there; negative errno: -ECONNREFUSED where nobody does. */
int adrift_connect(const char *run_path, const char *node_name);
/* Waits until nobody does: such an agent ends when it is alone, and its workers before it. False when that is
 * not so within the limit, of which nothing may be left: then `*pid` is the agent's and `*user` its user's; a
 * pid of 0: it is not known. */
bool adrift_await_end(const char *run_path, const char *node_name, nanoseconds limit, pid_t *pid, uid_t *user);

#endif
