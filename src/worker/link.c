/* The worker's end of the protocol in link.h.
 *
 * Messages of one process must not be torn apart by those of another that holds the same socket (a child asking
 * for a channel of its own). Linux passes a send of up to LINK_WHOLE bytes to a local socket whole or not at
 * all, so the shared socket carries nothing longer; who has more to say moves to a channel of its own first. */
#include "worker/link.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/duration.h"
#include "base/str.h"
#include "run/store.h"

enum { LINK_WHOLE = 16 << 10, LINK_READ = 64 << 10 };

struct link {
    int fd;
    dev_t device; /* which file the descriptor stands for */
    ino_t inode;
    bool own;          /* a channel of this process alone; closed with the link */
    bool worker;       /* this process is the worker itself */
    bool broken;       /* the agent is gone */
    struct buffer out; /* whole lines; the first `sent` bytes are on their way */
    size_t sent;
    struct buffer in;  /* received, not yet read */
    struct link *next; /* of those that a child abandoned */
};

/* Whatever has broken a link, it stays broken: half a message may have gone out, or half an answer come in, and
 * nothing tells where the next one begins. */
static int fail_gone(struct link *link, int error, ty_error *err) {
    link->broken = true;
    return ty_fail(err, TY_ECOMM, "the agent of this worker is gone%s%s", error != 0 ? ": " : "",
                   error != 0 ? strerror(error) : "");
}

static bool note_file(struct link *link) {
    struct stat status;
    if (fstat(link->fd, &status) < 0) return false;
    link->device = status.st_dev;
    link->inode = status.st_ino;
    return true;
}

/* A program may close what is not its own, and open a file that has the number then: nothing is said to that,
 * nor is it closed. */
static bool is_intact(const struct link *link) {
    struct stat status;
    return fstat(link->fd, &status) == 0 && status.st_dev == link->device && status.st_ino == link->inode;
}

/* Before anything is said. */
static int check(struct link *link, ty_error *err) {
    if (link->broken) return fail_gone(link, 0, err);
    if (is_intact(link)) return 0;
    link->broken = true;
    return ty_fail(
        err, TY_ECOMM,
        "the channel to the agent of this worker is closed: the program has closed its descriptor, %d",
        link->fd);
}

static int wait_for(struct link *link, short events, ty_error *err) {
    struct pollfd fd = {.fd = link->fd, .events = events};
    while (poll(&fd, 1, -1) < 0)
        if (errno != EINTR) return fail_gone(link, errno, err);
    return 0;
}

/* At a time-out the link is broken, as the answer is still to come and would be taken for the next one's. poll
 * counts in int: longer limits are waited for in several turns. */
static int await_answer(struct link *link, int64_t timeout_ms, ty_error *err) {
    struct pollfd fd = {.fd = link->fd, .events = POLLIN};
    nanoseconds begun = clock_monotonic();
    for (int64_t left = timeout_ms;; left = timeout_ms - (clock_monotonic() - begun) / NS_PER_MS) {
        int n = poll(&fd, 1, left < 0 ? 0 : left < INT_MAX ? (int)left : INT_MAX);
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return fail_gone(link, errno, err);
        if (n == 0 && left < INT_MAX) break;
    }
    link->broken = true;
    return ty_fail(err, TY_ETIMEOUT, "the agent did not answer in time");
}

/* How many bytes the socket took at once, 0 when it is full. The descriptor's own flags are left alone: on the
 * shared socket they are other processes' as well. */
static ssize_t send_some(struct link *link, const void *bytes, size_t size, ty_error *err) {
    for (;;) {
        ssize_t n = send(link->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) return n;
        if (errno == EAGAIN) return 0;
        if (errno != EINTR) return fail_gone(link, errno, err);
    }
}

