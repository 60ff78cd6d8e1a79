/* Where workers stand. A process for each of them finds it out: `trainyard agent --stacks PID RANK ATTEMPT
 * hung|other`, whose standard output is a file in memory, since it would be stuck in one on storage that hangs.
 *
 * Told are, for the worker and the first other processes of its group: what /proc tells; Python's
 * own dump where the process registered one with us (python/trainyard/stacks.py), which works while the
 * interpreter lock is held, else its lines as they are read from outside; frames by gdb, or eu-stack, where
 * installed. A part that is there for another
 * rank than the hung one is left out when Python told enough. Each step has a limit. */
#ifndef AGENT_STACK_SAVE_H
#define AGENT_STACK_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/idset.h"

/* The signal that makes a Python worker write its stacks to the file in memory of this name. */
#define STACK_SIGNAL (SIGRTMIN + 3)
#define STACK_FILE_NAME "trainyard-stacks"

/* Exit status. argv[0] is the word before PID. */
int stack_save_main(int argc, char **argv);
/* The same within this process; `rank` and `attempt` are for the heading. */
void stack_save(int fd, pid_t worker, const char *rank, const char *attempt, bool hung);
/* Appends what was found out in that file in memory, its first 8 MiB. */
void stack_found(int fd, struct buffer *out);

/* -- stack_python.c: Python's own dump, as its process writes it when it is asked. */

struct stack_python { /* zero-initialised but for pid */
    pid_t pid;
    int held; /* as kernel_hold says */
    int fd;   /* the file in memory */
    off_t from, seen;
    int quiet; /* looks since it grew */
};

/* False where the process registered none. */
bool stack_python_open(struct stack_python *python);
void stack_python_close(struct stack_python *python);
/* 0, or why the process cannot be asked: it is stopped, has ended, or has the signal for itself. */
int stack_python_ask(struct stack_python *python, ty_error *err);
/* Appends the dump once it has come and did not grow for `looks` calls of this: true. The memory of those
 * before is given back to the process. */
bool stack_python_take(struct stack_python *python, int looks, struct buffer *out);

/* -- stack_cpython.c: the lines of a Python that registered nothing, read from outside. */

struct stack_cpython { /* zero-initialised but for pid */
    pid_t pid;
    uint64_t runtime, code, string, bytes; /* addresses: of the interpreter's variables and types */
    const struct cpython_layout *layout;
};

/* False where the process is no CPython 3.11 to 3.13, or may not be looked into. */
bool stack_cpython_open(struct stack_cpython *python);
/* Appends its threads as faulthandler dumps them, the main one last. False, and nothing: they could not be
 * read. */
bool stack_cpython_read(const struct stack_cpython *python, struct buffer *out);

/* -- stack_facts.c: what /proc tells about where a process stands. To read another's /proc can wait for that
 * process: nothing here belongs into the agent's own loop. */

/* Lines on the process and each of its threads (64 at most): state, where it waits in the kernel, its system
 * call and kernel stack where they may be read. */
void stack_facts(pid_t pid, struct buffer *out);

/* "[sleeping];[in pipe_read]": where the main thread is, in the form of stack_text_folded; nothing when the
 * process has ended. */
void stack_facts_folded(pid_t pid, struct buffer *out);

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

/* Of such frames what processes that stand in one place have in common: no addresses, and of frames of C not
 * what was handed over, as pointers differ. */
void stack_text_place_key(const char *frames, struct buffer *out);

/* Of the text of one dump of Python's, the thread that runs the training, outermost frame first, on one line:
 * "<module> (train.py:9);f (train.py:3)". Nothing where there is none. */
void stack_text_folded(const char *text, size_t size, struct buffer *out);

/* "load data:3" of the line `File "/x/data", line 3 in load`, without folders; other lines as they are. */
void stack_text_place(const char *line, size_t size, struct buffer *out);

/* -- stack_sample.c: where processes stand, again and again. */

struct stack_sampled { /* zero-initialised but for rank and pid */
    int rank;
    pid_t pid;
    struct hash *counts; /* of lines of stack_text_folded, or of stack_facts_folded; owned */
    size_t n;            /* all of them */
    struct stack_python python;
    struct stack_cpython cpython;
    bool tells, asked, is_read; /* is_read: cpython */
};

/* Looks at all of them every `period` for `length`, at least once; Python's dump where the process registered
 * one, else its lines read from outside, else what the kernel says. One that ended, or does not answer, has
 * fewer samples. */
int stack_sample(struct stack_sampled *items, size_t n, nanoseconds length, nanoseconds period, ty_error *err);
void stack_sample_done(struct stack_sampled *items, size_t n);
/* A line for each rank and place, "rank 3;<module> (train.py:9);f (train.py:3) 12", and such lines counted
 * again: -EINVAL for one that is none, or of a rank that is not among the items. */
void stack_sample_folded(const struct stack_sampled *items, size_t n, struct buffer *out);
int stack_sample_unfold(struct stack_sampled *items, size_t n, char *line);

/* -- stack_groups.c: ranks that stand at the same place. */

struct stack_group {
    char *frames; /* owned */
    struct idset ranks;
    size_t n;
    int first;
    double at; /* seconds since the epoch, of the newest */
};

struct stack_groups { /* zero-initialised is empty */
    struct stack_group *items;
    size_t n;
    struct hash *places;
};

/* Takes the frames; NULL and want of memory are -ENOMEM. */
int stack_groups_add(struct stack_groups *groups, int rank, char *frames, double at);
/* The smallest first: whoever stands alone. */
void stack_groups_sort(struct stack_groups *groups);
void stack_groups_done(struct stack_groups *groups);
/* [{"ranks": "0-2,4", "n", "rank", "frames", "at"}] */
void stack_groups_json(const struct stack_groups *groups, struct buffer *out);

#endif
