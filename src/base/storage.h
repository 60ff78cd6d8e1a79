/* What may take long on the storage of a run: one thread does it, in the order in which it came, so that the
 * loop goes on meanwhile, also when the storage hangs. What follows from it is done on the loop, by
 * storage_take. */
#ifndef BASE_STORAGE_H
#define BASE_STORAGE_H

#include <stdbool.h>

#include "base/duration.h"
#include "base/error.h"

/* Embedded in what it is about, made by the poster, who lets go of it. */
struct storage_job {
    struct storage_job *next;
    void (*work)(struct storage_job *job); /* in the thread: knows nothing but the job, logs nothing */
    void (*done)(struct storage_job *job); /* on the loop, after it; NULL: nothing follows */
    /* Frees it: after `done`, or in the thread when the run did not wait for it. */
    void (*release)(struct storage_job *job);
    const char *what; /* "publishing", for messages; static */
    const char *path; /* and of what; the job's */
    bool lengthy;     /* it may well take long: that is no sign of storage that hangs */
    /* A thread in a call on storage that hangs keeps its process, even from SIGKILL. A job that is done
     * apart is the work of a process that shares all with this one but its end, where such a one may be
     * started: if it hangs it keeps the memory of this process, and the lock of the run, but neither its end
     * nor its other descriptors. No wait for a child sees it; a list of processes does. `bare`: it needs no
     * descriptor, and has none, so that whatever ends this process leaves none open. */
    bool apart, bare;
    /* One of many: the process that does one apart does those that follow as well, and stays for a moment to
     * see whether more come. */
    bool series;
    /* In the thread, in place of what `work` had still to do: a file was cut short under its mapping (SIGBUS).
     * Only where work is done apart; NULL: that ends the process. */
    void (*cut)(struct storage_job *job);
};

struct storage; /* opaque */

/* A copy of the descriptor `lock` stays open as long as the thread may work, so that nobody else takes the run
 * over while something that hung may still come to an end; -1: none. */
int storage_open(int lock, struct storage **out, ty_error *err);
/* Waits for what is under way, as long as storage_patience says; what hangs is told, and left to its thread.
 * NULL is fine. */
void storage_close(struct storage *storage, nanoseconds limit);
/* How long to wait in the end: `limit`, but 2 s at least where it was not yet told that the storage hangs, so
 * that no haste loses what is only on its way. */
nanoseconds storage_patience(struct storage *storage, nanoseconds limit);

/* The thread begins with the first. Where none can be started the work is done at once, here. */
void storage_post(struct storage *storage, struct storage_job *job);

/* Where it is known that the storage does not answer no job begins: a thread that is in a call on it when the
 * process ends keeps the process, even from SIGKILL. What waits then counts as what hangs. What is still held
 * when all is closed is never begun. */
void storage_hold(struct storage *storage, bool held);

int storage_fd(const struct storage *storage);    /* readable when something is done */
bool storage_busy(const struct storage *storage); /* something is posted and not taken */
bool storage_hangs(struct storage *storage);      /* at something that nobody waits for any longer */
bool storage_slow(struct storage *storage);       /* at something of which this was told */
nanoseconds storage_age(struct storage *storage); /* how long it is at it, -1 when at nothing */
void storage_take(struct storage *storage);

/* Posts a job, and waits for it and what is before it. True: it is done, and stays until the next storage_take.
 * False: it was not within `limit`, which is told with the path, or it is known that the storage does not
 * answer: the job is let go of. */
bool storage_do(struct storage *storage, struct storage_job *job, nanoseconds limit);
/* Waits until all is done and taken. False: it was not within `limit`, which is told with the path; from then
 * on nobody waits for that job again. */
bool storage_wait(struct storage *storage, nanoseconds limit);
/* Tells, once a job, of one that takes longer than `limit`. */
void storage_tell_slow(struct storage *storage, nanoseconds limit);

/* One job, which is waited for here: it is told when it takes longer than `slow`, and left behind at `limit`
 * (-ETIMEDOUT); `done` is called when it was in time. The job is let go of in any case. */
int storage_try(struct storage_job *job, nanoseconds slow, nanoseconds limit, ty_error *err);

#endif
