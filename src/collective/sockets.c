/* Connections that are made as messages ask for them, between ranks that share no memory. Nothing here waits:
 * what a connection does not take now is tried again by whoever moves the messages on (network.c), and guests
 * are heard in the same turns. */
#include "collective/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "collective/comm.h"

enum {
    SECRET_BYTES = 16,
    STRANGERS = 16, /* connections that say nothing, beside those of all ranks, before the oldest is closed */
    ALIVE_IDLE_S = 10, /* a machine that vanished is noticed after this, and ALIVE_PROBES of ALIVE_INTERVAL_S */
    ALIVE_INTERVAL_S = 5,
    ALIVE_PROBES = 4,
};

/* What a rank has sent may come after the news that it has gone. */
#define LATE (NS_PER_S)

/* Where a rank listens, and what those must know who connect to it. */
struct announcement {
    struct sockaddr_in6 address; /* or sockaddr_in */
    unsigned char secret[SECRET_BYTES];
};

/* The first bytes of a connection. */
struct hello {
    unsigned char secret[SECRET_BYTES];
    int32_t rank;
};

struct links {
    int out, in;        /* connections, to it and from it; -1: there is none */
    size_t greeted;     /* bytes of the hello that went out */
    nanoseconds broken; /* since when there can be no way to it; 0: there can */
    bool ended;         /* nothing more comes from it */
};

/* A connection that has not said yet who it is. */
struct guest {
    int fd;
    size_t heard; /* bytes of its hello */
    struct hello hello;
};

struct sockets {
    int rank, size, listener;
    nanoseconds rested;             /* the listener rests until then */
    struct announcement *announced; /* of all ranks */
    struct links *links;
    struct guest *guests;
    size_t n_guests;
};

/* What cannot be set is done without. TCP_USER_TIMEOUT is not for this: it also ends connections to those who
 * compute for long before they receive. */
static void prepare(int fd) {
    static const int on = 1, idle = ALIVE_IDLE_S, interval = ALIVE_INTERVAL_S, probes = ALIVE_PROBES;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    descriptors_withhold(fd);
}

static int open_listener(const char *address, struct announcement *own) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    if (getaddrinfo(address, "0", &hints, &found) != 0) return -1;
    int fd = -1;
    for (const struct addrinfo *one = found; one != NULL && fd < 0; one = one->ai_next) {
        socklen_t size = sizeof own->address;
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0 || (bind(fd, one->ai_addr, one->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
                       getsockname(fd, (struct sockaddr *)&own->address, &size) == 0))
            continue;
        (void)close(TAKE_FD(fd));
    }
    freeaddrinfo(found);
    return fd;
}

/* The address that was bound, with the port that the kernel chose, is gathered in its binary form, which is the
 * same in all ranks: they are of one build. */
static int listen_and_tell(struct sockets *sockets, const struct comm_config *config, ty_error *err) {
    struct announcement own = {0};
    sockets->listener = open_listener(config->address != NULL ? config->address : "127.0.0.1", &own);
    if (sockets->listener < 0 && config->address == NULL) /* a machine without IPv4 */
        sockets->listener = open_listener("::1", &own);
    if (sockets->listener < 0)
        return ty_fail(err, TY_ECOMM, "cannot listen at %s: %s",
                       config->address != NULL ? config->address : "127.0.0.1", strerror(errno));
    descriptors_withhold(sockets->listener);
    if (getrandom(own.secret, sizeof own.secret, 0) != sizeof own.secret)
        return ty_fail(err, TY_ECOMM, "the kernel has no random numbers: %s", strerror(errno));
    return comm_gather_alike(config, "sockets", &own, sizeof own, sockets->announced, err);
}

int sockets_create(const struct comm_config *config, struct sockets **sockets, ty_error *err) {
    struct sockets *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct sockets){.rank = config->rank, .size = config->size, .listener = -1};
    size_t n = (size_t)made->size;
    made->announced = calloc(n, sizeof *made->announced);
    made->links = calloc(n, sizeof *made->links);
    made->guests = calloc(n + STRANGERS, sizeof *made->guests);
    for (size_t i = 0; made->links != NULL && i < n; i++)
        made->links[i].out = made->links[i].in = -1;
    int rc = made->announced != NULL && made->links != NULL && made->guests != NULL
                 ? listen_and_tell(made, config, err)
                 : ty_fail_memory(err);
    if (rc < 0)
        sockets_destroy(made);
    else
        *sockets = made;
    return rc;
}

void sockets_destroy(struct sockets *sockets) {
    if (sockets == NULL) return;
    descriptors_close(&sockets->listener);
    for (int rank = 0; sockets->links != NULL && rank < sockets->size; rank++) {
        descriptors_close(&sockets->links[rank].out);
        descriptors_close(&sockets->links[rank].in);
    }
    for (size_t i = 0; i < sockets->n_guests; i++)
        descriptors_close(&sockets->guests[i].fd);
    free(sockets->announced);
    free(sockets->links);
    free(sockets->guests);
    free(sockets);
}

static void break_off(struct links *links) {
    descriptors_close(&links->out);
    if (links->broken == 0) links->broken = clock_monotonic();
}

static bool is_for_later(int error) {
    return error == EAGAIN || error == EINTR || error == ENOTCONN || error == EINPROGRESS;
}

/* A connection to the rank, which it may not have taken yet; false where there can be none, or none yet. Such a
 * connection carries nothing back: its end is the end of the rank. */
