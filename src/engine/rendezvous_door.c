/* The door of a rendezvous: listens, and lets in who proves that he has the key. A peer costs a descriptor and
 * the state of a handshake until then; there are at most RENDEZVOUS_PENDING_MAX of them, the oldest of which
 * makes way, and each has RENDEZVOUS_PROOF_LIMIT until its Join is here. Nothing is answered to one that has
 * not proven it. Without a key only loopback is listened on, and only processes of this user are let in. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/address.h"
#include "engine/rendezvous_internal.h"

enum { BACKLOG = 1024, ACCEPTS_A_TURN = 16 };

/* -- visitors */

static void forget_visitor(struct visitor *visitor) {
    struct door *door = &visitor->rendezvous->door;
    loop_watch_stop(visitor->rendezvous->config.loop, &visitor->watch);
    loop_timer_stop(visitor->rendezvous->config.loop, &visitor->limit);
    *(visitor->older != NULL ? &visitor->older->newer : &door->oldest) = visitor->newer;
    *(visitor->newer != NULL ? &visitor->newer->older : &door->newest) = visitor->older;
    door->n_visitors--;
    transport_close(&visitor->transport);
    free(visitor);
}

/* Once a second at most: whoever knocks does not fill the log. */
static void turn_away(struct visitor *visitor, const char *why) {
    struct rendezvous *rendezvous = visitor->rendezvous;
    nanoseconds now = clock_monotonic();
    if (rendezvous->door.told == 0 || now - rendezvous->door.told > NS_PER_S) {
        rendezvous->door.told = now;
        log_warning("join", "a peer at %s was turned away: %s", visitor->address, why);
    }
    channel_destroy(TAKE(visitor->channel));
    forget_visitor(visitor);
}

static void on_late(void *context) {
    turn_away(context, "it did not prove in time that it has the key, or did not say what it is");
}

static void on_join(void *context, const Wire__Message *message) {
    struct visitor *visitor = context;
    struct rendezvous *rendezvous = visitor->rendezvous;
    if (message->body_case != WIRE__MESSAGE__BODY_JOIN) {
        turn_away(visitor, "it did not begin with a join");
        return;
    }
    if (rendezvous->door.tls != NULL && message->join->node_rank != visitor->proven_rank) {
        turn_away(visitor, "it has proven that it is another node than it says");
        return;
    }
    rendezvous_enter(rendezvous, TAKE(visitor->channel), message->join, visitor);
    forget_visitor(visitor);
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)rank, (void)stream, (void)bytes, (void)size;
    turn_away(context, "it did not begin with a join");
}

static void on_closed(void *context, const ty_error *reason) {
    turn_away(context, reason->code != 0 ? reason->message : "it went before it said what it is");
}

static void let_in(struct visitor *visitor) {
    static const struct channel_events events = {.message = on_join, .output = on_output, .closed = on_closed};
    ty_error err = {0};
    struct rendezvous *rendezvous = visitor->rendezvous;
    loop_watch_stop(rendezvous->config.loop, &visitor->watch);
    if (visitor->transport.tls != NULL) visitor->proven_rank = tls_node_rank(visitor->transport.tls);
    if (channel_create_over(rendezvous->config.loop, &visitor->transport, &events, visitor, &visitor->channel,
                            &err) < 0)
        turn_away(visitor, err.message);
}

static void on_ready(void *context, unsigned events) {
    (void)events;
    struct visitor *visitor = context;
    bool writable;
    ty_error err = {0};
    int result = tls_shake_hands(visitor->transport.tls, &writable, &err);
    if (result < 0)
        turn_away(visitor, err.message);
    else if (result > 0)
        let_in(visitor);
    else
        (void)loop_watch_start(visitor->rendezvous->config.loop, &visitor->watch, visitor->transport.fd,
                               writable ? LOOP_WRITABLE : LOOP_READABLE);
}

