/* TLS by OpenSSL over a pair of sockets: what one call writes goes to the socket at once, also where the
 * socket takes a part of it, and what has come is read by one call. The peer is another end of ours, or
 * OpenSSL alone. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/record.h"
#include "wire/tls.h"

enum { SIZE = 100 << 10, RECORD = 16 << 10 };
extern const struct tls_module trainyard_tls;
static const struct tls_module *const module = &trainyard_tls;
static int sends;
static uint64_t records_before; /* that count as sealed by a key when it is new */

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    sends++;
    return __real_send(fd, bytes, size, flags);
}

bool __real_record_begin(struct record_way *way, const uint8_t secret[RECORD_SECRET]);
bool __wrap_record_begin(struct record_way *way, const uint8_t secret[RECORD_SECRET]);

bool __wrap_record_begin(struct record_way *way, const uint8_t secret[RECORD_SECRET]) {
    bool begun = __real_record_begin(way, secret);
    way->sequence = records_before;
    return begun;
}

struct pair {
    int fds[2];
    struct tls_server *server;
    struct tls *near, *far;
    char bytes[SIZE], seen[SIZE];
};

static int set_up(void **state) {
    struct pair *pair = calloc(1, sizeof *pair);
    struct run_key key;
    bool writable;
    *state = pair;
    if (pair == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds) < 0) return -1;
    if (key_make(&key, NULL) < 0 || module->server_create(&key, &pair->server, NULL) < 0 ||
        module->accept(pair->server, pair->fds[0], &pair->near, NULL) < 0 ||
        module->connect(&key, 3, pair->fds[1], &pair->far, NULL) < 0)
        return -1;
    for (int near = 0, far = 0; near == 0 || far == 0;) {
        if (near == 0) near = module->shake_hands(pair->near, &writable, NULL);
        if (far == 0) far = module->shake_hands(pair->far, &writable, NULL);
        if (near < 0 || far < 0) return -1;
    }
    for (size_t i = 0; i < SIZE; i++)
        pair->bytes[i] = (char)(i / 251 + i);
    sends = 0;
    return 0;
}

static int tear_down(void **state) {
    struct pair *pair = *state;
    if (pair->near != NULL) module->destroy(pair->near, true);
    module->destroy(pair->far, true);
    module->server_destroy(pair->server);
    (void)close(pair->fds[0]);
    (void)close(pair->fds[1]);
    free(pair);
    return 0;
}

/* Reads what has come by now. */
static size_t take(struct pair *pair, size_t at) {
    for (ssize_t n; at < SIZE && (n = module->read(pair->far, pair->seen + at, SIZE - at)) > 0;)
        at += (size_t)n;
    return at;
}

static void many_records_are_written_and_read_at_once(void **state) {
    struct pair *pair = *state;
    assert_int_equal(module->write(pair->near, pair->bytes, SIZE), SIZE);
    assert_int_equal(sends, 1);
    ssize_t n = module->read(pair->far, pair->seen, SIZE);
    assert_true(n > RECORD);
    assert_int_equal(take(pair, (size_t)n), SIZE);
    assert_memory_equal(pair->seen, pair->bytes, SIZE);
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), -EAGAIN);
}

static void a_small_one_waits_for_no_other(void **state) {
    struct pair *pair = *state;
    for (size_t at = 0; at < 50; at += 10) {
        assert_int_equal(module->write(pair->near, pair->bytes + at, 10), 10);
        assert_int_equal(module->read(pair->far, pair->seen + at, SIZE), 10);
    }
    assert_memory_equal(pair->seen, pair->bytes, 50);
}

static void what_the_socket_does_not_take_follows(void **state) {
    struct pair *pair = *state;
    int size = 20 << 10;
    size_t at = 0;
    ssize_t n;
    assert_int_equal(setsockopt(pair->fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_int_equal(module->write(pair->near, pair->bytes, SIZE), -EAGAIN);
    assert_int_equal(module->write(pair->near, pair->bytes, 10), -EBADMSG); /* not what it was given before */
    while ((n = module->write(pair->near, pair->bytes, SIZE)) == -EAGAIN)
        at = take(pair, at);
    assert_int_equal(n, SIZE);
    assert_int_equal(take(pair, at), SIZE);
    assert_memory_equal(pair->seen, pair->bytes, SIZE);
}

static void the_end_is_read_behind_what_was_written(void **state) {
    struct pair *pair = *state;
    assert_int_equal(module->write(pair->near, pair->bytes, SIZE), SIZE);
    module->destroy(pair->near, true);
    pair->near = NULL;
    assert_int_equal(take(pair, 0), SIZE);
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), 0);
    assert_memory_equal(pair->seen, pair->bytes, SIZE - 1);
}

