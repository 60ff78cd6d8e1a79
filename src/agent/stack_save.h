/* The process that saves the stacks of one worker: `trainyard agent --stacks PID PATH RANK ATTEMPT
 * hung|other`.
 *
 * Appended to PATH, for the worker and the first other processes of its group: what /proc tells; Python's
 * own dump where the process registered one with us (python/trainyard/stacks.py), which works while the
 * interpreter lock is held; frames by gdb, or eu-stack, where installed. A part that is there for another
 * rank than the hung one is left out when Python told enough. Each step has a limit. */
#ifndef AGENT_STACK_SAVE_H
#define AGENT_STACK_SAVE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/buffer.h"

/* The signal that makes a Python worker write its stacks to the file in memory of this name. */
#define STACK_SIGNAL (SIGRTMIN + 3)
#define STACK_FILE_NAME "trainyard-stacks"

/* Exit status. argv[0] is the word before PID. */
int stack_save_main(int argc, char **argv);

/* -- stack_facts.c: what /proc tells about where a process stands. To read another's /proc can wait for that
 * process: nothing here belongs into the agent's own loop. */

/* Lines on the process and each of its threads (64 at most): state, where it waits in the kernel, its system
 * call and kernel stack where they may be read. */
void stack_facts(pid_t pid, struct buffer *out);

/* Members of the process group, its leader first, `max` at most; how many there are in pids. */
size_t stack_facts_group(pid_t group, pid_t *pids, size_t max);

/* -- stack_text.c: the few lines of a saved stack that a person wants to see first. Pure. */

/* What begins a part of a stack file; the rest of the line is for people. */
#define STACK_PART_FACTS "== process"
#define STACK_PART_PYTHON "== python"
#define STACK_PART_NATIVE "== native"

/* From the text of a stack file: the innermost lines of the thread that runs the training, 6 at most.
 * Python's where there are some, else frames of C, else what the kernel tells of the first thread. Control
 * characters show as '?'. */
void stack_text_frames(const char *text, size_t size, struct buffer *out);

#endif
