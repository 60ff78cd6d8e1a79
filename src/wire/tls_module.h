/* The functions of the module tls: what tls.h says of each. */
#ifndef WIRE_TLS_MODULE_H
#define WIRE_TLS_MODULE_H

#include "wire/tls.h"

struct tls_module {
    const char *version; /* base_build */
    int (*server_create)(const struct run_key *key, struct tls_server **server, ty_error *err);
    void (*server_destroy)(struct tls_server *server);
    int (*accept)(struct tls_server *server, int fd, struct tls **tls, ty_error *err);
    int (*connect)(const struct run_key *key, uint32_t node_rank, int fd, struct tls **tls, ty_error *err);
    void (*destroy)(struct tls *tls);
    int (*shake_hands)(struct tls *tls, bool *writable, ty_error *err);
    uint32_t (*node_rank)(const struct tls *tls);
    ssize_t (*read)(struct tls *tls, void *to, size_t size);
    ssize_t (*write)(struct tls *tls, const void *from, size_t size);
    bool (*pending)(const struct tls *tls);
};

#endif
