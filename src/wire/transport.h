/* What lies below a channel: a stream of bytes over a socket, plain, or TLS (tls.h). It never blocks. */
#ifndef WIRE_TRANSPORT_H
#define WIRE_TRANSPORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"

struct tls;

struct transport {
    int fd;
    struct tls *tls;      /* NULL: plain */
    struct buffer unread; /* was read from the socket, and is to be read here first */
};

#define TRANSPORT_PLAIN(descriptor) ((struct transport){.fd = (descriptor)})

/* Bytes, 0 at the peer's end, or -errno: -EAGAIN when there is nothing yet, or no room. */
ssize_t transport_read(struct transport *transport, void *to, size_t size);
ssize_t transport_write(struct transport *transport, const void *from, size_t size);
/* There is more to read though the socket need not say so. */
bool transport_pending(const struct transport *transport);
/* The kernel of the peer has taken all that was written: of TCP only, else false. */
bool transport_acknowledged(const struct transport *transport);
/* Says goodbye to the peer, where that can be without waiting, and closes (descriptors_close). */
void transport_close(struct transport *transport);

#endif
