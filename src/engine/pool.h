/* Agents that rest between the runs of one process: alive, idle, and fit for any node. */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include <stdbool.h>

#include "engine/engine.h"

enum { POOL_MAX = 64 };

/* An agent that lives and executes the file at `command`; the caller's. False when there is none; those that
 * are not fit are dropped on the way. */
bool pool_take(const char *command, struct engine_handle *handle);
void pool_put(struct engine_handle *handle);  /* takes over its descriptors, and clears it */
void pool_drop(struct engine_handle *handle); /* ends the agent, waits for it, and clears the handle */
void pool_forget(void);                       /* in a child that was forked: what rests is its parent's */
void pool_close(void);                        /* ends all that rest */

#endif