/* What follows at once is read together with the last words of the handshake. */
static void what_comes_with_the_handshake_is_read(void **state) {
    struct pair *pair = *state;
    struct tls *near, *far;
    struct run_key key;
    bool writable;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    struct tls_server *server;
    assert_int_equal(key_make(&key, NULL), 0);
    assert_int_equal(module->server_create(&key, &server, NULL), 0);
    assert_int_equal(module->accept(server, fds[0], &near, NULL), 0);
    assert_int_equal(module->connect(&key, 3, fds[1], &far, NULL), 0);
    assert_int_equal(module->shake_hands(far, &writable, NULL), 0);
    assert_int_equal(module->shake_hands(near, &writable, NULL), 0);
    assert_int_equal(module->shake_hands(far, &writable, NULL), 1);
    assert_int_equal(module->write(far, "at once", 7), 7);
    assert_int_equal(module->shake_hands(near, &writable, NULL), 1);
    assert_true(module->pending(near)); /* the socket is empty */
    assert_int_equal(module->read(near, pair->seen, SIZE), 7);
    assert_memory_equal(pair->seen, "at once", 7);
    assert_false(module->pending(near));
    module->destroy(near, true);
    module->destroy(far, true);
    module->server_destroy(server);
    assert_int_equal(close(fds[0]) + close(fds[1]), 0);
}

static void it_is_read_in_pieces_of_any_size(void **state) {
    struct pair *pair = *state;
    static const size_t pieces[] = {1, 7, 4096, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD};
    size_t at = 0;
    assert_int_equal(module->write(pair->near, pair->bytes, SIZE), SIZE);
    for (size_t i = 0; at < SIZE; i++) {
        size_t piece = pieces[i % (sizeof pieces / sizeof *pieces)];
        ssize_t n = module->read(pair->far, pair->seen + at, piece < SIZE - at ? piece : SIZE - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_memory_equal(pair->seen, pair->bytes, SIZE);
    assert_false(module->pending(pair->far));
}

/* The network may cut a record anywhere. */
static void a_part_of_a_record_is_waited_for(void **state) {
    struct pair *pair = *state;
    char raw[100];
    assert_int_equal(module->write(pair->near, "hello", 5), 5);
    ssize_t size = recv(pair->fds[1], raw, sizeof raw, 0);
    assert_int_equal(size, 5 + RECORD_EXTRA);
    for (ssize_t i = 0; i < size; i++) {
        assert_int_equal(module->read(pair->far, pair->seen, SIZE), -EAGAIN);
        assert_false(module->pending(pair->far));
        assert_int_equal(send(pair->fds[0], raw + i, 1, 0), 1);
    }
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), 5);
    assert_memory_equal(pair->seen, "hello", 5);
}

/* By the socket, behind something true. What was read before counts, and nothing after it. */
static void refuse(struct pair *pair, const void *raw, size_t size) {
    assert_int_equal(module->write(pair->near, "true", 4), 4);
    assert_int_equal(send(pair->fds[0], raw, size, 0), size);
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), 4);
    assert_true(module->pending(pair->far));
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), -EBADMSG);
    assert_int_equal(module->write(pair->near, "more", 4), 4);
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), -EBADMSG);
}

static void garbage_ends_it(void **state) {
    refuse(*state, "GET / HTTP/1.0\r\n\r\n", 18);
}

static void an_oversized_record_is_not_waited_for(void **state) {
    refuse(*state, "\x17\x03\x03\xff\xff", 5);
}

static void a_replayed_record_ends_it(void **state) {
    struct pair *pair = *state;
    char raw[100];
    assert_int_equal(module->write(pair->near, "once", 4), 4);
    ssize_t size = recv(pair->fds[1], raw, sizeof raw, MSG_PEEK);
    assert_int_equal(module->read(pair->far, pair->seen, SIZE), 4);
    refuse(pair, raw, (size_t)size);
}

static int set_up_old_keys(void **state) {
    records_before = RECORDS_A_KEY - 2;
    int result = set_up(state);
    records_before = 0;
    return result;
}

static void a_key_that_has_sealed_enough_is_followed_by_the_next(void **state) {
    struct pair *pair = *state;
    for (int i = 0; i < 2; i++) { /* the second time both ways have new keys */
        assert_int_equal(module->write(pair->near, pair->bytes, SIZE), SIZE);
        assert_int_equal(take(pair, 0), SIZE);
        assert_memory_equal(pair->seen, pair->bytes, SIZE);
        assert_int_equal(module->write(pair->far, pair->bytes, 4 * RECORD), 4 * RECORD);
        assert_int_equal(module->read(pair->near, pair->seen, SIZE), 4 * RECORD);
        assert_memory_equal(pair->seen, pair->bytes, 4 * RECORD);
    }
}

/* -- OpenSSL alone at the other end */

struct stranger {
    struct pair pair; /* without `far` */
    SSL_CTX *context;
    SSL *ssl;
};

static struct run_key stranger_key;

/* HKDF-SHA256 of the run's key, as docs/security.md has it. */
static int give_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *size,
                        SSL_SESSION **session) {
    static const unsigned char IDENTITY[] = "trainyard 1 node 7\1", CIPHER[] = {0x13, 0x01};
    unsigned char extracted[32], psk[32];
    (void)digest;
    (void)HMAC(EVP_sha256(), "trainyard", 9, (const unsigned char *)stranger_key.text,
               strlen(stranger_key.text), extracted, NULL);
    (void)HMAC(EVP_sha256(), extracted, sizeof extracted, IDENTITY, sizeof IDENTITY - 1, psk, NULL);
    *session = SSL_SESSION_new();
    *id = IDENTITY;
    *size = sizeof IDENTITY - 2;
    return SSL_SESSION_set1_master_key(*session, psk, sizeof psk) == 1 &&
           SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, CIPHER)) == 1 &&
           SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION) == 1;
}

