/* TLS by OpenSSL. The pre-shared key of a node is HKDF-SHA256 of the run's key with the node's rank: what one
 * node proves does not speak for another, and as a server never proves anything with a key of its own, nothing
 * can be reflected. A session counts only when it was made with the key ("reused", as OpenSSL calls that): a
 * handshake that went another way, by a certificate, is refused. */
#include <errno.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <trainyard/api.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "wire/tls.h"

/* RECORD: a full one as it travels. READ_AHEAD: what is taken from a socket at once, held only until it is
 * handed on. GATHERED: what a socket is given at once. */
enum {
    PSK_SIZE = 32,
    IDENTITY_SIZE = 64,
    RECORD = SSL3_RT_MAX_PLAIN_LENGTH + 32,
    READ_AHEAD = 4 * RECORD,
    GATHERED = 16 * RECORD
};
static const char IDENTITY[] = "trainyard 1 node ";

struct tls_server {
    SSL_CTX *context; /* NULL until the first comes: it takes longer to set up than a handshake */
    struct run_key key;
};

struct tls {
    SSL *ssl;
    int fd;
    struct run_key key;
    uint32_t node_rank;
    bool gathering;    /* records are appended to `out` as they are made */
    struct buffer out; /* records that the socket is still to be given */
    size_t sent;       /* bytes at the front of `out` that it took */
    size_t owed;       /* bytes of the caller's that lie in `out` */
};

/* The first word of OpenSSL about what went wrong. */
static const char *reason(char text[160]) {
    unsigned long code = ERR_get_error();
    if (code == 0) return "the connection was closed";
    const char *word = ERR_reason_error_string(code);
    (void)snprintf(text, 160, "%s", word != NULL ? word : "error of OpenSSL");
    ERR_clear_error();
    return text;
}

static int fail_openssl(ty_error *err, const char *what) {
    char text[160];
    return ty_fail(err, TY_ECOMM, "%s: %s", what, reason(text));
}

/* -- the key of a node */

static bool derive(const struct run_key *key, const char *identity, unsigned char psk[PSK_SIZE]) {
    static char digest[] = "SHA256", salt[] = "trainyard";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (char *)key->text, strlen(key->text)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, strlen(salt)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (char *)identity, strlen(identity)),
        OSSL_PARAM_construct_end(),
    };
    bool derived = context != NULL && EVP_KDF_derive(context, psk, PSK_SIZE, parameters) > 0;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return derived;
}

/* What OpenSSL takes for a key: a session that never was. */
static SSL_SESSION *make_session(SSL *ssl, const struct run_key *key, const char *identity) {
    static const unsigned char AES_128_GCM_SHA256[] = {0x13, 0x01};
    unsigned char psk[PSK_SIZE];
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, AES_128_GCM_SHA256);
    SSL_SESSION *session = SSL_SESSION_new();
    bool made = session != NULL && cipher != NULL && derive(key, identity, psk) &&
                SSL_SESSION_set1_master_key(session, psk, sizeof psk) == 1 &&
                SSL_SESSION_set_cipher(session, cipher) == 1 &&
                SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    explicit_bzero(psk, sizeof psk);
    if (made) return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* The rank that a client says it has. */
static bool read_identity(const unsigned char *bytes, size_t size, char identity[IDENTITY_SIZE],
                          uint32_t *node_rank) {
    int64_t rank;
    size_t prefix = strlen(IDENTITY);
    if (size <= prefix || size >= IDENTITY_SIZE || memcmp(bytes, IDENTITY, prefix) != 0) return false;
    memcpy(identity, bytes, size);
    identity[size] = '\0';
    if (strlen(identity) != size || !str_to_int64(identity + prefix, 0, UINT32_MAX, &rank)) return false;
    *node_rank = (uint32_t)rank;
    return true;
}

static int find_session(SSL *ssl, const unsigned char *bytes, size_t size, SSL_SESSION **session) {
    char identity[IDENTITY_SIZE];
    struct tls *tls = SSL_get_app_data(ssl);
    *session = NULL;
    if (read_identity(bytes, size, identity, &tls->node_rank))
        *session = make_session(ssl, &tls->key, identity);
    return 1; /* without one the handshake ends, as there is no certificate */
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *size,
                       SSL_SESSION **session) {
    (void)digest;
    static _Thread_local char identity[IDENTITY_SIZE];
    struct tls *tls = SSL_get_app_data(ssl);
    int length = snprintf(identity, sizeof identity, "%s%u", IDENTITY, tls->node_rank);
    *session = make_session(ssl, &tls->key, identity);
    *id = (const unsigned char *)identity;
    *size = (size_t)length;
    return *session != NULL;
}

