/* Engine ssh: agents on hosts that the user named, started by the user's own ssh. */
#ifndef ENGINE_SSH_H
#define ENGINE_SSH_H

#include "engine/engine.h"

extern const struct engine engine_ssh;

/* Checks the words of a user who gave hosts: nothing speaks of other machines otherwise. */
int ssh_check(const struct engine_options *options, ty_error *err);

#endif
