/* The message with which a run begins on an agent: Start, alone in its send, with the lease's descriptor beside
 * it. It is read without a channel, byte for byte, so that an agent that waits for one holds nothing of a run,
 * and takes nothing that follows. */
#ifndef WIRE_START_H
#define WIRE_START_H

#include "base/error.h"
#include "wire/trainyard.pb-c.h"

/* Sends without waiting. `lease_fd` may be -1. TY_ECOMM when the agent is gone. */
int start_send(int fd, const Wire__Start *start, int lease_fd, ty_error *err);

/* Waits for the next Start: 1 with the message, to be freed with wire__message__free_unpacked(m, NULL), and the
 * lease (close-on-exec, the caller's; -1 without); 0 at the end of the peer; TY_EPROTOCOL, TY_ECOMM. Other
 * messages, the last ones of the run before, are passed over. */
int start_receive(int fd, Wire__Message **message, int *lease_fd, ty_error *err);

#endif
