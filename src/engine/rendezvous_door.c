/* The door of a rendezvous: where a run is to be joined, and what is heard there until a node has said what it
 * is. Without a key only loopback is listened on. Who is let in at all, and how many may wait, is the gate's
 * (gate.c); what becomes of a node that has said what it is, is rendezvous.c's. */
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/address.h"
#include "engine/rendezvous_internal.h"

#define TOLD_EACH (4 * NS_PER_S)

/* -- visitors, until their Join is here */

/* Whoever knocks does not fill the log, and a node with another key, which tries for some time, is told of
 * once. */
static void on_turned_away(void *context, const struct visitor *visitor, const char *why) {
    struct door *door = &((struct rendezvous *)context)->door;
    nanoseconds now = clock_monotonic();
    if (door->told != 0 && now - door->told <= TOLD_EACH) return;
    door->told = now;
    log_warning("join", "a peer at %s was turned away: %s", visitor->address, why);
}

static void on_join(void *context, const Wire__Message *message) {
    struct visitor *visitor = context;
    if (message->body_case != WIRE__MESSAGE__BODY_JOIN)
        gate_turn_away(visitor, "it did not begin with a join");
    else if (visitor->gate->tls != NULL && message->join->node_rank != visitor->node_rank)
        gate_turn_away(visitor, "it has proven that it is another node than it says");
    else {
        rendezvous_enter(visitor->gate->context, TAKE(visitor->channel), message->join, visitor);
        gate_forget(visitor);
    }
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)rank, (void)stream, (void)bytes, (void)size;
    gate_turn_away(context, "it did not begin with a join");
}

static void on_closed(void *context, const ty_error *reason) {
    gate_turn_away(context, reason->code != 0 ? reason->message : "it went before it said what it is");
}

static void on_let_in(void *context, struct visitor *visitor) {
    static const struct channel_events events = {.message = on_join, .output = on_output, .closed = on_closed};
    ty_error err = {0};
    (void)context;
    if (channel_create_over(visitor->gate->loop, &visitor->transport, &events, visitor, &visitor->channel,
                            &err) < 0)
        gate_turn_away(visitor, err.message);
}

/* -- listening */

/* How often an address that is in use is tried: what a dead controller left may be on its way out, a process of
 * its storage, on a busy machine. */
enum { DOOR_TRIES = 20, DOOR_PAUSE_MS = 100 };

/* The port, which the kernel may have chosen. `*taken`: somebody else has it. */
static int listen_on(struct rendezvous *rendezvous, const struct address *address, bool *taken, ty_error *err) {
    char text[64];
    int result = gate_listen(&rendezvous->door.gate, address);
    for (int tries = 1; result == -EADDRINUSE && tries < DOOR_TRIES; tries++) {
        (void)poll(NULL, 0, DOOR_PAUSE_MS);
        result = gate_listen(&rendezvous->door.gate, address);
    }
    *taken = result == -EADDRINUSE;
    if (result > 0) return result;
    address_format(address, text);
    if (result == 0)
        return ty_fail(err, TY_EUSAGE, "cannot listen on %s: on %d addresses at most", text,
                       GATE_LISTENERS_MAX);
    return ty_fail(
        err, TY_ESTART, "cannot listen on %s: %s%s", text, strerror(-result),
        result == -EADDRNOTAVAIL ? ": it must be an address of this machine, which is the node of rank 0" : "");
}

/* By itself, as several names may stand for one address, or with all of this machine's. */
static bool is_served(const struct gate *gate, const struct address *address, uint16_t port) {
    char text[64], all[64], other[64];
    struct address_list any;
    bool served = false;
    address_list_any(&any, port);
    address_format(address, text);
    address_format(&any.items[address->socket.ss_family == AF_INET6], all);
    for (size_t i = 0; i < gate->n_listeners && !served; i++) {
        struct sockaddr_storage name = {0};
        struct address own;
        socklen_t size = sizeof name;
        if (getsockname(gate->listeners[i].fd, (struct sockaddr *)&name, &size) < 0) continue;
        if (!address_of((const struct sockaddr *)&name, &own)) continue;
        address_format(&own, other);
        served = str_equal(other, text) || str_equal(other, all);
    }
    return served;
}

static int check_key(const struct rendezvous *rendezvous, const struct address_list *list, const char *text,
                     ty_error *err) {
    if (rendezvous->key.text[0] != '\0') return 0;
    for (size_t i = 0; i < list->n; i++)
        if (!address_is_loopback(&list->items[i])) return address_fail_keyless(text, err);
    return 0;
}