static int set_up_stranger(void **state) {
    struct stranger *stranger = calloc(1, sizeof *stranger);
    bool writable;
    *state = stranger;
    if (stranger == NULL) return -1;
    struct pair *pair = &stranger->pair;
    stranger->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_psk_use_session_callback(stranger->context, give_session);
    stranger->ssl = SSL_new(stranger->context);
    if (stranger->ssl == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds) < 0 ||
        SSL_set_fd(stranger->ssl, pair->fds[1]) != 1 || key_make(&stranger_key, NULL) < 0 ||
        module->server_create(&stranger_key, &pair->server, NULL) < 0 ||
        module->accept(pair->server, pair->fds[0], &pair->near, NULL) < 0)
        return -1;
    for (int near = 0, far = 0; near == 0 || far != 1;) {
        if (far != 1) far = SSL_connect(stranger->ssl);
        if (near == 0) near = module->shake_hands(pair->near, &writable, NULL);
        if (near < 0 || (far != 1 && SSL_get_error(stranger->ssl, far) != SSL_ERROR_WANT_READ)) return -1;
    }
    for (size_t i = 0; i < SIZE; i++)
        pair->bytes[i] = (char)(i / 251 + i);
    return 0;
}

static int tear_down_stranger(void **state) {
    struct stranger *stranger = *state;
    struct pair *pair = &stranger->pair;
    if (pair->near != NULL) module->destroy(pair->near, true);
    module->server_destroy(pair->server);
    SSL_free(stranger->ssl);
    SSL_CTX_free(stranger->context);
    (void)close(pair->fds[0]);
    (void)close(pair->fds[1]);
    free(stranger);
    return 0;
}

static void talk(struct stranger *stranger) {
    struct pair *pair = &stranger->pair;
    size_t at = 0;
    assert_int_equal(module->write(pair->near, pair->bytes, SIZE), SIZE);
    for (int n; at < SIZE; at += (size_t)n) {
        n = SSL_read(stranger->ssl, pair->seen + at, (int)(SIZE - at));
        assert_true(n > 0);
    }
    assert_memory_equal(pair->seen, pair->bytes, SIZE);
    assert_int_equal(SSL_write(stranger->ssl, pair->bytes, RECORD + 1), RECORD + 1);
    assert_int_equal(module->read(pair->near, pair->seen, SIZE), RECORD + 1);
    assert_memory_equal(pair->seen, pair->bytes, RECORD + 1);
}

static void it_is_tls_to_others(void **state) {
    struct stranger *stranger = *state;
    assert_int_equal(module->node_rank(stranger->pair.near), 7);
    talk(stranger);
    talk(stranger);
}

static void others_may_go_on_with_their_next_key(void **state) {
    struct stranger *stranger = *state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(SSL_key_update(stranger->ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(stranger->ssl), 1);
        talk(stranger);
    }
}

static void others_hear_of_the_end_and_tell_of_theirs(void **state) {
    struct stranger *stranger = *state;
    struct pair *pair = &stranger->pair;
    char byte;
    assert_int_equal(SSL_shutdown(stranger->ssl), 0);
    assert_int_equal(module->read(pair->near, &byte, 1), 0);
    module->destroy(pair->near, true);
    pair->near = NULL;
    assert_int_equal(SSL_read(stranger->ssl, &byte, 1), 0);
    assert_int_equal(SSL_get_error(stranger->ssl, 0), SSL_ERROR_ZERO_RETURN);
}

/* Which our own ends never say. */
static void a_request_of_another_handshake_ends_it(void **state) {
    struct stranger *stranger = *state;
    char byte;
    assert_int_equal(SSL_key_update(stranger->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_do_handshake(stranger->ssl), 1);
    assert_int_equal(module->read(stranger->pair.near, &byte, 1), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_records_are_written_and_read_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_small_one_waits_for_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_socket_does_not_take_follows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_is_read_behind_what_was_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_with_the_handshake_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_read_in_pieces_of_any_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_part_of_a_record_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_oversized_record_is_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replayed_record_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_has_sealed_enough_is_followed_by_the_next, set_up_old_keys,
                                        tear_down),
        cmocka_unit_test_setup_teardown(it_is_tls_to_others, set_up_stranger, tear_down_stranger),
        cmocka_unit_test_setup_teardown(others_may_go_on_with_their_next_key, set_up_stranger,
                                        tear_down_stranger),
        cmocka_unit_test_setup_teardown(others_hear_of_the_end_and_tell_of_theirs, set_up_stranger,
                                        tear_down_stranger),
        cmocka_unit_test_setup_teardown(a_request_of_another_handshake_ends_it, set_up_stranger,
                                        tear_down_stranger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
