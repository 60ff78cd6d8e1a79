/* One run as an agent serves it.
 *
 * Order of things: hello; launch -> each worker spawned, a few a turn (started); its lines relayed, its messages forwarded (ready,
 * reports, store); or the template is asked for each; its end seen by SIGCHLD (exited); its pipes drained, its process group killed (gone); when all are gone and
 * the attempt is over, the sweep: the agent is a subreaper, so that no child left (waitid: ECHILD) proves that no
 * descendant is left; others are killed and counted. Then the lease is dropped, and bye. When the channel closes before that, workers
 * are stopped at once (TERM, grace, KILL) and swept. */
#ifndef AGENT_SERVE_H
#define AGENT_SERVE_H

#include <sys/resource.h>

#include "agent/template.h"
#include "wire/trainyard.pb-c.h"

struct service {
    int channel_fd; /* stream socket to the controller */
    int parent_fd;  /* pidfd of the controller, -1: its end is only seen by the channel; borrowed */
    int lease_fd;   /* kept open during the run, so that its lease holds; taken over; -1 without */
    const struct rlimit *nofile; /* of workers */
    const Wire__Start *start;
    struct template *template; /* borrowed */
};

/* SERVED_KEPT: the channel is open, another run may come over it. Else it is closed; badly: the controller was lost, or something
 * of the run could not be ended. */
enum served { SERVED_KEPT, SERVED, SERVED_BADLY };

enum served serve_run(const struct service *service);

#endif
