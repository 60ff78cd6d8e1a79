/* A port that is bound and never listened on, for programs that bind MASTER_PORT themselves (docs/design.md 4,
 * "Ports cannot collide"): the kernel gives it to nobody else, while a bind with SO_REUSEADDR, as rank 0's,
 * succeeds beside it. */
#ifndef AGENT_HELD_PORT_H
#define AGENT_HELD_PORT_H

#include "base/error.h"

struct held_port {
    int fd; /* close-on-exec; -1: none */
    unsigned port;
    const char *address; /* where workers of this machine reach it; static storage */
};

int held_port_open(struct held_port *held, ty_error *err);
void held_port_close(struct held_port *held); /* twice is fine */

#endif
