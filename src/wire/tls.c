/* The side of TLS that is always there: calls into the module (tls_openssl.c). Whoever has a connection or a
 * server has loaded it. Keys of runs are read by key.c, and what goes over a connection is the channel's. How a
 * key becomes the proof of a connection is in tls_openssl.c. */
#include "wire/tls.h"

#include <stddef.h>

#include "base/module.h"

static const struct tls_module *module;

/* Reports why through a ty_error of its own: `err` may be NULL, and the code is wanted all the same. */
static int load(ty_error *err) {
    ty_error why = {0};
    if (module == NULL) module = module_load("tls", &why);
    return module != NULL ? 0 : ty_fail(err, why.code, "%s", why.message);
}

int tls_server_create(const struct run_key *key, struct tls_server **server, ty_error *err) {
    int result = load(err);
    return result < 0 ? result : module->server_create(key, server, err);
}

void tls_server_destroy(struct tls_server *server) {
    if (server != NULL) module->server_destroy(server);
}

int tls_accept(struct tls_server *server, int fd, struct tls **tls, ty_error *err) {
    return module->accept(server, fd, tls, err);
}

int tls_connect(const struct run_key *key, uint32_t node_rank, int fd, struct tls **tls, ty_error *err) {
    int result = load(err);
    return result < 0 ? result : module->connect(key, node_rank, fd, tls, err);
}

void tls_destroy(struct tls *tls, bool goodbye) {
    if (tls != NULL) module->destroy(tls, goodbye);
}

int tls_shake_hands(struct tls *tls, bool *writable, ty_error *err) {
    return module->shake_hands(tls, writable, err);
}

uint32_t tls_node_rank(const struct tls *tls) {
    return module->node_rank(tls);
}

ssize_t tls_read(struct tls *tls, void *to, size_t size) {
    return module->read(tls, to, size);
}

ssize_t tls_write(struct tls *tls, const void *from, size_t size) {
    return module->write(tls, from, size);
}

bool tls_pending(const struct tls *tls) {
    return module->pending(tls);
}
