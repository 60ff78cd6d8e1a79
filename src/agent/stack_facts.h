/* What /proc tells about where a process stands. Reading another's /proc can wait for that process: nothing here belongs
 * into the agent's own loop. */
#ifndef AGENT_STACK_FACTS_H
#define AGENT_STACK_FACTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"

/* Lines on the process and each of its threads (64 at most): state, where it waits in the kernel, its system call and
 * kernel stack where they may be read. */
void stack_facts(pid_t pid, struct buffer *out);

/* Its words, on one line. May wait for the process's memory. */
void stack_facts_words(pid_t pid, struct buffer *out);

/* Members of the process group, its leader first, `max` at most; how many there are in pids. */
size_t stack_facts_group(pid_t group, pid_t *pids, size_t max);

#endif
