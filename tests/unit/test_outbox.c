/* What an agent gathers in a turn arrives, however much it is. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/outbox.h"
#include "base/cleanup.h"

enum { WORKERS = 80, TAIL = 1 << 20 };

static uint32_t n_events, n_messages;

static void on_message(void *context, const Wire__Message *message) {
    (void)context;
    if (message->body_case != WIRE__MESSAGE__BODY_EVENTS) return;
    n_messages++;
    for (size_t i = 0; i < message->events->n_events; i++) {
        assert_int_equal(message->events->events[i]->rank, n_events++);
        assert_int_equal(message->events->events[i]->tail.len, TAIL);
    }
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *text, size_t size) {
    (void)context, (void)rank, (void)stream, (void)text, (void)size;
}

static void on_closed(void *context, const ty_error *reason) {
    (void)context;
    fail_msg("%s", reason->message);
}

static const struct channel_events events = {.message = on_message, .output = on_output, .closed = on_closed};

/* More in all than a message may be. */
static void a_node_full_of_failures_is_told(void **state) {
    (void)state;
    int fds[2];
    struct channel *there;
    struct outbox outbox = {.loop = loop_create(NULL)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(channel_create(outbox.loop, fds[0], &events, NULL, &outbox.channel, NULL), 0);
    assert_int_equal(channel_create(outbox.loop, fds[1], &events, NULL, &there, NULL), 0);
    Wire__Hello hello = WIRE__HELLO__INIT;
    outbox_send(&outbox, &WIRE_MESSAGE(HELLO, hello, &hello));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__FAILED;
        event.rank = rank;
        event.tail.data = calloc(1, TAIL);
        event.tail.len = TAIL;
        assert_non_null(event.tail.data);
        outbox_event(&outbox, event);
    }
    outbox_flush(&outbox);
    assert_false(outbox.failed);
    for (int turn = 0; turn < 20000 && n_events < WORKERS; turn++)
        (void)loop_turn(outbox.loop, false);
    assert_int_equal(n_events, WORKERS);
    assert_true(n_messages > 1);
    outbox_done(&outbox);
    channel_destroy(outbox.channel);
    channel_destroy(there);
    while (loop_turn(outbox.loop, false)) {
    }
    loop_destroy(outbox.loop);
}

static int n_read;

static void on_readable(void *context, unsigned events_there) {
    struct outbox *outbox = context;
    (void)events_there;
    n_read++;
    Wire__Report report = WIRE__REPORT__INIT;
    report.kind = WIRE__REPORT__KIND__METRICS;
    CLEANUP_FREE char *metrics = calloc(1, TAIL);
    assert_non_null(metrics);
    outbox_report(outbox, report, metrics, TAIL);
}

static void no_half_is_full(void *context) {
    (void)context;
}

/* Nothing wakes it before there is room: it sleeps. */
static void who_is_adrift_and_full_rests(void **state) {
    (void)state;
    int fds[2];
    struct source source = {0};
    struct outbox outbox = {.loop = loop_create(NULL), .adrift = true, .kept.turned = no_half_is_full};
    outbox_keep(&outbox, true);
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(outbox_watch(&outbox, &source, fds[0], on_readable, &outbox), 0);
    while (!outbox_must_rest(&outbox, &source)) {
        on_readable(&outbox, 0);
        outbox_flush(&outbox);
    }
    assert_int_equal(write(fds[1], "x", 1), 1);
    n_read = 0;
    outbox_flush(&outbox);
    assert_int_equal(loop_timeout_ms(outbox.loop), -1);
    (void)loop_turn(outbox.loop, false);
    assert_int_equal(n_read, 0);
    outbox.adrift = false; /* nobody came: all may go */
    outbox_wake(&outbox);
    for (int turn = 0; turn < 100 && n_read == 0; turn++)
        (void)loop_turn(outbox.loop, false);
    assert_true(n_read > 0);
    outbox_close(&outbox, &source);
    (void)close(fds[1]);
    outbox_done(&outbox);
    while (loop_turn(outbox.loop, false)) {
    }
    loop_destroy(outbox.loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_node_full_of_failures_is_told),
                                       cmocka_unit_test(who_is_adrift_and_full_rests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
