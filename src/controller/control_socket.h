/* Where the controller of a run of several machines can be asked, by its own user on its own machine: an
 * abstract Unix socket named by the run, which goes with it. Each side looks who the other is. A question and
 * its answer:
 *
 *     look LENGTH PERIOD RANKS       (ns, ns, "0-2,5")
 *
 *     node RANKS NAME                of each node that answered,
 *     rank 3;OUTERMOST;... 12        what its agent saw (agent/stack_save.h), and
 *     silent RANKS NAME              of each that did not in time
 *
 * in packets of any size, the answer to their end. One is asked at a time: who connects asks within
 * CONTROL_PATIENCE. */
#ifndef CONTROLLER_CONTROL_SOCKET_H
#define CONTROLLER_CONTROL_SOCKET_H

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/idset.h"

/* How long the controller waits for agents behind the length of the looks. */
#define CONTROL_PATIENCE (5 * NS_PER_S)

/* Asks where the ranks stand; a descriptor for control_socket_answer. -ECONNREFUSED where the run of this id
 * has no controller here, -EBUSY while another asks, -ETIMEDOUT where it does not listen within
 * CONTROL_PATIENCE, or -errno. */
int control_socket_ask(const char *run_id, nanoseconds length, nanoseconds period, const struct idset *ranks);
/* Appends the answer, closes. `length` as asked; -ETIMEDOUT when none came. */
int control_socket_answer(int question, nanoseconds length, struct buffer *out);

#endif
