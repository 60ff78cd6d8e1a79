/* A descriptor that is read and written, plainly or through TLS: plain sockets, and a door to TLS (tls.h),
 * which only nodes of other machines need. Nothing here waits or frames; what is written is the channel's
 * (channel.c). */
#include "wire/channel.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "wire/tls.h"

ssize_t transport_read(struct transport *transport, void *to, size_t size) {
    if (transport->unread.failed) return -ENOMEM; /* what should come first was lost */
    if (transport->unread.size > 0) {
        size_t n = transport->unread.size < size ? transport->unread.size : size;
        memcpy(to, transport->unread.data, n);
        buffer_consume(&transport->unread, n);
        if (transport->unread.size == 0) buffer_done(&transport->unread);
        return (ssize_t)n;
    }
    if (transport->tls != NULL) return tls_read(transport->tls, to, size);
    ssize_t n = recv(transport->fd, to, size, MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

ssize_t transport_write(struct transport *transport, const void *from, size_t size) {
    if (transport->tls != NULL) return tls_write(transport->tls, from, size);
    ssize_t n = send(transport->fd, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

bool transport_pending(const struct transport *transport) {
    return transport->unread.size > 0 || transport->unread.failed ||
           (transport->tls != NULL && tls_pending(transport->tls));
}

/* All that was written, also what the kernel could not even send, since a link is down or a packet filter of
 * this machine holds it up. */
bool transport_acknowledged(const struct transport *transport) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int left = 0;
    if (getsockopt(transport->fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0) return false;
    if (ioctl(transport->fd, SIOCOUTQ, &left) < 0) return false;
    return info.tcpi_state == TCP_ESTABLISHED && left == 0;
}

void transport_close(struct transport *transport) {
    tls_destroy(TAKE(transport->tls), transport->fd >= 0 && descriptors_intact(transport->fd));
    descriptors_close(&transport->fd);
    buffer_done(&transport->unread);
}
