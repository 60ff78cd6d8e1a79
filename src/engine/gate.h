/* Listening sockets, and those who knock at them: nodes that join (rendezvous_door.c), and nodes that try how
 * they reach each other (trial.c).
 *
 * A visitor costs a descriptor and the state of a handshake until it has proven that it has the key of the run
 * (wire/tls.h). At most `most` of them wait, the oldest of which makes way for a newer one, and each may stay
 * for `limit`. Nothing is answered to one that has not proven it. Without a key only processes of this user are
 * let in, by loopback. */
#ifndef ENGINE_GATE_H
#define ENGINE_GATE_H

#include "engine/address.h"
#include "loop/loop.h"
#include "wire/channel.h"
#include "wire/key.h"
#include "wire/tls.h"

enum { GATE_LISTENERS_MAX = 8 };

struct visitor {
    struct gate *gate;
    struct transport transport;
    uint32_t node_rank;                /* that it has proven to be; 0 without a key */
    struct channel *channel;           /* over the transport, where whoever let it in made one; NULL */
    char address[64], own_address[64]; /* the ends of the connection */
    struct loop_watch watch;
    struct loop_timer limit;
    struct visitor *older, *newer;
};

struct gate { /* zero-initialised but for what stands before `tls` */
    struct loop *loop;
    size_t most;
    nanoseconds limit;
    /* It may stay until its limit, and ends by gate_forget or gate_turn_away. */
    void (*let_in)(void *context, struct visitor *visitor);
    void (*turned_away)(void *context, const struct visitor *visitor, const char *why); /* NULL: no matter */
    void *context;
    struct tls_server *tls; /* NULL: there is no key */
    struct loop_listener listeners[GATE_LISTENERS_MAX];
    size_t n_listeners;
    struct visitor *oldest, *newest;
    size_t n_visitors;
};

/* Before it listens; an empty key is none. */
int gate_open(struct gate *gate, const struct run_key *key, ty_error *err);
/* One address more: its port, or -errno; 0 where there are GATE_LISTENERS_MAX already. */
int gate_listen(struct gate *gate, const struct address *address);
/* In place of all before: on every address of this machine, at one port that nobody else has, which is
 * returned; or -errno. */
int gate_listen_anywhere(struct gate *gate);
void gate_stop_listening(struct gate *gate);
void gate_close(struct gate *gate); /* visitors go without a word */

void gate_turn_away(struct visitor *visitor, const char *why);
/* Closes what it still has. */
void gate_forget(struct visitor *visitor);

#endif
