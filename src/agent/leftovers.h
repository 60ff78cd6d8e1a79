/* The processes beside a worker: what one that ended well left (jobs in the background, as an upload that goes
 * on), and which of a living one's hear a stop. */
#ifndef AGENT_LEFTOVERS_H
#define AGENT_LEFTOVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/outbox.h"
#include "base/duration.h"
#include "base/face.h"
#include "base/idset.h"

/* Helpers that end when their worker has, as those of Python's multiprocessing, are not worth a word. */
#define LEFTOVERS_SETTLE (100 * NS_PER_MS)

/* Adds the processes of the group that live. */
void leftovers_of_group(pid_t group, struct idset *pids);
/* "rank 3 ended and left 2 processes: python upload.py, sleep 100: they have 1 h to end", and without that time
 * how to give it to them. Of none nothing is said. */
void leftovers_tell(struct outbox *outbox, const char *who, const struct idset *pids, nanoseconds linger,
                    enum face face);

/* Which of a worker's processes are told to stop. A worker that handles the signal is told alone, so that what
 * it has started, as the loaders of its data, goes on working while it saves. A shell, or another process that
 * does no more than wait for a child, does not pass a signal on: the processes that it started are looked at in
 * its place, down to the first on each branch that handles the signal. */

/* The first `max` of them; how many. 0: the worker is a wrapper and nobody below it handles the signal, so that
 * the whole group may be told. A worker that is no wrapper is the one that is found, whether it handles the
 * signal or is to end by it. */
size_t listeners_find(pid_t worker, int signal_number, pid_t *pids, size_t max);
enum { LISTENERS_MAX = 64 }; /* more than any worker has */

/* True of a worker that was made to be stopped by SIGTERM and would die of SIGINT: who is found handles the
 * first and not the second. */
bool listeners_take_term_alone(pid_t worker);

#endif
