/* A node in the words of a Join: what it has, as its own machine was probed, and what of it is free. One side
 * makes it (join_node.c), the other checks it and makes a node of a cluster of it (rendezvous.c). Whether the
 * node may take part at all is decided there. */
#ifndef ENGINE_DESCRIPTION_H
#define ENGINE_DESCRIPTION_H

#include "cluster/cluster.h"
#include "wire/trainyard.pb-c.h"

enum { DESCRIPTION_MAX_LIST = 4096, DESCRIPTION_MAX_TEXT = 4096 };

/* Fills the node's part of `join`, whose lists are then to be freed with description_done; texts are
 * borrowed. */
int description_make(const struct node *node, Wire__Join *join, ty_error *err);
/* The addresses of this machine by which another one may reach it; to be freed with description_done, too. */
int description_add_addresses(Wire__Join *join, ty_error *err);
void description_done(Wire__Join *join);

/* Checks what came from outside: TY_EUSAGE names what is wrong. */
int description_check(const Wire__Join *join, ty_error *err);
/* Adds the node to a cluster, under this name. */
int description_add(const Wire__Join *join, const char *name, struct cluster *cluster, ty_error *err);

#endif
