/* Visitors of a gate when no descriptor is left for them: they wait, and so does the gate. And where it
 * listens. */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/gate.h"

static int n_let_in;

static void let_in(void *context, struct visitor *visitor) {
    (void)context;
    n_let_in++;
    gate_forget(visitor);
}

static void allow(rlim_t descriptors) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = descriptors;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int connect_to(const struct address *address) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address->socket, address->size), 0);
    return fd;
}

static void the_gate_rests_without_descriptors(void **state) {
    (void)state;
    struct gate gate = {.loop = loop_create(NULL), .most = 4, .limit = 60 * NS_PER_S, .let_in = let_in};
    struct address address = {.size = sizeof(struct sockaddr_in)};
    struct sockaddr_in *here = (struct sockaddr_in *)&address.socket;
    *here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int port = gate_listen(&gate, &address);
    assert_true(port > 0);
    address_set_port(&address, (uint16_t)port);
    int visitor = connect_to(&address);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    allow((rlim_t)visitor);
    (void)loop_turn(gate.loop, true);
    struct pollfd woken = {.fd = loop_fd(gate.loop), .events = POLLIN};
    assert_int_not_equal(loop_timeout_ms(gate.loop), 0);
    assert_int_equal(poll(&woken, 1, 0), 0); /* it is not woken again and again */
    assert_int_equal(n_let_in, 0);
    allow(before.rlim_cur);
    while (n_let_in == 0)
        (void)loop_turn(gate.loop, true);
    (void)close(visitor);
    gate_close(&gate);
    while (loop_turn(gate.loop, false)) {
    }
    loop_destroy(gate.loop);
}

/* In one draw of 60 the kernel gives a port in IPv6 that one of the others has in IPv4. */
static void a_port_that_another_has_bound_is_left_to_it(void **state) {
    enum { OTHERS = 450, GATES = 600 };
    (void)state;
    static bool taken[65536];
    int others[OTHERS];
    for (size_t i = 0; i < OTHERS; i++) {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof name;
        others[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(setsockopt(others[i], SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
        assert_int_equal(bind(others[i], (const struct sockaddr *)&name, size), 0);
        assert_int_equal(getsockname(others[i], (struct sockaddr *)&name, &size), 0);
        taken[ntohs(name.sin_port)] = true;
    }
    struct gate gate = {.loop = loop_create(NULL), .most = 4, .limit = 60 * NS_PER_S, .let_in = let_in};
    for (size_t i = 0; i < GATES; i++) {
        int port = gate_listen_anywhere(&gate);
        assert_true(port > 0);
        assert_false(taken[port]);
        gate_stop_listening(&gate);
        (void)loop_turn(gate.loop, false);
    }
    gate_close(&gate);
    while (loop_turn(gate.loop, false)) {
    }
    loop_destroy(gate.loop);
    for (size_t i = 0; i < OTHERS; i++)
        (void)close(others[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_gate_rests_without_descriptors),
                                       cmocka_unit_test(a_port_that_another_has_bound_is_left_to_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
