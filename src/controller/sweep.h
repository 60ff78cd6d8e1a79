/* What an agent that died could not do: end every process of its node. */
#ifndef CONTROLLER_SWEEP_H
#define CONTROLLER_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/idset.h"

/* What tells the processes of a dead agent from others. Its orphans became children of this process, a
 * sub-reaper. */
struct sweep_scope {
    const char *token; /* in the environment of its workers, as TRAINYARD_TOKEN */
    uint64_t since;    /* sweep_clock before the first agent was started */
    const int *agents; /* pids of the agents that live */
    size_t n_agents;
    const int *sessions; /* that the dead agent and its workers led: orphans of these are its own */
    size_t n_sessions;
    /* This process starts nothing but agents: every other child that began after that is an orphan of the dead
     * one, even with an emptied environment in a session of its own. */
    bool alone;
};

/* The last moment at which a child of this process may have begun that is none of the run's, in the kernel's
 * ticks since the boot: now; 0 when there is no child. */
uint64_t sweep_clock(void);

/* Kills what belongs to the scope until nothing is found, for at most two seconds, and reaps those that became
 * our children. False when some are left, whose pids are then in `left`, as far as memory allows. */
bool sweep_node(const struct sweep_scope *scope, struct idset *left);

#endif
