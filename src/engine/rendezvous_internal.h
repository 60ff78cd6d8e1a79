/* The parts of a rendezvous: who listens and lets in (rendezvous_door.c), who is there (rendezvous.c), which
 * addresses connect them (rendezvous_network.c), what an earlier controller left (rendezvous_adrift.c), and
 * what this one leaves to another (rendezvous_kept.c). They share one struct, which is the loop's thread's
 * alone; others know it by rendezvous.h. */
#ifndef ENGINE_RENDEZVOUS_INTERNAL_H
#define ENGINE_RENDEZVOUS_INTERNAL_H

#include "base/hash.h"
#include "engine/gate.h"
#include "engine/rendezvous.h"

enum slot_state {
    SLOT_ABSENT,
    SLOT_JOINED, /* its channel is ours; it waits for a Start, or for the end of the run */
    SLOT_TAKEN,  /* a run has its channel */
};

/* What came of an address of a node. */
struct tried {
    uint32_t by, reached; /* how many other nodes */
    char *fault;          /* of one that did not reach it; NULL */
};

/* An address that a node was asked to try. */
struct target {
    uint32_t rank, address;
};

/* A node by its rank. That of rank 0, where it is this machine, is always absent, with the addresses alone for
 * a description, and a channel where an agent of it is adrift. */
struct slot {
    struct rendezvous *rendezvous;
    uint32_t rank;
    enum slot_state state;
    struct channel *channel; /* NULL while absent */
    char *name;              /* of the node, unique; kept once it has been there */
    Wire__Join *join;        /* the description, owned; NULL: it never was there */
    char address[64];        /* where it can be reached, as its connection shows */
    bool here;               /* it is of this machine, as its connection shows */
    struct tried *tried;     /* n_tried, of its addresses, while the network is tried; NULL */
    size_t n_tried;
    struct target *targets; /* n_targets, until it has told what it reaches; NULL */
    size_t n_targets;
    int chosen;          /* the address that the others are to use; -1: as its connection shows */
    char *note;          /* what was last heard of it, NULL */
    bool given_up;       /* it will not come */
    bool gone;           /* whoever started its agent has nothing there any more */
    nanoseconds wanted;  /* until then, by a run that waits for it to come back; 0 */
    nanoseconds overdue; /* from then on another agent is started whatever became of the one before; 0: never */
    nanoseconds promised; /* until then, to a node that asked for a rank; 0 */
    Wire__Adrift *adrift; /* what its agent, which is adrift, has told; owned; NULL */
};

struct door {
    struct gate gate;
    struct buffer addresses; /* HOST:PORT,... for agents */
    uint16_t port;           /* where all of this machine's are listened on */
    nanoseconds told;        /* when a peer that was turned away was last told of */
};

/* The agent that an earlier controller had on this machine, which has the channel of slot 0. */
struct left {
    pid_t pid; /* 0: not known */
    uid_t user;
    bool awaited;            /* it may be adrift, and has not said so yet */
    bool unproven;           /* that nothing is left of it */
    struct loop_timer limit; /* for its end, once it is sent away */
};

/* For a controller that follows one that died. */
struct kept_door {
    char *path;    /* of the file, owned; NULL: there is none */
    uint16_t port; /* of the one before; 0: it left none */
};

struct rendezvous {
    struct rendezvous_config config;
    struct run_key key;
    struct kept_door kept;
    struct door door;
    struct slot *slots;           /* max_nodes */
    struct hash *names;           /* of slots that have one: name -> slot */
    struct hash *departed;        /* names of nodes that have no slot, and on which nothing is left */
    uint32_t n_there, n_given_up; /* slots that are not absent; that will not come */
    uint32_t n_promised;          /* ever: the next rank is looked for from there on */
    struct cluster *local;
    char local_address[64]; /* of this machine, as its nodes reach it; "" until one has joined */
    char local_interface[32];
    char network[64];        /* that was chosen, "10.0.0.0/24"; "": none was */
    struct buffer table;     /* lines of what was found of each network, each with its end */
    uint32_t n_trying;       /* nodes that have not told what they reach */
    bool began;              /* the starter was called */
    struct loop_timer again; /* for the starter to be called for nodes that are wanted */
    bool begins_anew;        /* nobody is adopted any more */
    struct left left;
    nanoseconds adrift_at; /* by clock_boot: an agent that is adrift was last counted as alive; 0: none */
    void (*changed)(void *context);
    void *context;
};

int door_open(struct rendezvous *rendezvous, ty_error *err);
void door_close(struct rendezvous *rendezvous);

/* Tries which addresses connect the nodes that are there, and chooses. Nothing is tried without a key, or where
 * all nodes are of this machine. */
int rendezvous_try_network(struct rendezvous *rendezvous, ty_error *err);
/* What a node says of it. */
void rendezvous_tried(struct slot *slot, const Wire__Tried *told);
/* A node that comes when the network is chosen, or comes back: its address there. */
void rendezvous_choose_again(struct rendezvous *rendezvous, struct slot *slot);
void rendezvous_forget_tried(struct slot *slot);

/* Somebody with the key has said Join over the channel, which is taken over. */
void rendezvous_enter(struct rendezvous *rendezvous, struct channel *channel, const Wire__Join *join,
                      const struct visitor *visitor);

/* Of a timer: sets the bool that its context is. */
void rendezvous_note_time(void *context);

/* Says goodbye over a channel, which then waits for the peer's end. */
void rendezvous_say_goodbye(struct channel *channel, int status, const char *why);

/* Of a node that is this machine: slot 0. NULL: no such node was ever there. */
struct slot *rendezvous_slot_of(const struct rendezvous *rendezvous, const char *node_name);
void slot_set_state(struct slot *slot, enum slot_state state);
/* The end of a channel that is ours. */
void slot_closed(void *context, const ty_error *reason);

/* -- from one controller to another, where a starter started the agents */

/* What the one before kept, of the same nodes: its key and its port become ours. */
void door_take_kept(struct rendezvous *rendezvous);
/* Whoever comes back may be adopted yet: the file stays. */
void door_forget_kept(struct rendezvous *rendezvous);

/* -- what an earlier controller left */

void slot_forget_adrift(struct slot *slot);
/* Somebody came to be adopted, and whether that is so is not decided. */
bool rendezvous_is_undecided(const struct rendezvous *rendezvous);
/* Looks for the agent of this machine, for some seconds where somebody listens in its place. */
void rendezvous_find_left(struct rendezvous *rendezvous);

#endif
