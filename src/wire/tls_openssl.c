/* TLS by OpenSSL, which shakes hands; the records that follow are made and opened by record.h, with the
 * secrets of that handshake. The pre-shared key of a node is HKDF-SHA256 of the run's key with the node's
 * rank: what one node proves does not speak for another, and as a server never proves anything with a key
 * of its own, nothing can be reflected. A session counts only when it was made with the key ("reused", as
 * OpenSSL calls that): a handshake that went another way, by a certificate, is refused. */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
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
#include "wire/record.h"
#include "wire/tls.h"

/* RECORD: a full one as it travels. READ_AHEAD: what is taken from a socket at once. GATHERED: what a socket is
 * given at once. HANDSHAKE: as much as an end says in one go. SMALL: a record that costs nothing to copy. */
enum {
    PSK_SIZE = 32,
    IDENTITY_SIZE = 64,
    RECORD = RECORD_PLAIN + RECORD_EXTRA,
    READ_AHEAD = 4 * RECORD,
    GATHERED = 16 * RECORD,
    HANDSHAKE = 2 << 10,
    SMALL = 1 << 10
};
static const char IDENTITY[] = "trainyard 1 node ";
/* What the ends of a connection say to each other behind the handshake: the end, and that the next key
 * follows. */
static const uint8_t CLOSE_NOTIFY[] = {1, 0}, KEY_UPDATE[] = {24, 0, 0, 1, 0};

struct tls_server {
    SSL_CTX *context; /* NULL until the first comes: it takes longer to set up than a handshake */
    struct run_key key;
};

/* What is freed as soon as both ends have proven that they have the key. */
struct handshake {
    SSL *ssl;
    struct run_key key;
    bool told_client, told_server; /* OpenSSL has told their secrets */
    uint8_t client[RECORD_SECRET], server[RECORD_SECRET];
};

struct tls {
    int fd;
    uint32_t node_rank;
    struct handshake *handshake; /* NULL: it is over */
    struct record_way reading, writing;
    struct buffer in; /* was read from the socket and not handed on */
    size_t opened;    /* bytes at the front of `in` that are plain text; records follow */
    bool ended;       /* nothing more can be read: `fault` is 0 at the peer's end, or why */
    int fault;
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

/* What OpenSSL takes for a key: a session that never was. */
static SSL_SESSION *make_session(SSL *ssl, const struct run_key *key, const char *identity) {
    static const unsigned char AES_128_GCM_SHA256[] = {0x13, 0x01};
    static char digest[] = "SHA256", salt[] = "trainyard";
    unsigned char psk[PSK_SIZE];
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (char *)key->text, strlen(key->text)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, strlen(salt)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (char *)identity, strlen(identity)),
        OSSL_PARAM_construct_end(),
    };
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, AES_128_GCM_SHA256);
    SSL_SESSION *session = SSL_SESSION_new();
    bool made = session != NULL && cipher != NULL && record_derive("HKDF", parameters, psk, sizeof psk) &&
                SSL_SESSION_set1_master_key(session, psk, sizeof psk) == 1 &&
                SSL_SESSION_set_cipher(session, cipher) == 1 &&
                SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    explicit_bzero(psk, sizeof psk);
    if (made) return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* The session of the rank that a client says it has. Where the client says something else there is none, and
 * the handshake ends, as there is no certificate either. */
static int find_session(SSL *ssl, const unsigned char *bytes, size_t size, SSL_SESSION **session) {
    struct tls *tls = SSL_get_app_data(ssl);
    char identity[IDENTITY_SIZE];
    size_t prefix = strlen(IDENTITY);
    int64_t rank;
    *session = NULL;
    if (size <= prefix || size >= sizeof identity || memcmp(bytes, IDENTITY, prefix) != 0) return 1;
    memcpy(identity, bytes, size);
    identity[size] = '\0';
    if (strlen(identity) != size || !str_to_int64(identity + prefix, 0, UINT32_MAX, &rank)) return 1;
    tls->node_rank = (uint32_t)rank;
    *session = make_session(ssl, &tls->handshake->key, identity);
    return 1;
}

/* The client's side. The memory of the identity stays ours: each thread has a place for one. */
static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *size,
                       SSL_SESSION **session) {
    (void)digest;
    static _Thread_local char identity[IDENTITY_SIZE];
    struct tls *tls = SSL_get_app_data(ssl);
    int length = snprintf(identity, sizeof identity, "%s%u", IDENTITY, tls->node_rank);
    *session = make_session(ssl, &tls->handshake->key, identity);
    *id = (const unsigned char *)identity;
    *size = (size_t)length;
    return *session != NULL;
}

