/* What a ty_worker holds: its place in the run, read once from the environment, and its link to the agent. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include <sys/types.h>
#include <trainyard/collective.h>
#include <trainyard/worker.h>

#include "base/buffer.h"
#include "worker/link.h"

struct ty_worker {
    int rank, world_size, local_rank, local_world_size, node_rank, attempt;
    char *run_name, *run_path, *checkpoint; /* owned; no checkpoint: NULL */
    uint64_t checkpoint_number;             /* of the report that it came with; 0: of an earlier attempt */
    int *devices;                           /* owned */
    size_t n_devices;
    int64_t heartbeat;     /* when the last one was sent, ns; 0: never */
    pid_t pid;             /* of the process that the link belongs to */
    struct link *link;     /* reach it through worker_link */
    struct buffer line;    /* the message in the making; kept for its memory */
    struct buffer answer;  /* the last answer */
    ty_comm *comm;         /* NULL until first asked for */
    ty_error comm_failure; /* code not 0: the ranks did not find each other, and will not a second time */
};

/* Fills `worker` from the environment, but for its link. TY_EUSAGE names the variable that is missing or
 * wrong. */
int worker_read_environment(struct ty_worker *worker, ty_error *err);
void worker_done(struct ty_worker *worker);

/* In a process that was forked to make workers of another run: the next ty_worker_self reads the environment
 * anew. What callers were given stays as it is. */
void worker_forget(void);

/* The link of this process: after a fork a child gets a channel of its own. */
int worker_link(struct ty_worker *worker, struct link **link, ty_error *err);

/* The checkpoint that is the latest from now on; `path` is taken over. */
void worker_set_checkpoint(struct ty_worker *worker, char *path, uint64_t number);

/* What an answer "error TEXT" (TY_EUSAGE) or "failed TEXT" (TY_EWORKER) means, with that text; 0 for any
 * other. */
int worker_check_answer(const char *answer, ty_error *err);

/* Sends worker->line as a request; the answer is in worker->answer, and is none of those that say why not. */
int worker_request(struct ty_worker *worker, struct buffer *value, ty_error *err);

/* Every rank of the attempt gives a piece and gets all, as comm_exchange says; timeout_ms -1: no limit. */
int worker_gather(struct ty_worker *worker, const char *key, const void *value, size_t size, int64_t timeout_ms,
                  struct buffer *all, ty_error *err);

/* A time-out of the public interface: without limit when it is negative, or over 30,000 years. */
int64_t worker_timeout_ms(double timeout_s);
/* TY_ETIMEOUT: the ranks of an answer "timeout IDSET", of which `missing` is the set, did not come. */
int worker_fail_missing(const char *missing, ty_error *err);

/* TY_EPROTOCOL: this answer is none that its request can have. */
int worker_fail_answer(const char *answer, ty_error *err);

/* True once ty_init was called in this process. */
bool worker_is_initialised(void);

#endif
