/* Agents of other hosts, each started by the user's own ssh, which lives as long as its agent does:
 *
 *     ssh -T -o BatchMode=yes -- HOST trainyard agent --rendezvous ... --node-rank I
 *
 * with the key as the first line of its standard input. Many hosts make a tree: the head of each branch is
 * given the hosts behind it, a line each, and starts those with an ssh of its own (branches_main). What the
 * hosts, or ssh, have to say of themselves comes up the tree. When this process ends, or a connection of ssh
 * does, the agents behind it see the end of their standard input, and end, too, unless they outlive it. */
#ifndef ENGINE_BRANCHES_H
#define ENGINE_BRANCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "loop/loop.h"
#include "wire/key.h"

struct branches; /* opaque */

struct branch_node {
    uint32_t rank, slots; /* slots 0: as many CPUs as there are */
    const char *host;     /* borrowed */
    bool here;            /* it is this machine: no ssh is needed */
    bool lost;            /* was told already */
};

struct branches_config {
    struct loop *loop;
    const char *rendezvous;    /* addresses of the controller; borrowed */
    const struct run_key *key; /* borrowed */
    bool copy;                 /* hosts are brought the command and its library */
    bool outlive; /* agents that have begun a run outlive who started them, for another controller */
    /* The last that was heard of a node, and why it will not come (or has gone). */
    void (*note)(void *context, uint32_t rank, const char *text);
    void (*lost)(void *context, uint32_t rank, const char *why);
    void *context;
};

struct branches *branches_create(const struct branches_config *config, ty_error *err);
/* Starts the agents of these nodes, and does not wait for them. */
int branches_start(struct branches *branches, const struct branch_node *nodes, size_t n, ty_error *err);
/* Ends what still runs, waits for that (a few seconds at most, then by force), and frees. */
void branches_destroy(struct branches *branches);

/* Whether a host is this machine, by its name. */
bool branches_is_here(const char *host);

/* `trainyard agent --branches ADDRESSES [--copy] [--awaits another]`, the words behind --branches: the head of
 * a branch; its exit status. */
int branches_main(int argc, char **argv);

#endif
