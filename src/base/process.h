/* What the kernel tells of processes, most of it in /proc: the one place that knows the forms of its files.
 * What is read may be past by the time that it is used: a process that must not be mistaken is held first
 * (base/kernel.h) and read again. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

struct process {
    pid_t pid, parent, group, session;
    char state;        /* the letter as in ps, 'T' for stopped */
    bool ending;       /* it exits, or dumps its core */
    int threads;       /* also of one whose main thread has ended before them, whose state is 'Z' */
    int end_signal;    /* that tells its parent of its end; 0: none, as for what the parent calls apart */
    uint64_t started;  /* in the kernel's ticks since the boot, as process_clock */
    uint64_t resident; /* pages in memory */
    uint64_t ticks;    /* processor time that it, and children that it waited for, have used */
};

/* One process. Never waits for it. False, and all is 0, when there is none (or its stat cannot be read). */
bool process_read(pid_t pid, struct process *process);
/* The text of a stat file, of a process or of a thread. */
bool process_parse(const char *stat, struct process *process);

/* The next process of an open /proc, 0 behind the last. */
pid_t process_next(DIR *proc);

/* Whether this process has children, reaped ones excepted. */
bool process_has_children(void);
/* The first `max` children of a process, those of its main thread, as the kernel lists them, oldest first: how
 * many, or -1 where the kernel has no such list, or there is no such process. */
int process_children(pid_t pid, pid_t *pids, size_t max);

/* Whether its environment, as it was when it was executed, has this entry ("NAME=VALUE"). May wait for its
 * memory. */
bool process_carries(pid_t pid, const char *entry);
/* The beginning of its command line, its words apart by a space each, "?" for what no terminal shows; nothing
 * where that cannot be read. May wait for its memory. */
void process_words(pid_t pid, struct buffer *out);
/* Whether it has a handler for the signal; whether it ignores the signal. */
bool process_catches(pid_t pid, int signal_number);
bool process_ignores(pid_t pid, int signal_number);
/* Whether it was sent SIGKILL: it goes as soon as it gets a turn. */
bool process_is_killed(pid_t pid);
/* The user that it runs for (the real one); false when that is not told. */
bool process_user(pid_t pid, uid_t *user);
/* Whether the process at the other end of a local socket, as it was when it connected or began to listen, is of
 * this user or of root. Who it is: a pid of 0 is in another space of process numbers. Either may be NULL. */
bool process_is_trusted(int socket, pid_t *pid, uid_t *user);
/* Whether its main thread waits for a child to end, and for nothing else. */
bool process_waits_for_child(pid_t pid);

/* The name of the program that it executes, without the directory; false when that is not told. */
enum { PROCESS_PROGRAM = 64 };
bool process_program(pid_t pid, char name[PROCESS_PROGRAM]);

/* Now, in the kernel's ticks since the boot. */
uint64_t process_clock(void);

/* The group of the hierarchy with this controller ("": version 2) in the text of a cgroup file, lines as
 * "4:cpu,cpuacct:/user.slice". False, and "/", when there is none. */
bool process_cgroup(const char *text, const char *controller, char *group, size_t size);

#endif
