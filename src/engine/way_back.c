/* The way of an agent back to a controller that may follow: one attempt to connect after another, each a
 * connection and the proof of the key, with a pause between two. It ends with a channel, or when it is told to;
 * for how long it is worth trying is decided in agent/adrift.c. */
#include "engine/join_node.h"

#include <errno.h>

#include "wire/channel.h"
#include "wire/tls.h"

#define RETRY_PAUSE (200 * NS_PER_MS)
#define ATTEMPT_LIMIT (5 * NS_PER_S)

static void try_again(void *context);

static void drop_attempt(struct way_back_home *home) {
    loop_watch_stop(home->loop, &home->watch);
    transport_close(&home->transport);
    home->transport = TRANSPORT_PLAIN(-1);
}

/* `loop` says whether the agent is on its way; without it nothing runs, and there is nothing to end. */
static void end(void *context) {
    struct way_back_home *home = context;
    if (home->loop == NULL) return;
    drop_attempt(home);
    loop_timer_stop(home->loop, &home->retry);
    loop_timer_stop(home->loop, &home->late);
    home->loop = NULL;
}

/* A host that drops packets refuses nothing, and connect(2) then takes minutes: an attempt has a limit. */
static void on_late(void *context) {
    struct way_back_home *home = context;
    drop_attempt(home);
    try_again(home);
}

/* Not at once again: a port that nobody listens on refuses within microseconds. */
static void fail_attempt(struct way_back_home *home) {
    drop_attempt(home);
    loop_timer_stop(home->loop, &home->late);
    (void)loop_timer_start(home->loop, &home->retry, RETRY_PAUSE);
}

static void arrive(struct way_back_home *home) {
    struct transport transport = home->transport;
    loop_watch_stop(home->loop, &home->watch);
    home->transport = TRANSPORT_PLAIN(-1);
    end(home);
    home->there(home->owner, &transport);
}

static void shake_hands(void *context, unsigned events) {
    (void)events;
    struct way_back_home *home = context;
    bool writable = false;
    int result = tls_shake_hands(home->transport.tls, &writable, NULL);
    if (result == 0)
        result = loop_watch_start(home->loop, &home->watch, home->transport.fd,
                                  writable ? LOOP_WRITABLE : LOOP_READABLE);
    if (result > 0)
        arrive(home);
    else if (result < 0)
        fail_attempt(home);
}

static void on_connected(void *context, unsigned events) {
    (void)events;
    struct way_back_home *home = context;
    int fd = home->transport.fd, code = 0;
    socklen_t size = sizeof code;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    loop_watch_stop(home->loop, &home->watch);
    if (code != 0) {
        fail_attempt(home);
    } else if (home->key->text[0] == '\0') { /* then it is of this machine */
        arrive(home);
    } else if (tls_connect(home->key, home->node_rank, fd, &home->transport.tls, NULL) < 0) {
        fail_attempt(home);
    } else {
        home->watch.callback = shake_hands;
        shake_hands(home, 0);
    }
}

/* Without a key the controller is of this machine, and any user of it may have taken the port since: then who
 * listens is asked of the kernel, before anything is said. */
static int connect_to(struct way_back_home *home) {
    const struct address *address = &home->address;
    (void)loop_timer_start(home->loop, &home->late, ATTEMPT_LIMIT);
    if (home->key->text[0] == '\0' && !address_is_served_by_me(address)) return -ECONNREFUSED;
    int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    home->transport = TRANSPORT_PLAIN(fd);
    address_prepare(fd);
    home->watch = (struct loop_watch){.callback = on_connected, .context = home};
    if (connect(fd, (const struct sockaddr *)&address->socket, address->size) < 0 && errno != EINPROGRESS)
        return -errno;
    return loop_watch_start(home->loop, &home->watch, fd, LOOP_WRITABLE);
}

static void try_again(void *context) {
    struct way_back_home *home = context;
    int result = connect_to(home);
    if (result < 0) fail_attempt(home);
}

static int begin(void *context, struct loop *loop, void (*there)(void *owner, struct transport *transport),
                 void *owner) {
    struct way_back_home *home = context;
    home->loop = loop;
    home->there = there;
    home->owner = owner;
    home->transport = TRANSPORT_PLAIN(-1);
    home->retry = (struct loop_timer){.callback = try_again, .context = home};
    home->late = (struct loop_timer){.callback = on_late, .context = home};
    return loop_timer_start(loop, &home->retry, 0);
}

bool way_back_note(struct way_back_home *home, int fd, const Wire__Join *join, const struct run_key *key,
                   uint32_t node_rank) {
    *home = (struct way_back_home){.key = key, .node_rank = node_rank};
    home->address.size = sizeof home->address.socket;
    if (join == NULL || getpeername(fd, (struct sockaddr *)&home->address.socket, &home->address.size) < 0)
        return false;
    home->way = (struct way_back){.join = join, .begin = begin, .end = end, .context = home};
    return true;
}
