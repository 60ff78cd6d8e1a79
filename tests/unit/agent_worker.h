/* The worker of the agent's tests: each mode is one way to behave. */
#ifndef TESTS_AGENT_WORKER_H
#define TESTS_AGENT_WORKER_H

/* Its exit status; many modes never return. */
int agent_worker_run(const char *mode);

#endif
