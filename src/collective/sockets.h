/* The streams of messages between ranks that share no memory: TCP, one connection from each rank to each other
 * one to which it sends, made with the first message. Who waits for a message from a rank to which it has no
 * connection makes one too, since that breaks when the rank is gone.
 *
 * Each rank listens at one socket, and all learn its address and secret when the communicator is made: a
 * connection begins with that secret and the rank that speaks, and others are closed. What comes later is
 * neither encrypted nor signed, as with Gloo and NCCL. Nothing here waits. */
#ifndef COLLECTIVE_SOCKETS_H
#define COLLECTIVE_SOCKETS_H

#include <poll.h>

#include "collective/way.h"

struct sockets;

int sockets_create(const struct comm_config *config, struct sockets **sockets, ty_error *err);
void sockets_destroy(struct sockets *sockets); /* NULL is fine; peers see the connections close */

extern const struct message_streams socket_streams; /* their context: struct sockets */

/* Takes the connections that others have made. */
void sockets_accept(struct sockets *sockets);

/* Whether nothing is to be had from the rank any more. */
bool sockets_has_left(const struct sockets *sockets, int rank, bool sending);

/* What to poll for, so that messages move: at most SOCKETS_POLLED(size) in `polled`. */
#define SOCKETS_POLLED(size) (3 * (size_t)(size) + 32)
size_t sockets_polled(const struct sockets *sockets, const struct messages *messages, struct pollfd *polled);

#endif
