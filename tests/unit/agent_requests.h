/* A worker that makes each request of docs/worker-protocol.md, and its controller. */
#ifndef UNIT_AGENT_REQUESTS_H
#define UNIT_AGENT_REQUESTS_H

#include "agent_controller.h"

/* How that worker ends. Beside the first it has written to its standard error what it was told. */
enum { REQUESTS_WELL = 0, REQUESTS_REFUSED = 90, REQUESTS_CUT = 91, REQUESTS_WRONG = 92 };

int requests_make(void); /* in the worker */

/* Launches one and answers what reaches the controller, until it is gone or the channel is closed. */
void requests_serve(struct controller *c);
/* Fails unless all that the worker was promised has reached the controller. */
void requests_expect_all(const struct controller *c);

#endif