static void begin(struct visitor *visitor) {
    struct rendezvous *rendezvous = visitor->rendezvous;
    ty_error err = {0};
    visitor->limit = (struct loop_timer){.callback = on_late, .context = visitor};
    (void)loop_timer_start(rendezvous->config.loop, &visitor->limit, RENDEZVOUS_PROOF_LIMIT);
    if (rendezvous->door.tls == NULL) {
        if (address_is_mine(visitor->transport.fd))
            let_in(visitor);
        else
            turn_away(visitor, "without a key only processes of this user are let in");
        return;
    }
    visitor->watch = (struct loop_watch){.callback = on_ready, .context = visitor};
    if (tls_accept(rendezvous->door.tls, visitor->transport.fd, &visitor->transport.tls, &err) < 0 ||
        loop_watch_start(rendezvous->config.loop, &visitor->watch, visitor->transport.fd, LOOP_READABLE) < 0)
        turn_away(visitor, err.code < 0 ? err.message : "out of memory");
}

static void receive(struct rendezvous *rendezvous, int fd) {
    struct door *door = &rendezvous->door;
    if (door->n_visitors == RENDEZVOUS_PENDING_MAX) turn_away(door->oldest, "too many others wait");
    struct visitor *visitor = calloc(1, sizeof *visitor);
    if (visitor == NULL) {
        (void)close(fd);
        return;
    }
    *visitor =
        (struct visitor){.rendezvous = rendezvous, .transport = TRANSPORT_PLAIN(fd), .older = door->newest};
    *(door->newest != NULL ? &door->newest->newer : &door->oldest) = visitor;
    door->newest = visitor;
    door->n_visitors++;
    descriptors_withhold(fd);
    address_prepare(fd);
    address_of_peer(fd, visitor->address);
    address_of_socket(fd, visitor->own_address);
    begin(visitor);
}

static void on_knock(void *context, unsigned events) {
    (void)events;
    struct listener *listener = context;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            receive(listener->rendezvous, fd);
        else if (errno == EMFILE || errno == ENFILE) { /* a visitor makes room, or nobody can come */
            if (listener->rendezvous->door.oldest == NULL) return;
            turn_away(listener->rendezvous->door.oldest, "no descriptor is left");
        } else if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

/* -- listening */

static int listen_on(struct rendezvous *rendezvous, const struct address *address, ty_error *err) {
    struct door *door = &rendezvous->door;
    if (door->n == ARRAY_SIZE(door->listeners)) return 0;
    int one = 1;
    CLEANUP_FD int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char text[64];
    address_format(address, text);
    if (fd < 0) return ty_fail(err, TY_ESTART, "cannot listen on %s: %s", text, strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->socket.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&address->socket, address->size) < 0 || listen(fd, BACKLOG) < 0) {
        bool foreign = errno == EADDRNOTAVAIL;
        return ty_fail(err, TY_ESTART, "cannot listen on %s: %s%s", text, strerror(errno),
                       foreign ? ": it must be an address of this machine, which is the node of rank 0" : "");
    }
    struct listener *listener = &door->listeners[door->n];
    *listener = (struct listener){.rendezvous = rendezvous, .fd = TAKE_FD(fd)};
    descriptors_withhold(listener->fd);
    listener->watch = (struct loop_watch){.callback = on_knock, .context = listener};
    door->n++;
    return loop_watch_start(rendezvous->config.loop, &listener->watch, listener->fd, LOOP_READABLE);
}

/* A name may stand for another address here than elsewhere, as a host's own name often does: with a key, all of
 * this machine's are listened on then. */
static int listen_on_all(struct rendezvous *rendezvous, const struct address_list *list, ty_error *err) {
    int result = 0;
    size_t before = rendezvous->door.n;
    for (size_t i = 0; i < list->n; i++) {
        result = listen_on(rendezvous, &list->items[i], err);
        bool other_family = result < 0 && list->n > 1; /* one without IPv6, or without IPv4 */
        if (result < 0 && !other_family) return result;
    }
    return rendezvous->door.n > before ? 0 : result;
}

