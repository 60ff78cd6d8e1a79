/* The process that saves the stacks of one worker: `trainyard agent --stacks PID PATH RANK ATTEMPT hung|other`.
 *
 * Appended to PATH, for the worker and the first other processes of its group: what /proc tells; Python's own dump where the process
 * registered one with us (python/trainyard/stacks.py), which works while the interpreter lock is held; frames by gdb, or eu-stack,
 * where installed. A part that is there for another rank than the hung one is left out when Python told enough. Each step has a limit. */
#ifndef AGENT_STACK_SAVE_H
#define AGENT_STACK_SAVE_H

/* The signal that makes a Python worker write its stacks to the file in memory of this name. */
#define STACK_SIGNAL (SIGRTMIN + 3)
#define STACK_FILE_NAME "trainyard-stacks"

/* Exit status. argv[0] is the word before PID. */
int stack_save_main(int argc, char **argv);

#endif
