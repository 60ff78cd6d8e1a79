/* The worker of the agent's tests: each mode is one way to behave. */
#ifndef TESTS_AGENT_WORKER_H
#define TESTS_AGENT_WORKER_H

#include <stdbool.h>

/* In a worker: asks for another channel, over this socket; false when its own is closed. */
bool agent_worker_open(int socket);

/* Its exit status; many modes never return. */
int agent_worker_run(const char *mode);

#endif