/* -- the way out
 *
 * OpenSSL writes record by record. Those of one call are gathered, so that the socket is given them at once: a
 * call for each costs the kernel more than the cipher does. */

/* 0 when nothing is left, or -errno. */
static int send_out(struct tls *tls) {
    while (tls->sent < tls->out.size) {
        const char *from = tls->out.data + tls->sent;
        ssize_t n = send(tls->fd, from, tls->out.size - tls->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR) return -errno;
        if (n > 0) tls->sent += (size_t)n;
    }
    /* Its memory stays while much is sent. */
    if (tls->out.size > RECORD)
        buffer_clear(&tls->out);
    else
        buffer_done(&tls->out);
    tls->sent = 0;
    return 0;
}

static int write_record(BIO *bio, const char *bytes, int size) {
    struct tls *tls = BIO_get_data(bio);
    ssize_t n = -1;
    BIO_clear_retry_flags(bio);
    if (tls->gathering) {
        buffer_append(&tls->out, bytes, (size_t)size);
        if (!tls->out.failed) return size;
        errno = ENOMEM;
    } else if (send_out(tls) == 0) {
        n = send(tls->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return (int)n;
}

static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back in a handshake */
}

/* -- contexts and connections */

static SSL_CTX *make_context(const SSL_METHOD *method, ty_error *err) {
    SSL_CTX *context = SSL_CTX_new(method);
    bool made = context != NULL && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                SSL_CTX_set1_groups_list(context, "X25519") == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
                SSL_CTX_set_max_early_data(context, 0) == 1;
    if (!made) {
        SSL_CTX_free(context);
        (void)fail_openssl(err, "cannot set up TLS");
        return NULL;
    }
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context,
                              SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    return context;
}

static int create_server(const struct run_key *key, struct tls_server **server, ty_error *err) {
    struct tls_server *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    made->key = *key;
    *server = made;
    return 0;
}

static void destroy_server(struct tls_server *server) {
    SSL_CTX_free(server->context);
    explicit_bzero(&server->key, sizeof server->key);
    free(server);
}

static void destroy(struct tls *tls, bool goodbye) {
    if (goodbye && SSL_is_init_finished(tls->ssl)) (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
    SSL_free(tls->ssl);
    buffer_done(&tls->out);
    explicit_bzero(&tls->key, sizeof tls->key);
    free(tls);
}

static BIO_METHOD *way_out;

static void make_way_out(void) {
    way_out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gathered records");
    bool made = way_out != NULL && BIO_meth_set_write(way_out, write_record) == 1 &&
                BIO_meth_set_ctrl(way_out, control) == 1;
    if (made) return;
    BIO_meth_free(way_out);
    way_out = NULL;
}

static bool connect_ways(struct tls *tls) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_way_out);
    BIO *out = way_out != NULL ? BIO_new(way_out) : NULL;
    if (out == NULL) return false;
    BIO_set_data(out, tls);
    BIO_set_init(out, 1);
    SSL_set0_wbio(tls->ssl, out);
    return SSL_set_rfd(tls->ssl, tls->fd) == 1;
}

static int make_connection(SSL_CTX *context, const struct run_key *key, int fd, struct tls **tls,
                           ty_error *err) {
    struct tls *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct tls){.ssl = SSL_new(context), .fd = fd, .key = *key};
    if (made->ssl == NULL || !connect_ways(made)) {
        SSL_free(made->ssl);
        explicit_bzero(&made->key, sizeof made->key);
        free(made);
        return fail_openssl(err, "cannot begin TLS");
    }
    (void)SSL_set_app_data(made->ssl, made);
    *tls = made;
    return 0;
}

static int accept_connection(struct tls_server *server, int fd, struct tls **tls, ty_error *err) {
    if (server->context == NULL) {
        server->context = make_context(TLS_server_method(), err);
        if (server->context == NULL) return TY_ECOMM;
        SSL_CTX_set_psk_find_session_callback(server->context, find_session);
    }
    int result = make_connection(server->context, &server->key, fd, tls, err);
    if (result == 0) SSL_set_accept_state((*tls)->ssl);
    return result;
}

