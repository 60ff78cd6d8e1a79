/* Ports for workers that bind one themselves: blocks of ports, each with an abstract name that one run at a
 * time can have, so that runs of this machine keep clear of each other. A port was free when it was looked at;
 * nothing holds it until its worker binds it, since that bind would fail. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "controller/ty_run.h"

/* From where servers of this machine seldom are. */
enum { BLOCK_PORTS = 64, FIRST_BLOCK = 10240 / BLOCK_PORTS, END_BLOCK = 65536 / BLOCK_PORTS };

union bind_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Binds as the strictest worker would, for both families at once where there are both; the port, or -errno. 0
 * asks for any. */
static int try_bind(int family, uint16_t port) {
    CLEANUP_FD int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    union bind_address address = {0};
    socklen_t size = family == AF_INET6 ? sizeof address.v6 : sizeof address.v4;
    address.any.sa_family = (sa_family_t)family;
    if (family == AF_INET6)
        address.v6.sin6_port = htons(port);
    else
        address.v4.sin_port = htons(port);
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int)) < 0)
        return -errno;
    if (bind(fd, &address.any, size) < 0 || getsockname(fd, &address.any, &size) < 0) return -errno;
    return ntohs(family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

/* A kernel without IPv6, or a machine that has it switched off, has the other family alone. */
static int find_free(uint16_t port) {
    int found = try_bind(AF_INET6, port);
    return found > 0 || found == -EADDRINUSE ? found : try_bind(AF_INET, port);
}

/* 1 when the block is ours now, 0 when it is another's; -ENOMEM. */
static int take_block(struct ports *ports, uint16_t block) {
    struct sockaddr_un name;
    socklen_t size = descriptors_name(&name, "trainyard-ports-%u", block * BLOCK_PORTS);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&name, size) < 0) return 0;
    if (ARRAY_GROW(ports->locks, ports->n) < 0 || ARRAY_GROW(ports->blocks, ports->n) < 0) return -ENOMEM;
    descriptors_withhold(fd);
    ports->locks[ports->n] = TAKE_FD(fd);
    ports->blocks[ports->n++] = block;
    return 1;
}

/* Another block, of those that the kernel leaves alone: from anywhere among them on, so that those who ask at
 * the same time seldom meet. False when there is none. */
static bool take_another(struct ports *ports) {
    enum { N = END_BLOCK - FIRST_BLOCK };
    CLEANUP(buffer_done) struct buffer text = {0};
    long long first, last, low = 32768, high = 60999; /* ports that the kernel gives to those who ask for any */
    unsigned start = 0;
    if (file_read("/proc/sys/net/ipv4/ip_local_port_range", 64, &text, NULL) >= 0 && text.size > 0 &&
        sscanf(text.data, "%lld %lld", &first, &last) == 2) {
        low = first;
        high = last;
    }
    if (getrandom(&start, sizeof start, 0) < 0) start = (unsigned)getpid();
    for (unsigned i = 0; i < N; i++) {
        uint16_t block = (uint16_t)(FIRST_BLOCK + (start % N + i) % N);
        bool given = block * BLOCK_PORTS <= high && block * BLOCK_PORTS + BLOCK_PORTS > low, held = false;
        for (size_t k = 0; k < ports->n; k++)
            held |= ports->blocks[k] == block;
        if (!given && !held && take_block(ports, block) == 1) return true;
    }
    return false;
}

/* Blocks are kept from attempt to attempt: ports on which a connection still lingers are passed over, and free
 * again when one later looks. */
int ports_find(struct ports *ports, size_t count, uint16_t *found, ty_error *err) {
    size_t n = 0;
    for (size_t i = 0; n < count && (i < ports->n || take_another(ports)); i++)
        for (uint16_t k = 0; k < BLOCK_PORTS && n < count; k++) {
            uint16_t port = (uint16_t)(ports->blocks[i] * BLOCK_PORTS + k);
            if (find_free(port) > 0) found[n++] = port;
        }
    for (size_t i = n; i < count; i++)
        found[i] = 0;
    if (n > 0 || count == 0) return 0;
    int any = find_free(0); /* the kernel gives all of them to everybody, or others have the rest */
    if (any < 0) return ty_fail(err, TY_ESTART, "cannot find a port for MASTER_PORT: %s", strerror(-any));
    found[0] = (uint16_t)any;
    return 0;
}

void ports_done(struct ports *ports) {
    for (size_t i = 0; i < ports->n; i++)
        descriptors_close(&ports->locks[i]);
    free(ports->locks);
    free(ports->blocks);
    *ports = (struct ports){0};
}
