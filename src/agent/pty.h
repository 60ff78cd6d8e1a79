/* The terminal of one worker (--pty, --debug): a pseudo terminal, of which the worker has the slave as standard
 * input, output and error, and as the controlling terminal of its session. Its lines end with LF alone, so that
 * logs are as they are without one.
 *
 * Somebody may attach: a socket for each such worker, RUN/attach/rank-N, for the run's user alone. A client
 * gets the bytes of the output as they come, from what stood there last, and sends packets (SOCK_SEQPACKET)
 * whose first byte is an attach_kind. One at a time; one that does not take what comes is let go. */
#ifndef AGENT_PTY_H
#define AGENT_PTY_H

#include <stdbool.h>

#include "agent/logs.h"
#include "agent/outbox.h"
#include "loop/loop.h"

/* ATTACH_INPUT: bytes that were typed. ATTACH_SIZE: rows and columns, two uint16_t. */
enum attach_kind { ATTACH_INPUT, ATTACH_SIZE };
enum { ATTACH_PACKET = 4 << 10 };

struct pty_socket; /* opaque */

struct pty { /* zero-initialised: the worker has none */
    struct outbox *outbox;
    struct logs *logs;
    uint32_t rank;
    void (*attached)(void *context, struct buffer *shown);
    void *context;
    char *directory;           /* owned: where the socket lies */
    struct pty_socket *socket; /* it is being made */
    int slave_fd;  /* held open, so that a worker that closes its own does not hang up the terminal; -1 */
    int master_fd; /* our own descriptor of it, to write; -1 */
    int client_fd;
    struct loop_listener listen; /* its descriptor: -1 */
    struct loop_watch client, master;
    struct buffer typed; /* for the worker: it does not take it yet */
    struct buffer shown; /* for the client */
};

/* Makes one of that size; both ends are close-on-exec. */
int pty_make(unsigned rows, unsigned columns, int *master_fd, int *slave_fd, ty_error *err);
void pty_resize(int fd, unsigned rows, unsigned columns);

struct pty_config {
    struct outbox *outbox;
    uint32_t rank;
    int master_fd, slave_fd; /* duplicated */
    struct logs *logs;       /* make the socket, and remove it */
    const char *run_path;    /* borrowed during the call */
    void (*attached)(void *context,
                     struct buffer *shown); /* a client is new: appends what it is to see first */
    void *context;
};

/* Begins to serve; who attaches can, once the storage has made the socket. Where it cannot, that is told. */
int pty_start(struct pty *pty, const struct pty_config *config, ty_error *err);
void pty_show(struct pty *pty, const void *bytes, size_t size); /* the worker wrote that */
void pty_hang_up(struct pty *pty); /* the worker's processes are gone: the output ends when it is read */
void pty_end(struct pty *pty);     /* the worker is gone; twice is fine */

/* Connects to the socket of a rank, for the client: a descriptor, -errno. */
int pty_connect(const char *run_path, uint32_t rank);

#endif