static int connect_to(const struct run_key *key, uint32_t node_rank, int fd, struct tls **tls, ty_error *err) {
    /* Of all clients of this process, as it knows no key, and takes longer to set up than a handshake. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static SSL_CTX *shared;
    (void)pthread_mutex_lock(&lock);
    if (shared == NULL && (shared = make_context(TLS_client_method(), err)) != NULL) {
        SSL_CTX_set_psk_use_session_callback(shared, use_session);
        SSL_CTX_set_verify(shared, SSL_VERIFY_PEER, NULL); /* nobody's certificate is trusted */
    }
    SSL_CTX *context = shared;
    (void)pthread_mutex_unlock(&lock);
    int result = context != NULL ? make_connection(context, key, fd, tls, err) : TY_ECOMM;
    if (result < 0) return result;
    (*tls)->node_rank = node_rank;
    SSL_set_connect_state((*tls)->ssl);
    return 0;
}

static int shake_hands(struct tls *tls, bool *writable, ty_error *err) {
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    *writable = false;
    if (result == 1) {
        explicit_bzero(&tls->key, sizeof tls->key);
        if (SSL_session_reused(tls->ssl) == 1) return 1;
        return ty_fail(err, TY_EPROTOCOL, "the peer did not prove that it has the key of the run");
    }
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        *writable = true;
        return 0;
    default: {
        char text[160];
        if (ERR_peek_error() == 0) return ty_fail(err, TY_ECOMM, "the other end closed the connection");
        return ty_fail(err, TY_EPROTOCOL, "the handshake failed (%s): have both the same key?", reason(text));
    }
    }
}

static uint32_t node_rank(const struct tls *tls) {
    return tls->node_rank;
}

static ssize_t result_of(const struct tls *tls, int result) {
    if (result > 0) return result;
    int saved = errno;
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return saved != 0 ? -saved : -ECONNRESET;
    default:
        ERR_clear_error();
        return -EBADMSG;
    }
}

/* SSL_read gives a record a call. An error, or the end, behind bytes that are read is told by the next call. */
static ssize_t read_some(struct tls *tls, void *to, size_t size) {
    char *at = to;
    size_t done = 0;
    ssize_t n = 0;
    if (size > INT_MAX) size = INT_MAX;
    do {
        ERR_clear_error();
        errno = 0;
        n = result_of(tls, SSL_read(tls->ssl, at + done, (int)(size - done)));
        if (n > 0) done += (size_t)n;
    } while (n > 0 && done < size && SSL_has_pending(tls->ssl) == 1);
    return done > 0 ? (ssize_t)done : n;
}

static ssize_t gather(struct tls *tls, const char *from, size_t size) {
    ssize_t n = 1;
    tls->gathering = true;
    while (n > 0 && tls->owed < size && tls->out.size + RECORD <= GATHERED) {
        ERR_clear_error();
        errno = 0;
        n = result_of(tls, SSL_write(tls->ssl, from + tls->owed, (int)(size - tls->owed)));
        if (n > 0) tls->owed += (size_t)n;
    }
    tls->gathering = false;
    return n;
}

/* The caller's bytes count as written when the socket has all of their records. Until then the caller is to
 * write the same again, as SSL_write itself would have it. */
static ssize_t write_some(struct tls *tls, const void *from, size_t size) {
    if (tls->owed > size) return -EBADMSG;
    ssize_t n = tls->owed == 0 ? gather(tls, from, size < INT_MAX ? size : INT_MAX) : 1;
    if (tls->owed == 0) return n == 0 ? -EPIPE : n;
    n = send_out(tls);
    if (n < 0) return n;
    n = (ssize_t)tls->owed;
    tls->owed = 0;
    return n;
}

static bool is_pending(const struct tls *tls) {
    return SSL_has_pending(tls->ssl) == 1;
}

TY_API extern const struct tls_module trainyard_tls;
const struct tls_module trainyard_tls = {
    .version = base_build,
    .server_create = create_server,
    .server_destroy = destroy_server,
    .accept = accept_connection,
    .connect = connect_to,
    .destroy = destroy,
    .shake_hands = shake_hands,
    .node_rank = node_rank,
    .read = read_some,
    .write = write_some,
    .pending = is_pending,
};
