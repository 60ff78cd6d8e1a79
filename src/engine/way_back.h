/* The way of a node that joined back to a controller (agent/adrift.h): to the address by which it joined, again
 * and again, without holding up the agent's loop. */
#ifndef ENGINE_WAY_BACK_H
#define ENGINE_WAY_BACK_H

#include "agent/adrift.h"
#include "engine/address.h"
#include "loop/loop.h"
#include "wire/key.h"
#include "wire/transport.h"

struct way_back_home {   /* zero-initialised: not on the way */
    struct way_back way; /* for the agent */
    struct address address;
    const struct run_key *key; /* "": none; borrowed */
    uint32_t node_rank;
    struct loop *loop;
    struct transport transport; /* of the attempt to connect that is under way; its fd is -1 without */
    struct loop_watch watch;
    struct loop_timer retry, late;
    void (*there)(void *owner, struct transport *transport);
    void *owner;
};

/* `fd`: the connection by which the node joined. `join` and `key` are borrowed. False: there is no way back. */
bool way_back_note(struct way_back_home *home, int fd, const Wire__Join *join, const struct run_key *key,
                   uint32_t node_rank);

#endif
