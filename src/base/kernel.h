/* System calls that kernels before 5.9 or the filter of a container may lack, each with what does instead; and
 * what is made in the same way everywhere: threads that take no signals, conditions, random digits. */
#ifndef BASE_KERNEL_H
#define BASE_KERNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* A file that only its descriptors name, in memory where that can be had; close-on-exec. `seal` it once it is
 * written: then nobody can change it, where the kernel can see to that. -1 with errno. */
int kernel_memory_file(const char *name);
int kernel_seal(int fd); /* 0 or -1 with errno */

/* Starts a thread in which no signal is handled: those are the program's, or its loop's. `thread` NULL: nobody
 * joins it. `stack` 0: as large as usual. 0, or -errno. */
int kernel_thread(pthread_t *thread, size_t stack, void *(*work)(void *context), void *context);

/* Makes a condition whose time-outs are times of clock_monotonic: to set the clock moves none of them. */
void kernel_condition(pthread_cond_t *condition);

/* `n` random bytes, at most 32, fit for secrets, as 2 n hexadecimal digits. 0, or -errno with "". */
int kernel_random_digits(char *text, size_t n);

/* Closes all descriptors from `first` on, or marks them close-on-exec. Safe between fork and exec. */
void kernel_close_from(int first, bool on_exec);

/* Calls `work(context)` in a process that has all in common with this one, memory and, with `descriptors`,
 * those (else it has none), but for its end, while the calling thread stands still: the child of vfork, with
 * a stack of its own. It gets no signals that the thread does not, and goes with the thread. waitpid and
 * SIGCHLD know nothing of it. How it ended, as of waitpid, or -errno. */
int kernel_call_apart(void (*work)(void *context), void *context, bool descriptors);
/* The calling thread shares its descriptors with no other any longer; false where the kernel does not let
 * it. */
bool kernel_part_descriptors(void);

/* A process that is held, so that its number means nobody else meanwhile: a pidfd, which the caller closes, or
 * -1 where there is none. Either goes, with the number, into the calls below. Without a pidfd a number that is
 * used again at that very moment is not noticed. */
int kernel_hold(pid_t pid);
int kernel_signal(int held, pid_t pid, int signal_number); /* 0 or -errno */
/* Waits for its end; false when it has not come within the limit. A child is not reaped. */
bool kernel_await(int held, pid_t pid, int limit_ms);
/* Reaps a child that is to end: waits for that, then kills it and waits for 2 s more. False when it has not
 * ended even then, stuck in the kernel: it is left behind, and whoever comes later does not wait for it.
 * `status` may be NULL. */
bool kernel_reap(int held, pid_t pid, int patience_ms, int *status);

#endif
