/* The engine of this machine, and where its agents come from: a process that rests behind an earlier run (the
 * pool), a new one, or one that was made with a copy of the driver. All end with the process that started them,
 * which has the other ends of their channels. */
#ifndef ENGINE_LOCAL_H
#define ENGINE_LOCAL_H

#include <stdbool.h>

#include "engine/engine.h"

extern const struct engine engine_local;

/* Agents that rest between the runs of one process: alive, idle, and fit for any node. */

enum { POOL_MAX = 64 };

/* A digest of what an agent has of this process, and no run tells it: whose it is, its limits, its cores, where
 * it is, which devices it sees. The program may change all that between two runs. */
uint64_t pool_inheritance(void);

/* An agent that lives, executes the file at `command`, and has inherited this; the caller's. False when there
 * is none; those that are not fit are dropped on the way. */
bool pool_take(const char *command, uint64_t inheritance, struct engine_handle *handle);
void pool_put(struct engine_handle *handle);  /* takes over its descriptors, and clears it */
void pool_drop(struct engine_handle *handle); /* ends the agent, waits for it, and clears the handle */
void pool_close(void);                        /* ends all that rest */

/* A copy of this process, for an agent to fork workers from (start_method "fork").
 *
 * This process forks once for the agent, and that forks the copy before it executes the agent's program: the
 * copy is the agent's child, and is watched, ended and reaped as a template (agent/template/template.h). The
 * agent serves one run, the next one started here for which `copied` is asked. At most one waits. */

/* 1 in this process, which must have one thread. 0 in the copy: `*control_fd` is its socket to the agent; it
 * leads a process group of the agent's session, ends with the agent, and has nothing left of agents that this
 * process knows. */
int copy_make(int *control_fd, ty_error *err);
/* The agent that waits, the caller's; false when none does. */
bool copy_take(struct engine_handle *handle);
/* Ends the agent that still waits, and the copy with it. */
void copy_drop(void);

#endif