static int check_key(const struct rendezvous *rendezvous, const struct address_list *list, const char *text,
                     ty_error *err) {
    if (rendezvous->key.text[0] != '\0') return 0;
    for (size_t i = 0; i < list->n; i++)
        if (!address_is_loopback(&list->items[i])) return address_fail_keyless(text, err);
    return 0;
}

/* For agents, when every address of this machine is listened on. */
static void list_own_addresses(struct rendezvous *rendezvous, uint16_t port) {
    struct ifaddrs *all = NULL;
    struct buffer *out = &rendezvous->door.addresses;
    if (getifaddrs(&all) < 0) return;
    for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct address address;
        char text[64];
        if (!address_of_interface(one, &address)) continue;
        address_set_port(&address, port);
        address_format(&address, text);
        buffer_printf(out, "%s%s", out->size > 0 ? "," : "", text);
    }
    freeifaddrs(all);
}

static int open_one(struct rendezvous *rendezvous, const char *text, ty_error *err) {
    struct address_list list = {0};
    struct address_name name;
    int result = address_parse(text, &name, err);
    if (result == 0) result = address_resolve(&name, &list, err);
    if (result == 0) result = check_key(rendezvous, &list, text, err);
    if (result < 0) return result;
    if (rendezvous->door.host[0] == '\0')
        (void)snprintf(rendezvous->door.host, sizeof name.host, "%s", name.host);
    if (!name.literal && rendezvous->key.text[0] != '\0') address_list_any(&list, name.port);
    if (name.port == 0 && list.n > 1) list.n = 1;
    result = listen_on_all(rendezvous, &list, err);
    if (result < 0) return result;
    struct buffer *out = &rendezvous->door.addresses;
    bool v6 = strchr(name.host, ':') != NULL;
    buffer_printf(out, "%s%s%s%s:%u", out->size > 0 ? "," : "", v6 ? "[" : "", name.host, v6 ? "]" : "",
                  address_port_of_socket(rendezvous->door.listeners[rendezvous->door.n - 1].fd));
    return 0;
}

static int open_everywhere(struct rendezvous *rendezvous, ty_error *err) {
    struct address_list list = {0};
    address_list_any(&list, 0);
    int result = check_key(rendezvous, &list, "every address", err);
    if (result == 0) result = listen_on(rendezvous, &list.items[0], err);
    if (result < 0) return result;
    uint16_t port = address_port_of_socket(rendezvous->door.listeners[0].fd);
    address_set_port(&list.items[1], port);
    (void)listen_on(rendezvous, &list.items[1], NULL); /* there may be no IPv6 */
    list_own_addresses(rendezvous, port);
    return 0;
}

int door_open(struct rendezvous *rendezvous, ty_error *err) {
    const char *listen = rendezvous->config.listen;
    int result = 0;
    if (rendezvous->key.text[0] != '\0')
        result = tls_server_create(&rendezvous->key, &rendezvous->door.tls, err);
    if (result == 0 && listen == NULL) result = open_everywhere(rendezvous, err);
    for (const char *at = listen; at != NULL && result == 0;) {
        char one[300];
        at = address_next(at, one, sizeof one);
        if (one[0] != '\0') result = open_one(rendezvous, one, err);
    }
    if (result == 0 && rendezvous->door.addresses.failed) return ty_fail_memory(err);
    return result;
}

void door_close(struct rendezvous *rendezvous) {
    struct door *door = &rendezvous->door;
    for (size_t i = 0; i < door->n; i++) {
        loop_watch_stop(rendezvous->config.loop, &door->listeners[i].watch);
        (void)close(door->listeners[i].fd);
    }
    door->n = 0;
    while (door->oldest != NULL) {
        channel_destroy(TAKE(door->oldest->channel));
        forget_visitor(door->oldest);
    }
    tls_server_destroy(TAKE(door->tls));
    buffer_done(&door->addresses);
}
