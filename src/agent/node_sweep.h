/* The proof of a clean end: after the workers of an attempt are gone, this process, which adopts the orphans
 * among their descendants, must have no child left but the template's processes. What is left is asked to
 * end, then killed, and counted. */
#ifndef AGENT_NODE_SWEEP_H
#define AGENT_NODE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/template/template.h"
#include "base/idset.h"
#include "loop/loop.h"

struct node_sweep {
    struct loop *loop;
    const struct template *template;          /* its two processes are no leftovers */
    void (*ended)(void *context, bool clean); /* never called from within a call of ours */
    void *context;
    bool running;
    bool killing;
    nanoseconds give_up; /* when, after killing began */
    struct idset found;  /* pids told to end */
    struct loop_timer timer;
    uint32_t leftovers; /* processes found, in all sweeps */
};

/* Begins; `grace` 0 kills at once. */
void node_sweep_start(struct node_sweep *sweep, nanoseconds grace);
void node_sweep_kill(struct node_sweep *sweep); /* no more grace */
/* Some child was reaped. */
void node_sweep_check(struct node_sweep *sweep);
void node_sweep_done(struct node_sweep *sweep);

#endif
