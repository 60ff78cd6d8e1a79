/* The agent: one process per node. Starts, watches and ends that node's workers; speaks frames with the
 * controller.
 *
 * It serves one run after another: waits for a Start on its channel, serves that run (node_run.h), and, when
 * it is kept, waits for the next. Of a run nothing is left in it then but the zygote (template/template.h).
 * While it waits it does nothing, and ends as soon as its channel closes or the process that started it is
 * gone. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/adrift.h"
#include "wire/channel.h"
#include "wire/trainyard.pb-c.h"

/* The descriptors that an agent begins with, beside the standard ones. */
enum {
    AGENT_CHANNEL_FD = 3,
    AGENT_COPY_FD = 4 /* the socket to the copy of the driver */
};

/* Runs the agent until its end on this stream socket to the controller; the process's exit status. `copy`:
 * the child that workers are forked from (engine/local.h), 0 without. Used by `trainyard agent`. */
int agent_main(int channel_fd, pid_t copy);

/* -- an agent that came to the controller over the network, and has a frame of its own (engine/join_node.h) */

struct template;

struct agent_process {
    struct rlimit nofile; /* of workers */
    struct template *template;
};

/* Sets up this process as an agent's: its own session, no signals of others, no standard input; descriptors
 * do not go to workers. */
bool agent_process_open(struct agent_process *process);
void agent_process_close(struct agent_process *process); /* fine when it was not opened */

struct agent_service {
    struct transport *transport; /* the controller's end has sent `start` over it */
    int parent_fd;               /* a pidfd of who keeps it, -1: nobody; borrowed */
    int lease_fd;                /* of its devices, taken over; -1 */
    /* Claims these devices, and no others, from now on. `*held`, while it is -1, receives the lease. */
    int (*claim)(void *context, Wire__Claim *const *claims, size_t n, int *held, ty_error *err);
    void *context;
    const char *refusal; /* why it cannot serve the run; NULL */
    const char *warning; /* what the controller is to hear with its hello; NULL */
    const Wire__Start *start;
    nanoseconds heard;          /* when that came, wall */
    const struct way_back *way; /* to another controller where this one dies; NULL: there is none */
    bool lost;  /* set when its lease ran out, the connection broke, or the controller went without a goodbye */
    int status; /* set when the controller said goodbye: the run's exit status; or the node was taken away */
};

/* Kept: another Start, or goodbye, may come over the transport. Else it is empty. */
enum agent_end { AGENT_KEPT, AGENT_DONE, AGENT_FAILED };
enum agent_end agent_serve(struct agent_process *process, struct agent_service *asked);

#endif
