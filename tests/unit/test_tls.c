/* TLS by OpenSSL over a pair of sockets: what one call writes goes to the socket at once, also where the socket
 * takes a part of it, and what has come is read by one call. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/tls.h"

enum { SIZE = 100 << 10, RECORD = 16 << 10 };
extern const struct tls_module trainyard_tls;
static const struct tls_module *const module = &trainyard_tls;
static int sends;

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    sends++;
    return __real_send(fd, bytes, size, flags);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_records_are_written_and_read_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_small_one_waits_for_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_socket_does_not_take_follows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_is_read_behind_what_was_written, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