/* Where it is a name or, as asked for, a literal address. What a name stands for elsewhere it may not stand for
 * here: a host's own name often is that of another address, and that of a pod is known only some seconds after
 * it has begun. With a key all of this machine's addresses are listened on for a name. */
static int open_one(struct rendezvous *rendezvous, const char *text, bool literal, ty_error *err) {
    struct address_list list = {0};
    struct address_name name;
    ty_error unknown = {0};
    int result = address_parse(text, &name, err);
    if (result < 0 || name.literal != literal) return result;
    bool everywhere = !literal && rendezvous->key.text[0] != '\0';
    result = address_resolve(&name, &list, &unknown);
    if (result < 0 && !everywhere) return ty_fail(err, result, "%s", unknown.message);
    if (result < 0) log_warning("join", "%s: the other nodes have to know it", unknown.message);
    if (result == 0 && (result = check_key(rendezvous, &list, text, err)) < 0) return result;
    if (everywhere) address_list_any(&list, name.port);
    if (name.port == 0 && list.n > 1) list.n = 1;
    uint16_t port = 0;
    for (size_t i = 0; i < list.n; i++) {
        bool taken = false, served = is_served(&rendezvous->door.gate, &list.items[i], name.port);
        result = served ? name.port : listen_on(rendezvous, &list.items[i], &taken, err);
        bool other_family = result < 0 && !taken && list.n > 1; /* one without IPv6, or without IPv4 */
        if (result < 0 && !other_family) return result;
        if (result > 0) port = (uint16_t)result;
    }
    if (port == 0 && result < 0) return result;
    struct buffer *out = &rendezvous->door.addresses;
    bool v6 = strchr(name.host, ':') != NULL;
    buffer_printf(out, "%s%s%s%s:%u", out->size > 0 ? "," : "", v6 ? "[" : "", name.host, v6 ? "]" : "", port);
    return 0;
}

/* Where agents of a controller that died come back to, its port is listened on again. */
static int listen_everywhere(struct rendezvous *rendezvous, ty_error *err) {
    struct address_list list;
    bool taken;
    if (rendezvous->kept.port > 0) {
        address_list_any(&list, rendezvous->kept.port);
        if (listen_on(rendezvous, &list.items[0], &taken, NULL) > 0) {
            (void)listen_on(rendezvous, &list.items[1], &taken, NULL); /* there may be no IPv6 */
            return rendezvous->kept.port;
        }
        rendezvous->kept.port = 0; /* nobody comes back then */
    }
    int result = gate_listen_anywhere(&rendezvous->door.gate);
    return result > 0 ? result : ty_fail(err, TY_ESTART, "cannot listen for nodes: %s", strerror(-result));
}

static int open_everywhere(struct rendezvous *rendezvous, ty_error *err) {
    struct address_list list;
    address_list_any(&list, 0);
    int result = check_key(rendezvous, &list, "every address", err);
    if (result == 0) result = listen_everywhere(rendezvous, err);
    if (result < 0) return result;
    uint16_t port = rendezvous->door.port = (uint16_t)result;
    struct ifaddrs *all = NULL;
    struct buffer *out = &rendezvous->door.addresses; /* for agents */
    if (getifaddrs(&all) < 0) return 0;
    for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct address address;
        char text[64];
        if (!address_of_interface(one, &address)) continue;
        address_set_port(&address, port);
        address_format(&address, text);
        buffer_printf(out, "%s%s", out->size > 0 ? "," : "", text);
    }
    freeifaddrs(all);
    return 0;
}

int door_open(struct rendezvous *rendezvous, ty_error *err) {
    const char *listen = rendezvous->config.listen;
    rendezvous->door.gate = (struct gate){.loop = rendezvous->config.loop,
                                          .most = RENDEZVOUS_PENDING_MAX,
                                          .limit = RENDEZVOUS_PROOF_LIMIT,
                                          .let_in = on_let_in,
                                          .turned_away = on_turned_away,
                                          .context = rendezvous};
    int result = gate_open(&rendezvous->door.gate, &rendezvous->key, err);
    if (result == 0 && listen == NULL) result = open_everywhere(rendezvous, err);
    for (int literal = 0; literal <= 1; literal++) /* those behind which all addresses may be come first */
        for (const char *at = listen; at != NULL && result == 0;) {
            char one[300];
            at = address_next(at, one, sizeof one);
            if (one[0] != '\0') result = open_one(rendezvous, one, literal == 1, err);
        }
    if (result == 0 && rendezvous->door.addresses.failed) return ty_fail_memory(err);
    return result;
}

void door_close(struct rendezvous *rendezvous) {
    gate_close(&rendezvous->door.gate);
    buffer_done(&rendezvous->door.addresses);
}
