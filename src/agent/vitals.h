/* Signs of life of programs that tell their agent nothing: what they print, the processor time that they use,
 * and processes of theirs that come and go. */
#ifndef AGENT_VITALS_H
#define AGENT_VITALS_H

#include "agent/worker_process.h"

/* Reads those of all running workers that never said that they are up, in one look at /proc. A worker has shown
 * life when its output is not what it was, a process of its session came or went, or its session used a
 * hundredth of `interval`, the time since the last look, of processor time: `heard` of its speaker is then
 * `now`. */
void vitals_take(struct worker_process *workers, size_t n, nanoseconds interval, nanoseconds now);

#endif
