/* The logs that an agent writes for a run: one of each rank's output and its own. A thread writes them
 * (base/storage.h), so that neither the output nor an order waits for the storage.
 *
 * What waits to be written is bounded: when that much does, workers wait in their writes, as long as the
 * storage is slow. Storage that hangs is told with the path after 5 s; from then on what finds no room is shown
 * but not logged, and where it is missing the log says how many bytes. */
#ifndef AGENT_LOGS_H
#define AGENT_LOGS_H

#include "base/buffer.h"
#include "base/storage.h"
#include "loop/loop.h"

struct log; /* opaque: one file */

struct logs { /* zero-initialised but for `loop`, the functions and `context` */
    struct loop *loop;
    void (*warn)(void *context, const char *text); /* for the user */
    void (*drained)(void *context);                /* there is room again */
    void (*stall)(void *context, bool stalled);    /* the storage has not answered for 1 s; it does again */
    /* Of ranks' logs, once they are `apart`: takes what goes to the controller's storage; logs_taken
     * answers. */
    void (*carry)(void *context, long rank, const struct buffer *bytes);
    void *context;
    struct storage *storage;
    struct log *first;
    bool apart;                               /* this machine's storage is not the controller's */
    struct log_batch *carried, **carried_end; /* on their way there, in order; the end is unset without any */
    size_t waiting;                           /* bytes that are not written yet */
    struct loop_watch watch;
    struct loop_timer slow, end;
    nanoseconds due; /* `slow` is, monotonic */
    bool stalled;
    bool told_removal;
    bool hurried;  /* nobody waits for room any more */
    bool given_up; /* nor for the end of what hangs */
    nanoseconds patience;
    int64_t limit; /* bytes of a rank's log (log_file.h), as of when it is opened; 0: any */
};

int logs_open(struct logs *logs, ty_error *err);
/* What hangs is left to its thread, the rest is written. A zeroed one is fine. */
void logs_close(struct logs *logs);

/* RUN_PATH/logs/rank-N.log, or, with a negative rank, the file `path` itself. Nothing is opened yet; the
 * directory `logs` is made when it is missing, the run's own never again: once it was removed, nothing of the
 * run may seem to be there. NULL: out of memory. */
struct log *log_open(struct logs *logs, const char *path, long rank);
void log_add(struct log *log, const char *bytes, size_t size); /* NULL is fine */
void log_close(struct log *log);                               /* behind what was added; NULL is fine */

/* The first batch that is on its way has been written by the controller, or not (its error, else ""). */
void logs_taken(struct logs *logs, const char *error);
/* There is no controller any more. */
void logs_lose(struct logs *logs);

/* Has the thread do something else on that storage, behind what was added. */
void logs_post(struct logs *logs, struct storage_job *job);

/* A call on that storage without which the loop cannot go on: the thread makes it, and the loop waits for 2 s
 * at most, once: from then on it is known that the storage hangs. */
struct errand {
    struct storage_job job;
    void (*act)(struct errand *errand); /* in the thread */
    const char *what;                   /* "opening", for messages; static */
    char *path;                         /* of the file, or of a place; copied */
    unsigned rank;                      /* of what is made in the place, or its attempt */
    int64_t from;                       /* where a text begins */
    int fd;                             /* what was opened, or -errno; who takes it leaves -1 */
    int64_t size;                       /* of the file */
    struct buffer text;                 /* that was read */
};

/* What came of it, until the loop's next turn; NULL where it is not known: it hangs, or there is no memory. */
struct errand *logs_do(struct logs *logs, struct errand wanted);
/* The same without a wait: nobody is told what came of it. */
void logs_leave_to(struct logs *logs, struct errand wanted);

/* For `act`: opens a file to add to it; opens one, and reads its last bytes, 1 MiB at most, from `from` on. */
void errand_append(struct errand *errand);
void errand_read(struct errand *errand);

bool logs_full(const struct logs *logs); /* it is time to read no more output */
void logs_hurry(struct logs *logs);      /* a run that is killed waits for no room */
/* True when all is written, or was waited for as long as `limit`, which counts from the first call; a shorter
 * one counts from when it comes. */
bool logs_finish(struct logs *logs, nanoseconds limit);

#endif
