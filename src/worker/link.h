/* The worker's end of its socket to the agent, in the protocol of docs/worker-protocol.md: lines of text.
 *
 *   to the agent                          answer
 *   ready                                 -
 *   rendezvous                            -                         the communicator stands
 *   report METRICS                        -                         METRICS: a JSON object on one line
 *   checkpoint METRICS                    directory NUMBER PATH
 *   commit NUMBER FILES                   ok PATH                   FILES: a JSON list, []: the run lists them
 *   abort NUMBER TEXT                     ok
 *   failure SIZE\n<bytes>                 ok                         a JSON object with a "traceback"
 *   set KEY SIZE\n<bytes>                 ok
 *   get KEY                               value SIZE\n<bytes>, none
 *   wait KEY TIMEOUT_MS                   value SIZE\n<bytes>, timeout
 *   add KEY DELTA                         value SIZE\n<bytes>       the sum, decimal
 *   gather KEY TIMEOUT_MS SIZE\n<bytes>   value SIZE\n<bytes>, timeout IDSET; pieces: u32 little-endian size,
 *                                         bytes
 *   reported COUNT TIMEOUT_MS             ok, timeout IDSET         every rank has made so many reports
 *   checkpoints [now]                     value SIZE\n<bytes>       else once all reports were seen to
 *   heartbeat                             -
 *   preemption                            value SIZE\n<bytes>, none  JSON: whose machine is taken, and when
 *   open                                  -                         with a socket in SCM_RIGHTS: another
 *                                         channel
 *
 * Any request may be answered "error TEXT" or "failed TEXT", an unknown or malformed line always is, and the
 * channel goes on. One request at a time on a channel. */
#ifndef WORKER_LINK_H
#define WORKER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

/* Lengths of time that the user may set, read by workers and by agents. */
#define WORKER_COLLECTIVE_VARIABLE "TRAINYARD_COLLECTIVE_TIMEOUT_S"
#define TEMPLATE_LIMIT_VARIABLE "TRAINYARD_TEMPLATE_LIMIT"

/* Variables that an agent sets for its workers, beside those that docs/design.md 5.3 names. */
#define WORKER_FD_VARIABLE "TRAINYARD_FD"              /* descriptor of the socket */
#define WORKER_PID_VARIABLE "TRAINYARD_PID"            /* pid of the worker itself; others open a channel */
#define WORKER_TOKEN_VARIABLE "TRAINYARD_TOKEN"        /* marks every process of the run; no secret */
#define WORKER_PATH_VARIABLE "TRAINYARD_RUN_PATH"      /* the run's directory */
#define WORKER_PAYLOAD_VARIABLE "TRAINYARD_PAYLOAD_FD" /* descriptor of the launch's payload; absent without */
#define WORKER_CHECKPOINT_VARIABLE "TRAINYARD_CHECKPOINT" /* last committed checkpoint; absent without */
#define WORKER_LOSS_VARIABLE \
    "TRAINYARD_CHECKPOINT_LOSS"                     /* "continue": one may be lost; absent: that is an error */
#define WORKER_BACKEND_VARIABLE "TRAINYARD_BACKEND" /* gloo or nccl; absent: by default */
#define WORKER_ADDRESS_VARIABLE "TRAINYARD_ADDRESS" /* of this node, for peers; absent: loopback */
#define WORKER_FUNCTION_VARIABLE "TRAINYARD_FUNCTION" /* see worker/driver.h; absent without */

/* All that a run sets under our own names for each worker, for an array: no user gives them, and what an outer
 * run set is not for the workers of an inner one. */
#define WORKER_VARIABLES                                                                                    \
    "TRAINYARD_RUN", "TRAINYARD_ATTEMPT", "TRAINYARD_DEVICES", "TRAINYARD_DEVICE_IDS", "TRAINYARD_PORT",    \
        WORKER_FD_VARIABLE, WORKER_PID_VARIABLE, WORKER_TOKEN_VARIABLE, WORKER_PATH_VARIABLE,               \
        WORKER_PAYLOAD_VARIABLE, WORKER_CHECKPOINT_VARIABLE, WORKER_LOSS_VARIABLE, WORKER_BACKEND_VARIABLE, \
        WORKER_ADDRESS_VARIABLE

/* A directory in memory for files that libraries of message passing make and, when they are killed, leave:
 * whatever needs it makes it. The agent removes it with the attempt, the controller where the agent died.
 * `token` is that of the variable. (files.c) */
enum { WORKER_FILES_SIZE = 128 };
void worker_files_path(const char *token, char path[WORKER_FILES_SIZE]);
void worker_files_remove(const char *token); /* one that is not there is fine */

/* A mark there: the rank has begun with MPI, whose other ranks count on it until it has taken its leave. Who
 * says that it has begun makes the directory too. */
int worker_files_mark(const char *token, uint32_t rank, bool begun);
bool worker_files_is_marked(const char *token, uint32_t rank);

enum {
    WORKER_QUEUE_MAX = 1 << 20,
    WORKER_LINE_MAX = 1 << 20,
    WORKER_VALUE_MAX = 1 << 20,
    WORKER_KEY_MAX = 255
};

struct link; /* opaque */

/* The link of this process from its environment; opens a channel of its own when this is not the worker itself.
 * TY_EUNSUPPORTED outside a run; a variable that is wrong is TY_EUSAGE and named. */
int link_open(struct link **link, ty_error *err);
int link_open_own(struct link **link, ty_error *err); /* a channel of its own in any case, for another thread */
void link_close(struct link *link);                   /* what is queued and not flushed is lost; NULL is fine */
/* Instead, in a child that the link's process forked: closes the child's copy of the channel. The memory is
 * left alone, since another thread may have been at work on it at that moment. NULL is fine. */
void link_abandon(struct link *link);
bool link_is_worker(const struct link *link); /* false in a child of the worker */

/* A line without an answer, newline included: sent when the socket takes it, else queued; waits only above
 * WORKER_QUEUE_MAX. TY_ECOMM when the agent is gone, and ever after. */
int link_post(struct link *link, const void *line, size_t size, ty_error *err);
int link_flush(struct link *link, ty_error *err); /* waits until the socket has taken all that is queued */

/* Sends a line, newline and the bytes behind it included, after what is queued, and waits for its answer.
 * `answer` (cleared first) receives the line without its newline; `value` (cleared first, may be NULL) the
 * bytes behind a "value". */
int link_request(struct link *link, const void *line, size_t size, struct buffer *answer, struct buffer *value,
                 ty_error *err);

/* TY_ETIMEOUT when the answer has not begun by then, negative: no limit; the link can only be closed then. */
int link_request_within(struct link *link, const void *line, size_t size, int64_t timeout_ms,
                        struct buffer *answer, struct buffer *value, ty_error *err);

#endif