/* -- the handshake's way to the socket: it takes no more than it needs of what was read */

static int write_handshake(BIO *bio, const char *bytes, int size) {
    const struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n = send(tls->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return (int)n;
}

/* OpenSSL asks for a few bytes at a time; what is read at once beyond the handshake stays in `in`, and is the
 * first that read_some opens. */
static int read_handshake(BIO *bio, char *to, int size) {
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->in.size == 0) {
        char *from = buffer_reserve(&tls->in, HANDSHAKE);
        ssize_t n = from != NULL ? recv(tls->fd, from, HANDSHAKE, MSG_DONTWAIT) : -1;
        if (n < 0 && from != NULL && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
        if (n <= 0) return (int)n;
        tls->in.size = (size_t)n;
    }
    size_t taken = (size_t)size < tls->in.size ? (size_t)size : tls->in.size;
    memcpy(to, tls->in.data, taken);
    buffer_consume(&tls->in, taken);
    return (int)taken;
}

static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* "CLIENT_TRAFFIC_SECRET_0 RANDOM SECRET", the latter two as hexadecimal digits: how OpenSSL tells secrets. */
static void take_secret(const SSL *ssl, const char *line) {
    static const char CLIENT[] = "CLIENT_TRAFFIC_SECRET_0 ", SERVER[] = "SERVER_TRAFFIC_SECRET_0 ";
    struct handshake *handshake = ((struct tls *)SSL_get_app_data(ssl))->handshake;
    const char *digits = strrchr(line, ' ') + 1;
    bool client = strncmp(line, CLIENT, strlen(CLIENT)) == 0,
         server = strncmp(line, SERVER, strlen(SERVER)) == 0;
    size_t size = 0;
    if (!client && !server) return;
    uint8_t *to = client ? handshake->client : handshake->server;
    bool *told = client ? &handshake->told_client : &handshake->told_server;
    *told = OPENSSL_hexstr2buf_ex(to, RECORD_SECRET, &size, digits, '\0') == 1 && size == RECORD_SECRET;
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
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_keylog_callback(context, take_secret);
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

static void end_handshake(struct tls *tls) {
    if (tls->handshake == NULL) return;
    SSL_free(tls->handshake->ssl);
    explicit_bzero(tls->handshake, sizeof *tls->handshake);
    free(TAKE(tls->handshake));
}

static BIO_METHOD *way;

static void make_way(void) {
    way = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "a handshake's way");
    bool made = way != NULL && BIO_meth_set_write(way, write_handshake) == 1 &&
                BIO_meth_set_read(way, read_handshake) == 1 && BIO_meth_set_ctrl(way, control) == 1;
    if (made) return;
    BIO_meth_free(way);
    way = NULL;
}

/* SSL_set_bio takes the BIO over: from there on it goes with the SSL object. */
static int make_connection(SSL_CTX *context, const struct run_key *key, int fd, struct tls **tls,
                           ty_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tls *made = calloc(1, sizeof *made);
    struct handshake *handshake = calloc(1, sizeof *handshake);
    if (made == NULL || handshake == NULL) {
        free(made);
        free(handshake);
        return ty_fail_memory(err);
    }
    handshake->key = *key;
    *made = (struct tls){.fd = fd, .handshake = handshake};
    (void)pthread_once(&once, make_way);
    handshake->ssl = SSL_new(context);
    BIO *bio = handshake->ssl != NULL && way != NULL ? BIO_new(way) : NULL;
    if (bio != NULL) {
        BIO_set_data(bio, made);
        BIO_set_init(bio, 1);
        SSL_set_bio(handshake->ssl, bio, bio);
    }
    if (bio == NULL || SSL_set_app_data(handshake->ssl, made) != 1) {
        end_handshake(made);
        free(made);
        return fail_openssl(err, "cannot begin TLS");
    }
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
    if (result == 0) SSL_set_accept_state((*tls)->handshake->ssl);
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
    SSL_set_connect_state((*tls)->handshake->ssl);
    return 0;
}

/* At the end the secrets move into the two ways, and OpenSSL's object is freed with all that it holds. That a
 * session was "reused" is the proof of the key, so it is asked before anything of the connection counts. */
static int shake_hands(struct tls *tls, bool *writable, ty_error *err) {
    const struct handshake *handshake = tls->handshake;
    SSL *ssl = handshake->ssl;
    ERR_clear_error();
    int result = SSL_do_handshake(ssl);
    *writable = false;
    if (result == 1) {
        if (SSL_session_reused(ssl) != 1)
            return ty_fail(err, TY_EPROTOCOL, "the peer did not prove that it has the key of the run");
        bool serves = SSL_is_server(ssl) == 1;
        const uint8_t *ours = serves ? handshake->server : handshake->client;
        const uint8_t *theirs = serves ? handshake->client : handshake->server;
        if (!handshake->told_client || !handshake->told_server || !record_begin(&tls->writing, ours) ||
            !record_begin(&tls->reading, theirs))
            return fail_openssl(err, "cannot go on after the handshake");
        end_handshake(tls);
        if (tls->in.size == 0) buffer_done(&tls->in);
        return 1;
    }
    switch (SSL_get_error(ssl, result)) {
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

/* -- reading */

static void end_reading(struct tls *tls, int fault) {
    tls->ended = true;
    tls->fault = fault;
}

static bool is_whole(const uint8_t *bytes, size_t n) {
    ssize_t size = record_size(bytes, n);
    return size < 0 || (size > 0 && (size_t)size <= n);
}

/* Opens the record of `size` bytes: a large one to the caller's room where it fits, else where it lies, and
 * what the caller has no room for becomes the front of `in`. The caller's bytes; -errno. */
static ssize_t open_record(struct tls *tls, EVP_CIPHER_CTX *cipher, uint8_t *record, size_t size, char *to,
                           size_t room) {
    bool fits = size > SMALL && size - RECORD_EXTRA < room;
    uint8_t *plain = fits ? (uint8_t *)to : record + RECORD_HEADER;
    enum record_type type;
    ssize_t opened = record_open(&tls->reading, cipher, record, size, plain, &type);
    if (opened < 0) return opened;
    size_t n = (size_t)opened, given = n < room ? n : room;
    if (type != RECORD_DATA) {
        /* A record that speaks to this end rather than to the caller: the peer ends, or goes on with its next
         * key. Nothing else is ever said by ours. */
        bool ends = type == RECORD_ALERT && n == sizeof CLOSE_NOTIFY && memcmp(plain, CLOSE_NOTIFY, n) == 0;
        bool renews = type == RECORD_HANDSHAKE && n == sizeof KEY_UPDATE && memcmp(plain, KEY_UPDATE, n) == 0;
        if (ends) end_reading(tls, 0);
        return ends || (renews && record_next_key(&tls->reading)) ? 0 : -EBADMSG;
    }
    if (fits) return opened;
    memcpy(to, plain, given);
    tls->opened = n - given;
    if (tls->opened > 0) buffer_append(&tls->in, plain + given, tls->opened);
    return (ssize_t)given;
}

/* Opens the whole records of `bytes`, as long as the caller has room: the caller's bytes. The rest is put
 * by. */
static size_t open_all(struct tls *tls, uint8_t *bytes, size_t n, char *to, size_t room) {
    size_t at = 0, done = 0;
    EVP_CIPHER_CTX *cipher = record_cipher(&tls->reading, false);
    if (cipher == NULL) end_reading(tls, -ENOMEM);
    while (!tls->ended && done < room && is_whole(bytes + at, n - at)) {
        uint64_t before = tls->reading.sequence;
        ssize_t size = record_size(bytes + at, n - at), opened = size;
        if (size > 0) opened = open_record(tls, cipher, bytes + at, (size_t)size, to + done, room - done);
        if (opened < 0) end_reading(tls, (int)opened);
        if (opened > 0) done += (size_t)opened;
        at += size > 0 ? (size_t)size : 0;
        if (tls->reading.sequence > before) continue;
        EVP_CIPHER_CTX_free(cipher); /* another key */
        cipher = record_cipher(&tls->reading, false);
        if (cipher == NULL) end_reading(tls, -ENOMEM);
    }
    EVP_CIPHER_CTX_free(cipher);
    if (!tls->ended && at < n) buffer_append(&tls->in, bytes + at, n - at);
    if (tls->in.failed) end_reading(tls, -ENOMEM);
    return done;
}

/* The socket is read to a place that all connections of a thread share, so that one that idles holds
 * nothing. An error, or the end, behind bytes that are read is told by the next call. */
static ssize_t read_some(struct tls *tls, void *to, size_t size) {
    static _Thread_local uint8_t bytes[READ_AHEAD];
    size_t done = tls->opened < size ? tls->opened : size, taken = 0;
    bool more = true;
    if (done > 0) { /* what was opened by a call before */
        memcpy(to, tls->in.data, done);
        buffer_consume(&tls->in, done);
        tls->opened -= done;
        if (tls->in.size == 0) buffer_done(&tls->in);
    }
    while (more && done < size && taken < size && !tls->ended) {
        size_t n = tls->in.size;
        if (n > 0) memcpy(bytes, tls->in.data, n);
        buffer_done(&tls->in);
        if (!is_whole(bytes, n)) {
            size_t wanted = sizeof bytes - n;
            if (wanted > size - done + RECORD) wanted = size - done + RECORD;
            ssize_t came = recv(tls->fd, bytes + n, wanted, MSG_DONTWAIT);
            if (came == 0 || (came < 0 && errno != EAGAIN && errno != EINTR))
                end_reading(tls, came == 0 ? 0 : -errno);
            more = came == (ssize_t)wanted;
            if (came > 0) taken += (size_t)came, n += (size_t)came;
        }
        done += open_all(tls, bytes, n, (char *)to + done, size - done);
    }
    if (done > 0) return (ssize_t)done;
    return tls->ended ? tls->fault : -EAGAIN;
}

static bool is_pending(const struct tls *tls) {
    return tls->opened > 0 || tls->ended || is_whole((const uint8_t *)tls->in.data, tls->in.size);
}

/* -- writing
 *
 * The records of one call are gathered, so that the socket is given them at once: a call for each costs the
 * kernel more than the cipher does. */

/* 0 when nothing is left, or -errno. */
static int send_out(struct tls *tls) {
    while (tls->sent < tls->out.size) {
        const char *from = tls->out.data + tls->sent;
        ssize_t n = send(tls->fd, from, tls->out.size - tls->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR) return -errno;
        if (n > 0) tls->sent += (size_t)n;
    }
    buffer_clear(&tls->out);
    tls->sent = 0;
    return 0;
}

static bool seal(struct tls *tls, EVP_CIPHER_CTX *cipher, enum record_type type, const void *from,
                 size_t size) {
    char *to = buffer_reserve(&tls->out, size + RECORD_EXTRA);
    size_t n = to != NULL ? record_seal(&tls->writing, cipher, type, from, size, (uint8_t *)to) : 0;
    tls->out.size += n;
    return n > 0;
}

/* Seals the caller's bytes, as many as may wait: 0 or -errno. */
static int gather(struct tls *tls, const char *from, size_t size) {
    size_t wanted = size + (size / RECORD_PLAIN + 1) * RECORD_EXTRA;
    bool sealed = buffer_reserve(&tls->out, wanted < GATHERED ? wanted : GATHERED) != NULL;
    EVP_CIPHER_CTX *cipher = record_cipher(&tls->writing, true);
    while (sealed && cipher != NULL && tls->owed < size && tls->out.size + RECORD <= GATHERED) {
        if (tls->writing.sequence >= RECORDS_A_KEY) {
            sealed = seal(tls, cipher, RECORD_HANDSHAKE, KEY_UPDATE, sizeof KEY_UPDATE) &&
                     record_next_key(&tls->writing);
            EVP_CIPHER_CTX_free(cipher);
            cipher = record_cipher(&tls->writing, true);
            continue;
        }
        size_t n = size - tls->owed < RECORD_PLAIN ? size - tls->owed : RECORD_PLAIN;
        sealed = seal(tls, cipher, RECORD_DATA, from + tls->owed, n);
        if (sealed) tls->owed += n;
    }
    EVP_CIPHER_CTX_free(cipher);
    return sealed && cipher != NULL ? 0 : -ENOMEM;
}

/* The caller's bytes count as written when the socket has all of their records. Until then the caller is to
 * write the same again. */
static ssize_t write_some(struct tls *tls, const void *from, size_t size) {
    if (tls->owed > size) return -EBADMSG;
    int result = tls->owed == 0 ? gather(tls, from, size) : 0;
    if (result == 0) result = send_out(tls);
    if (result < 0) return result;
    if (tls->owed == size) buffer_done(&tls->out); /* its memory stays while there is more */
    ssize_t n = (ssize_t)tls->owed;
    tls->owed = 0;
    return n;
}

/* A goodbye is sent only where all before it was, and where it fits at once: else the peer sees the end of the
 * connection, which tells as much. */
static void destroy(struct tls *tls, bool goodbye) {
    if (goodbye && tls->handshake == NULL) {
        EVP_CIPHER_CTX *cipher = send_out(tls) == 0 ? record_cipher(&tls->writing, true) : NULL;
        if (cipher != NULL && seal(tls, cipher, RECORD_ALERT, CLOSE_NOTIFY, sizeof CLOSE_NOTIFY))
            (void)send_out(tls);
        EVP_CIPHER_CTX_free(cipher);
    }
    end_handshake(tls);
    ERR_clear_error();
    buffer_done(&tls->in);
    buffer_done(&tls->out);
    explicit_bzero(tls, sizeof *tls);
    free(tls);
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
