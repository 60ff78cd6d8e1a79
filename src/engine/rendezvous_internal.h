/* The parts of a rendezvous: who listens and lets in (rendezvous_door.c), and who is there (rendezvous.c). */
#ifndef ENGINE_RENDEZVOUS_INTERNAL_H
#define ENGINE_RENDEZVOUS_INTERNAL_H

#include "engine/rendezvous.h"
#include "wire/channel.h"
#include "wire/tls.h"

enum slot_state {
    SLOT_ABSENT,
    SLOT_JOINED, /* its channel is ours; it waits for a Start, or for the end of the run */
    SLOT_TAKEN,  /* a run has its channel */
};

/* A node by its rank. */
struct slot {
    struct rendezvous *rendezvous;
    uint32_t rank;
    enum slot_state state;
    struct channel *channel; /* NULL while absent */
    char *name;              /* of the node, unique; kept once it has been there */
    Wire__Join *join;        /* the description, owned; NULL: it never was there */
    char address[64];        /* where it can be reached, as its connection shows */
    char *note;              /* what was last heard of it, NULL */
    bool given_up;           /* it will not come */
};

/* Somebody who has not proven yet that he has the key, or not said Join. */
struct visitor {
    struct rendezvous *rendezvous;
    struct transport transport;
    struct loop_watch watch;
    struct loop_timer limit;
    struct channel *channel; /* once he has proven it */
    uint32_t proven_rank;
    char address[64], own_address[64]; /* the ends of the connection */
    struct visitor *older, *newer;
};

struct door {
    struct listener {
        struct rendezvous *rendezvous;
        int fd;
        struct loop_watch watch;
    } listeners[8];
    size_t n;
    struct tls_server *tls; /* NULL: there is no key, and only this user is let in, by loopback */
    struct visitor *oldest, *newest;
    size_t n_visitors;
    struct buffer addresses; /* HOST:PORT,... for agents */
    char host[256];          /* of the first address that was asked for */
    nanoseconds told;        /* when a peer that was turned away was last told of */
};

struct rendezvous {
    struct rendezvous_config config;
    struct run_key key;
    struct door door;
    struct slot *slots; /* max_nodes */
    struct cluster *local;
    char local_address[64]; /* of this machine, as its nodes reach it; "" until one has joined */
    char local_interface[32];
    bool began; /* the starter was called */
    void (*changed)(void *context);
    void *context;
};

int door_open(struct rendezvous *rendezvous, ty_error *err);
void door_close(struct rendezvous *rendezvous);

/* Somebody with the key has said Join over the channel, which is taken over. */
void rendezvous_enter(struct rendezvous *rendezvous, struct channel *channel, const Wire__Join *join,
                      const struct visitor *visitor);

#endif