static bool reach(struct sockets *sockets, int rank) {
    struct links *links = &sockets->links[rank];
    const struct announcement *there = &sockets->announced[rank];
    if (links->broken != 0) return false;
    if (links->out < 0) {
        int family = there->address.sin6_family;
        links->out = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (links->out < 0) {
            break_off(links);
            return false;
        }
        prepare(links->out);
        socklen_t size = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        if (connect(links->out, (const struct sockaddr *)&there->address, size) < 0 && !is_for_later(errno)) {
            break_off(links);
            return false;
        }
    }
    char end;
    ssize_t n = recv(links->out, &end, 1, MSG_DONTWAIT);
    struct hello hello = {.rank = sockets->rank};
    memcpy(hello.secret, there->secret, SECRET_BYTES);
    if (n < 0 && is_for_later(errno) && links->greeted < sizeof hello) {
        n = send(links->out, (const char *)&hello + links->greeted, sizeof hello - links->greeted,
                 MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) links->greeted += (size_t)n;
        if (n > 0) return links->greeted == sizeof hello;
    }
    if (n >= 0 || !is_for_later(errno)) break_off(links);
    return links->out >= 0 && links->greeted == sizeof hello;
}

static size_t write_stream(void *context, int to, const void *bytes, size_t size) {
    struct sockets *sockets = context;
    if (!reach(sockets, to)) return 0;
    ssize_t n = send(sockets->links[to].out, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && !is_for_later(errno)) break_off(&sockets->links[to]);
    return n > 0 ? (size_t)n : 0;
}

/* Without a connection from the rank, one to it is made: that breaks when the rank is gone, which otherwise
 * nothing would tell. */
static size_t read_stream(void *context, int from, void *bytes, size_t size) {
    struct sockets *sockets = context;
    struct links *links = &sockets->links[from];
    if (links->in < 0) {
        if (!links->ended) (void)reach(sockets, from);
        return 0;
    }
    ssize_t n = recv(links->in, bytes, size, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !is_for_later(errno))) {
        descriptors_close(&links->in);
        links->ended = true;
    }
    return n > 0 ? (size_t)n : 0;
}

const struct message_streams socket_streams = {.write = write_stream, .read = read_stream};

/* Listens to a guest: true when it was seated, or sent away. */
static bool seat(struct sockets *sockets, struct guest *guest) {
    ssize_t n =
        recv(guest->fd, (char *)&guest->hello + guest->heard, sizeof guest->hello - guest->heard, MSG_DONTWAIT);
    if (n < 0 && is_for_later(errno)) return false;
    if (n > 0) guest->heard += (size_t)n;
    if (n > 0 && guest->heard < sizeof guest->hello) return false;
    const struct hello *hello = &guest->hello;
    bool is_known = n > 0 && hello->rank >= 0 && hello->rank < sockets->size && hello->rank != sockets->rank &&
                    memcmp(hello->secret, sockets->announced[sockets->rank].secret, SECRET_BYTES) == 0;
    struct links *links = is_known ? &sockets->links[hello->rank] : NULL;
    if (links != NULL && links->in < 0 && !links->ended) links->in = TAKE_FD(guest->fd);
    descriptors_close(&guest->fd);
    return true;
}

static void dismiss(struct sockets *sockets, size_t i) {
    descriptors_close(&sockets->guests[i].fd);
    sockets->n_guests--;
    memmove(&sockets->guests[i], &sockets->guests[i + 1], (sockets->n_guests - i) * sizeof *sockets->guests);
}

static bool rests(const struct sockets *sockets) {
    return clock_monotonic() < sockets->rested;
}

/* After an error other than EAGAIN, as where there are no descriptors left, the listener rests: it would stay
 * readable, and wake each poll at once. The oldest guest goes where strangers fill all places. */
void sockets_accept(struct sockets *sockets) {
    while (!rests(sockets)) {
        int fd = descriptors_accept(sockets->listener);
        if (fd < 0 && fd != -EAGAIN) sockets->rested = clock_monotonic() + DESCRIPTORS_REST;
        if (fd < 0) break;
        prepare(fd);
        if (sockets->n_guests == (size_t)sockets->size + STRANGERS) dismiss(sockets, 0);
        sockets->guests[sockets->n_guests++] = (struct guest){.fd = fd};
    }
    for (size_t i = 0; i < sockets->n_guests;)
        if (seat(sockets, &sockets->guests[i]))
            dismiss(sockets, i);
        else
            i++;
}

/* Who receives from a rank, and has no connection from it yet, waits for LATE after it was seen to be gone: it
 * may have sent all and left in good order. */
bool sockets_has_left(const struct sockets *sockets, int rank, bool sending) {
    const struct links *links = &sockets->links[rank];
    if (links->ended || (sending && links->broken != 0)) return true;
    return links->in < 0 && links->broken != 0 && clock_monotonic() - links->broken > LATE;
}

/* Of a rank for which nothing waits nothing is polled: what it sends meanwhile would wake each poll at once. */
size_t sockets_polled(const struct sockets *sockets, const struct messages *messages, struct pollfd *polled) {
    size_t n = 0;
    polled[n++] = (struct pollfd){.fd = rests(sockets) ? -1 : sockets->listener, .events = POLLIN};
    for (size_t i = 0; i < sockets->n_guests; i++)
        polled[n++] = (struct pollfd){.fd = sockets->guests[i].fd, .events = POLLIN};
    for (int rank = 0; rank < sockets->size; rank++) {
        const struct ty_request *request = messages_waiting_for(messages, rank);
        const struct links *links = &sockets->links[rank];
        if (request == NULL) continue;
        bool writes = request->call.operation == COMM_SEND || links->greeted < sizeof(struct hello);
        if (links->out >= 0)
            polled[n++] = (struct pollfd){.fd = links->out, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
        if (links->in >= 0) polled[n++] = (struct pollfd){.fd = links->in, .events = POLLIN};
    }
    return n;
}
