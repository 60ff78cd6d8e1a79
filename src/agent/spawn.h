/* Starting one process, fast and completely: everything that it is to have is set before its first instruction.
 *
 * The child shares this process's memory until it executes (clone with CLONE_VM and CLONE_VFORK), so that the
 * cost does not grow with the size of the parent; it makes system calls only. It gets a session or a process
 * group of its own, dies with the thread that started it (parent-death signal), and has default signals, an
 * empty signal mask, and no descriptor but the given ones. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <sched.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/error.h"
#include "checkpoint/copy.h"

enum { SPAWN_FDS = 5, SPAWN_PID_SIZE = 12 };

struct spawn {
    const char *path; /* executed as it is; see spawn_find */
    char *const *argv;
    char *const *envp;
    const char *directory;       /* NULL: this process's */
    int fds[SPAWN_FDS];          /* fds[i] becomes descriptor i of the child; -1: it has none */
    bool session;                /* it leads one, and not a group of this process's: its share of the machine is
                                    its own where the scheduler groups by sessions */
    const cpu_set_t *cpus;       /* NULL: this process's */
    const struct rlimit *nofile; /* NULL: this process's */
    bool terminal;               /* fds[0] is one: it controls the child, which leads a session then */
    char *pid_text; /* SPAWN_PID_SIZE bytes inside envp where the pid is written before it executes, or NULL */
};

/* Starts the process: 0 with its pid, or TY_ESTART (-errno when the system had no process or memory left for
 * it) with a line that says what could not be done; then no process is left. A text file without "#!" is run
 * by /bin/sh, as execvp does. All other descriptors must be close-on-exec. */
int spawn_start(const struct spawn *spawn, pid_t *pid, ty_error *err);

/* Starts this very program for work that the caller's loop must not wait for, with these words, standard input
 * and output (-1: /dev/null) and no standard error. As spawn_start; after a failure `*pid` is 0. */
int spawn_own(char *const *argv, int input, int output, pid_t *pid, ty_error *err);

/* From now on this process, where it becomes ready to run, waits for its turn (SCHED_BATCH) and interrupts
 * nobody: a worker that has sent it something goes on. What it starts has the policy from before. Another
 * policy than the usual one (chrt) stays as it is, as all do where the system refuses the change. */
void spawn_give_way(void);

/* The path that execvp would execute for `name`, looked up in `search` (a PATH, NULL: the default one),
 * whose relative parts begin at `directory`. The caller frees. NULL with TY_ESTART. */
char *spawn_find(const char *name, const char *search, const char *directory, ty_error *err);

/* Why a program could not be executed, and what would run it: a script needs its interpreter or a mode, a file
 * of the working directory its "./", and a directory is no program. Looks at the file only once it was
 * refused. */

/* `path` was refused with `error` (an errno); relative ones begin at `directory` (NULL: this process's).
 * TY_ESTART. */
int program_refuse(const char *path, const char *directory, int error, ty_error *err);

/* It runs the script that is its first argument ("/usr/bin/python3.11"). */
bool program_is_interpreter(const char *name);

/* Where a program is looked for, by its path or in `search`, and from where. */
struct program_whereabouts {
    const char *search, *directory;
    bool script; /* it need not be executable, and is not searched for */
};
/* The size and the sum of a program's bytes, as far as they are looked at; no sum of one that cannot be read.
 * TY_ESTART as when it could not be executed. */
int program_look(const struct program_whereabouts *place, const char *name, struct digest *digest,
                 ty_error *err);

/* `name` is in none of the entries of `search`. TY_ESTART. */
int program_refuse_unfound(const char *name, const char *search, const char *directory, ty_error *err);

#endif
