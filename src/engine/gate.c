/* Visitors in the order in which they came: accepted, shaking hands, let in or turned away. Nobody is waited
 * for: each has a limit, and the oldest makes way where there are too many. What a visitor says once it is in
 * is its owner's business. */
#include "engine/gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"

enum { BACKLOG = 1024 };

/* -- visitors */

/* The one place where a visitor ends, whichever way: out of the list, then what it still has. Whoever took its
 * channel or its transport has left nothing there. */
void gate_forget(struct visitor *visitor) {
    struct gate *gate = visitor->gate;
    loop_watch_stop(gate->loop, &visitor->watch);
    loop_timer_stop(gate->loop, &visitor->limit);
    *(visitor->older != NULL ? &visitor->older->newer : &gate->oldest) = visitor->newer;
    *(visitor->newer != NULL ? &visitor->newer->older : &gate->newest) = visitor->older;
    gate->n_visitors--;
    channel_destroy(visitor->channel);
    transport_close(&visitor->transport);
    free(visitor);
}

void gate_turn_away(struct visitor *visitor, const char *why) {
    struct gate *gate = visitor->gate;
    if (gate->turned_away != NULL) gate->turned_away(gate->context, visitor, why);
    gate_forget(visitor);
}

static void on_late(void *context) {
    gate_turn_away(context, "it did not prove in time that it has the key, or did not say what it is");
}

static void let_in(struct visitor *visitor) {
    struct gate *gate = visitor->gate;
    loop_watch_stop(gate->loop, &visitor->watch);
    if (visitor->transport.tls != NULL) visitor->node_rank = tls_node_rank(visitor->transport.tls);
    gate->let_in(gate->context, visitor);
}

static void on_ready(void *context, unsigned events) {
    (void)events;
    struct visitor *visitor = context;
    bool writable;
    ty_error err = {0};
    int result = tls_shake_hands(visitor->transport.tls, &writable, &err);
    if (result < 0)
        gate_turn_away(visitor, err.message);
    else if (result > 0)
        let_in(visitor);
    else
        (void)loop_watch_start(visitor->gate->loop, &visitor->watch, visitor->transport.fd,
                               writable ? LOOP_WRITABLE : LOOP_READABLE);
}

/* The oldest makes way: it has had the longest time to prove something, which takes a moment for one that
 * can. */
static void receive(void *context, int fd) {
    struct gate *gate = context;
    if (gate->n_visitors == gate->most) gate_turn_away(gate->oldest, "too many others wait");
    struct visitor *visitor = calloc(1, sizeof *visitor);
    if (visitor == NULL) {
        (void)close(fd);
        return;
    }
    *visitor = (struct visitor){.gate = gate,
                                .transport = TRANSPORT_PLAIN(fd),
                                .watch = {.callback = on_ready, .context = visitor},
                                .limit = {.callback = on_late, .context = visitor},
                                .older = gate->newest};
    *(gate->newest != NULL ? &gate->newest->newer : &gate->oldest) = visitor;
    gate->newest = visitor;
    gate->n_visitors++;
    address_prepare(fd);
    address_of_peer(fd, visitor->address);
    address_of_socket(fd, visitor->own_address);
    ty_error err = {0};
    (void)loop_timer_start(gate->loop, &visitor->limit, gate->limit);
    if (gate->tls == NULL && address_is_mine(fd))
        let_in(visitor);
    else if (gate->tls == NULL)
        gate_turn_away(visitor, "without a key only processes of this user are let in");
    else if (tls_accept(gate->tls, fd, &visitor->transport.tls, &err) < 0 ||
             loop_watch_start(gate->loop, &visitor->watch, fd, LOOP_READABLE) < 0)
        gate_turn_away(visitor, err.code < 0 ? err.message : "out of memory");
}

/* Or nobody could come any more. */
static bool make_room(void *context) {
    struct gate *gate = context;
    if (gate->oldest == NULL) return false;
    gate_turn_away(gate->oldest, "no descriptor is left");
    return true;
}

/* -- listening */

int gate_open(struct gate *gate, const struct run_key *key, ty_error *err) {
    return key->text[0] == '\0' ? 0 : tls_server_create(key, &gate->tls, err);
}

/* Each family has a socket of its own (IPV6_V6ONLY), so that both can be bound to one port, whichever way
 * net.ipv6.bindv6only is set. SO_REUSEADDR is for a port that a user chose, whose last connections the kernel
 * still remembers; it would also take one from whoever has bound it and does not listen yet. */
static int add_listener(struct gate *gate, const struct address *address, bool chosen) {
    if (gate->n_listeners == GATE_LISTENERS_MAX) return 0;
    int one = 1;
    CLEANUP_FD int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    if (chosen) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->socket.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&address->socket, address->size) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    struct loop_listener *listener = &gate->listeners[gate->n_listeners];
    *listener = (struct loop_listener){.connected = receive, .make_room = make_room, .context = gate};
    int result = loop_listener_start(gate->loop, listener, fd);
    if (result < 0) return result;
    descriptors_withhold(fd);
    gate->n_listeners++;
    return address_port_of_socket(TAKE_FD(fd));
}

int gate_listen(struct gate *gate, const struct address *address) {
    return add_listener(gate, address, true);
}

/* The port that the kernel chose for IPv6 may be another's in IPv4, on which nobody need listen yet: visitors
 * of that one would come here. It is drawn again then. */
int gate_listen_anywhere(struct gate *gate) {
    enum { DRAWS = 8 };
    struct address_list list;
    int six = 0, four = -EADDRINUSE;
    for (int draws = 0; draws < DRAWS && four == -EADDRINUSE; draws++) {
        gate_stop_listening(gate);
        address_list_any(&list, 0);
        six = add_listener(gate, &list.items[1], false);
        if (six > 0) address_set_port(&list.items[0], (uint16_t)six);
        four = add_listener(gate, &list.items[0], false);
    }
    if (four == -EADDRINUSE) gate_stop_listening(gate);
    return four > 0 || four == -EADDRINUSE ? four : six; /* there may be one family alone */
}

void gate_stop_listening(struct gate *gate) {
    for (size_t i = 0; i < gate->n_listeners; i++) {
        loop_listener_stop(&gate->listeners[i]);
        descriptors_close(&gate->listeners[i].fd);
    }
    gate->n_listeners = 0;
}

void gate_close(struct gate *gate) {
    gate_stop_listening(gate);
    while (gate->oldest != NULL)
        gate_forget(gate->oldest);
    tls_server_destroy(TAKE(gate->tls));
}
