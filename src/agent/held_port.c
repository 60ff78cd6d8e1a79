/* The held port: bound for both families at once, or for IPv4 where there is no IPv6. */
#include "agent/held_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool has_ipv4_loopback(void) {
    CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0;
}

/* 0 and a bound socket, or -errno. */
static int bind_any(int family, int *fd, unsigned *port) {
    CLEANUP_FD int opened = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0) return -errno;
    union address address = {0};
    socklen_t size = family == AF_INET6 ? sizeof address.v6 : sizeof address.v4;
    address.any.sa_family = (sa_family_t)family;
    if (setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0) return -errno;
    if (family == AF_INET6 && setsockopt(opened, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int)) < 0)
        return -errno;
    if (bind(opened, &address.any, size) < 0 || getsockname(opened, &address.any, &size) < 0) return -errno;
    *port = ntohs(family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
    *fd = TAKE_FD(opened);
    return 0;
}

int held_port_open(struct held_port *held, ty_error *err) {
    struct held_port made = {.fd = -1, .address = has_ipv4_loopback() ? "127.0.0.1" : "::1"};
    int code = bind_any(AF_INET6, &made.fd, &made.port);
    if (code < 0) code = bind_any(AF_INET, &made.fd, &made.port);
    if (code < 0) return ty_fail(err, TY_ESTART, "cannot hold a port for MASTER_PORT: %s", strerror(-code));
    *held = made;
    return 0;
}

void held_port_close(struct held_port *held) {
    if (held->fd >= 0) (void)close(held->fd);
    held->fd = -1;
}
