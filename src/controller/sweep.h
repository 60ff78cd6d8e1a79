/* What an agent that died could not do: end every process that still carries the run's token. */
#ifndef CONTROLLER_SWEEP_H
#define CONTROLLER_SWEEP_H

#include <stddef.h>

/* Kills processes of this user whose environment holds TRAINYARD_TOKEN=token until none is found, for at most two seconds, and reaps
 * those that became our children. The number of processes killed; -1 when some are left. */
int sweep_token(const char *token);

#endif
