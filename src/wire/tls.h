/* TLS 1.3 over a socket, with keys that both ends derive from the key of the run (key.h) and from the rank of
 * the node, which the client names: there are no certificates, no tickets, no early data. An end without the
 * run's key cannot finish the handshake, nor learn more than that somebody listens. Of the groups and ciphers
 * only X25519 and AES-128-GCM are spoken. Loads OpenSSL (the module tls) when it is first used. */
#ifndef WIRE_TLS_H
#define WIRE_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "wire/key.h"

struct tls;        /* opaque: one connection; the socket stays the caller's, who closes it after tls_destroy */
struct tls_server; /* opaque: what all connections of a listener share */

int tls_server_create(const struct run_key *key, struct tls_server **server, ty_error *err);
void tls_server_destroy(struct tls_server *server); /* its connections may live on; NULL is fine */

/* `fd` is a connected non-blocking socket. */
int tls_accept(struct tls_server *server, int fd, struct tls **tls, ty_error *err);
int tls_connect(const struct run_key *key, uint32_t node_rank, int fd, struct tls **tls, ty_error *err);
void tls_destroy(struct tls *tls, bool goodbye); /* `goodbye`: the peer is told. NULL is fine */

/* Goes on with the handshake: 1 when both ends have proven that they have the key, 0 when the socket is to be
 * waited for (`writable`: until it can be written), TY_EPROTOCOL or TY_ECOMM. */
int tls_shake_hands(struct tls *tls, bool *writable, ty_error *err);
uint32_t tls_node_rank(const struct tls *tls); /* that the client has proven */

/* As transport_read and transport_write. */
ssize_t tls_read(struct tls *tls, void *to, size_t size);
ssize_t tls_write(struct tls *tls, const void *from, size_t size);
bool tls_pending(const struct tls *tls);

/* The functions of the module tls: what is said above of each. */
struct tls_module {
    const char *version; /* base_build */
    int (*server_create)(const struct run_key *key, struct tls_server **server, ty_error *err);
    void (*server_destroy)(struct tls_server *server);
    int (*accept)(struct tls_server *server, int fd, struct tls **tls, ty_error *err);
    int (*connect)(const struct run_key *key, uint32_t node_rank, int fd, struct tls **tls, ty_error *err);
    void (*destroy)(struct tls *tls, bool goodbye);
    int (*shake_hands)(struct tls *tls, bool *writable, ty_error *err);
    uint32_t (*node_rank)(const struct tls *tls);
    ssize_t (*read)(struct tls *tls, void *to, size_t size);
    ssize_t (*write)(struct tls *tls, const void *from, size_t size);
    bool (*pending)(const struct tls *tls);
};

#endif