static int send_all(struct link *link, const char *bytes, size_t size, ty_error *err) {
    while (size > 0) {
        ssize_t n = send_some(link, bytes, size, err);
        if (n < 0) return (int)n;
        if (n == 0 && wait_for(link, POLLOUT, err) < 0) return TY_ECOMM;
        bytes += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Sends of the queue what the socket takes now. */
static int drain(struct link *link, ty_error *err) {
    while (link->sent < link->out.size) {
        /* One send has whole lines, at most LINK_WHOLE bytes, or the rest of a line once begun. */
        const char *from = link->out.data + link->sent;
        size_t size = link->out.size - link->sent;
        if (size > LINK_WHOLE) {
            const char *end = memrchr(from, '\n', LINK_WHOLE);
            size = end != NULL ? (size_t)(end - from) + 1 : LINK_WHOLE;
        }
        ssize_t n = send_some(link, from, size, err);
        if (n < 0) return (int)n;
        if (n == 0) break;
        link->sent += (size_t)n;
    }
    if (link->sent == link->out.size) {
        buffer_clear(&link->out);
        link->sent = 0;
    } else if (link->sent > WORKER_QUEUE_MAX / 2) {
        buffer_consume(&link->out, link->sent);
        link->sent = 0;
    }
    return 0;
}

/* Until at most `limit` bytes are queued. */
static int drain_below(struct link *link, size_t limit, ty_error *err) {
    int rc = drain(link, err);
    while (rc == 0 && link->out.size - link->sent > limit) {
        rc = wait_for(link, POLLOUT, err);
        if (rc == 0) rc = drain(link, err);
    }
    return rc;
}

int link_flush(struct link *link, ty_error *err) {
    if (link->broken) return fail_gone(link, 0, err);
    int rc = link->out.size > 0 ? check(link, err) : 0;
    return rc < 0 ? rc : drain_below(link, 0, err);
}

/* Goes on over a channel of this process alone. What was queued goes the old way, and the agent reads it
 * first. */
static int move_to_own_channel(struct link *link, ty_error *err) {
    int rc = drain_below(link, 0, err);
    if (rc < 0) return rc;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return ty_fail(err, -errno, "cannot make a channel to the agent: %s", strerror(errno));
    static const char line[] = "open\n";
    ssize_t sent;
    do
        sent = descriptors_send(link->fd, line, sizeof line - 1, &ends[1], 1, 0);
    while (sent == -EAGAIN && (rc = wait_for(link, POLLOUT, err)) == 0);
    (void)close(ends[1]);
    if (sent <= 0 && rc == 0) rc = fail_gone(link, (int)-sent, err);
    if (rc < 0) {
        (void)close(ends[0]);
        return rc;
    }
    link->fd = ends[0];
    link->own = true;
    (void)note_file(link);
    return 0;
}

static int read_variable(const char *name, int64_t *number, ty_error *err) {
    const char *text = getenv(name);
    if (text == NULL) return ty_fail(err, TY_EUSAGE, "%s is not set, although " WORKER_FD_VARIABLE " is", name);
    if (str_to_int64(text, 0, INT32_MAX, number)) return 0;
    return ty_fail(err, TY_EUSAGE, "%s is \"%.64s\", but must be a number from 0 to %d", name, text, INT32_MAX);
}

/* The descriptor is looked at before anything is said over it: a program that closed all it did not know may
 * have a file of its own there by now. */
static int open_channel(bool own, struct link **link, ty_error *err) {
    if (getenv(WORKER_FD_VARIABLE) == NULL)
        return ty_fail(err, TY_EUNSUPPORTED,
                       "this process is no worker of a run (" WORKER_FD_VARIABLE
                       " is not set): start it with trainyard run or ty_fit");
    int64_t number, pid;
    int rc = read_variable(WORKER_FD_VARIABLE, &number, err);
    if (rc == 0) rc = read_variable(WORKER_PID_VARIABLE, &pid, err);
    if (rc < 0) return rc;
    int kind = 0, domain = 0;
    if (getsockopt((int)number, SOL_SOCKET, SO_TYPE, &kind, &(socklen_t){sizeof kind}) < 0 ||
        getsockopt((int)number, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){sizeof domain}) < 0 ||
        kind != SOCK_STREAM || domain != AF_UNIX)
        return ty_fail(err, TY_EUSAGE,
                       WORKER_FD_VARIABLE " is %" PRId64
                                          ", which is not the socket to the agent in this process "
                                          "(was it closed when the process was started?)",
                       number);
    struct link made = {.fd = (int)number, .worker = pid == getpid()};
    if (!note_file(&made)) return fail_gone(&made, errno, err);
    if (own || !made.worker) {
        rc = move_to_own_channel(&made, err);
        if (rc < 0) return rc;
    }
    struct link *result = malloc(sizeof *result);
    if (result == NULL) {
        if (made.own) (void)close(made.fd);
        return ty_fail_memory(err);
    }
    *result = made;
    *link = result;
    return 0;
}

int link_open(struct link **link, ty_error *err) {
    return open_channel(false, link, err);
}

int link_open_own(struct link **link, ty_error *err) {
    return open_channel(true, link, err);
}

void link_close(struct link *link) {
    if (link == NULL) return;
    if (link->own && is_intact(link)) (void)close(link->fd);
    buffer_done(&link->out);
    buffer_done(&link->in);
    free(link);
}

void link_abandon(struct link *link) {
    static struct link *abandoned; /* held, so that nobody takes it for lost */
    if (link == NULL) return;
    if (link->own && is_intact(link)) (void)close(link->fd);
    link->next = abandoned;
    abandoned = link;
}

bool link_is_worker(const struct link *link) {
    return link->worker;
}

static int make_room_for(struct link *link, size_t size, ty_error *err) {
    int rc = check(link, err);
    if (rc < 0 || size <= LINK_WHOLE || link->own) return rc;
    return move_to_own_channel(link, err);
}

int link_post(struct link *link, const void *line, size_t size, ty_error *err) {
    int rc = make_room_for(link, size, err);
    if (rc < 0) return rc;
    ssize_t sent = 0;
    if (link->out.size == 0) {
        sent = send_some(link, line, size, err);
        if (sent < 0) return (int)sent;
        if ((size_t)sent == size) return 0;
    }
    buffer_append(&link->out, (const char *)line + sent, size - (size_t)sent);
    if (link->out.failed) {
        link->out.failed = false; /* what was queued before is whole, and goes */
        link->broken |= sent > 0; /* half a line cannot be taken back */
        return ty_fail_memory(err);
    }
    return drain_below(link, WORKER_QUEUE_MAX, err);
}

/* Waits for bytes, at most `size`, and puts them behind what the buffer holds. */
static int receive(struct link *link, struct buffer *into, size_t size, ty_error *err) {
    char *to = buffer_reserve(into, size);
    if (to == NULL) return ty_fail_memory(err);
    for (;;) {
        ssize_t n = recv(link->fd, to, size, MSG_CMSG_CLOEXEC);
        if (n > 0) {
            into->size += (size_t)n;
            into->data[into->size] = '\0';
            return 0;
        }
        if (n == 0) return fail_gone(link, 0, err);
        if (errno == EAGAIN && wait_for(link, POLLIN, err) < 0) return TY_ECOMM;
        if (errno != EINTR && errno != EAGAIN) return fail_gone(link, errno, err);
    }
}

static int read_line(struct link *link, struct buffer *answer, ty_error *err) {
    const char *end;
    while (link->in.size == 0 || (end = memchr(link->in.data, '\n', link->in.size)) == NULL) {
        if (link->in.size > WORKER_LINE_MAX)
            return ty_fail(err, TY_EPROTOCOL, "the agent's answer is longer than %d bytes", WORKER_LINE_MAX);
        int rc = receive(link, &link->in, LINK_READ, err);
        if (rc < 0) return rc;
    }
    size_t size = (size_t)(end - link->in.data);
    buffer_append(answer, link->in.data, size);
    buffer_consume(&link->in, size + 1);
    return answer->failed ? ty_fail_memory(err) : 0;
}

/* What has come beyond the line is in `in`; the rest goes to `value` at once, so that a large one is in memory
 * once. */
static int read_value(struct link *link, const char *size_text, struct buffer *value, ty_error *err) {
    CLEANUP(buffer_done) struct buffer unwanted = {0};
    struct buffer *to = value != NULL ? value : &unwanted;
    int64_t size;
    if (!str_to_int64(size_text, 0, STORE_ANSWER_MAX, &size))
        return ty_fail(err, TY_EPROTOCOL, "the agent's answer \"value %.40s\" is not understood", size_text);
    size_t have = link->in.size < (size_t)size ? link->in.size : (size_t)size;
    if (buffer_reserve(to, (size_t)size) != NULL) buffer_append(to, link->in.data, have);
    buffer_consume(&link->in, have);
    int rc = to->failed ? ty_fail_memory(err) : 0;
    while (rc == 0 && to->size < (size_t)size)
        rc = receive(link, to, (size_t)size - to->size, err);
    return rc;
}

/* What is not read to its end, for want of memory say, would be taken for the answer to the next request. */
static int read_answer(struct link *link, struct buffer *answer, struct buffer *value, ty_error *err) {
    const char *rest;
    int rc = read_line(link, answer, err);
    if (rc == 0 && str_prefix(answer->data, "value ", &rest)) rc = read_value(link, rest, value, err);
    link->broken |= rc < 0;
    return rc;
}

int link_request(struct link *link, const void *line, size_t size, struct buffer *answer, struct buffer *value,
                 ty_error *err) {
    return link_request_within(link, line, size, -1, answer, value, err);
}

int link_request_within(struct link *link, const void *line, size_t size, int64_t timeout_ms,
                        struct buffer *answer, struct buffer *value, ty_error *err) {
    buffer_clear(answer);
    if (value != NULL) buffer_clear(value);
    int rc = make_room_for(link, size, err);
    if (rc == 0) rc = drain_below(link, 0, err);
    if (rc == 0) rc = send_all(link, line, size, err);
    if (rc == 0 && timeout_ms >= 0) rc = await_answer(link, timeout_ms, err);
    return rc == 0 ? read_answer(link, answer, value, err) : rc;
}
