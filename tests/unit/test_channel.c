/* Channels over real sockets and the real loop: order, back-pressure, the end of the peer, hostile peers, and
 * callbacks that pause or destroy the channel under them. */
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

#include "base/cleanup.h"
#include "wire/channel.h"

struct end {
    struct channel *channel;
    struct buffer seen; /* what arrived, as text */
    size_t output_bytes;
    int messages, drained, closed;
    ty_error reason;
    bool pause_each, destroy_each, check_order;
};

struct fixture {
    struct loop *loop;
    struct end left, right;
    int raw; /* right's socket when nothing stands on it */
};

static void react(struct end *end) {
    if (end->pause_each) channel_pause(end->channel, true);
    if (end->destroy_each) channel_destroy(TAKE(end->channel));
}

static void on_message(void *context, const Wire__Message *message) {
    struct end *end = context;
    end->messages++;
    if (message->body_case == WIRE__MESSAGE__BODY_LOG) buffer_printf(&end->seen, "%s;", message->log->text);
    if (message->body_case == WIRE__MESSAGE__BODY_HELLO)
        buffer_printf(&end->seen, "hello %s;", message->hello->node_name);
    react(end);
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    struct end *end = context;
    if (end->check_order) assert_memory_equal(bytes, &end->output_bytes, sizeof end->output_bytes);
    end->output_bytes += size;
    if (size < 64) buffer_printf(&end->seen, "%u/%d:%.*s;", rank, stream, (int)size, (const char *)bytes);
    react(end);
}

static void on_drained(void *context) {
    struct end *end = context;
    end->drained++;
}

static void on_closed(void *context, const ty_error *reason) {
    struct end *end = context;
    end->closed++;
    end->reason = *reason;
    if (end->destroy_each) channel_destroy(TAKE(end->channel));
}

static const struct channel_events events = {on_message, on_output, on_drained, on_closed, NULL};

static void make_end(struct fixture *fixture, struct end *end, int fd) {
    ty_error err = {0};
    assert_int_equal(channel_create(fixture->loop, fd, &events, end, &end->channel, &err), 0);
}

static int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    int fds[2];
    if (fixture == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) return -1;
    fixture->loop = loop_create(NULL);
    make_end(fixture, &fixture->left, fds[0]);
    fixture->raw = fds[1];
    *state = fixture;
    return 0;
}

static int set_up_both(void **state) {
    if (set_up(state) < 0) return -1;
    struct fixture *fixture = *state;
    make_end(fixture, &fixture->right, TAKE_FD(fixture->raw));
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    channel_destroy(fixture->left.channel);
    channel_destroy(fixture->right.channel);
    while (loop_turn(fixture->loop, false)) {
    }
    loop_destroy(fixture->loop);
    cleanup_fd(&fixture->raw);
    buffer_done(&fixture->left.seen);
    buffer_done(&fixture->right.seen);
    free(fixture);
    return 0;
}

static void turn(struct fixture *fixture) {
    for (int i = 0; i < 50; i++)
        (void)loop_turn(fixture->loop, false);
}

static int send_hello(struct channel *channel, const char *name) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    hello.node_name = (char *)(uintptr_t)name;
    return channel_send(channel, &WIRE_MESSAGE(HELLO, hello, &hello));
}

static int send_log(struct channel *channel, const char *text) {
    Wire__Log log = WIRE__LOG__INIT;
    log.text = (char *)(uintptr_t)text;
    return channel_send(channel, &WIRE_MESSAGE(LOG, log, &log));
}

static void send_output(struct channel *channel, uint32_t rank, const void *bytes, size_t size) {
    struct buffer *out = channel_out(channel);
    size_t offset = frame_output_begin(out, rank, 1);
    buffer_append(out, bytes, size);
    frame_output_end(out, offset);
}

static void bad_descriptors_are_refused(void **state) {
    (void)state;
    struct loop *loop = loop_create(NULL);
    struct channel *channel = NULL;
    ty_error err = {0};
    assert_int_equal(channel_create(loop, -1, &events, NULL, &channel, &err), -9 /* EBADF */);
    assert_null(channel);
    assert_true(err.message[0] != '\0');
    channel_destroy(NULL);
    loop_destroy(loop);
}

static void both_ways_in_order(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(send_hello(fixture->left.channel, "n1"), 0);
    assert_int_equal(send_log(fixture->left.channel, "one"), 0);
    send_output(fixture->left.channel, 3, "two\n", 4);
    assert_int_equal(send_log(fixture->left.channel, "three"), 0);
    assert_false(channel_empty(fixture->left.channel));
    channel_flush(fixture->left.channel);
    assert_true(channel_empty(fixture->left.channel));
    turn(fixture);
    assert_string_equal(fixture->right.seen.data, "hello n1;one;3/1:two\n;three;");
    assert_int_equal(send_log(fixture->right.channel, "back"), 0);
    channel_flush(fixture->right.channel);
    turn(fixture);
    assert_string_equal(fixture->left.seen.data, "back;");
    assert_int_equal(fixture->left.closed + fixture->right.closed, 0);
}

static void what_came_before_the_end_is_handed_on(void **state) {
    struct fixture *fixture = *state;
    (void)send_hello(fixture->left.channel, "n1");
    (void)send_log(fixture->left.channel, "last words");
    channel_flush(fixture->left.channel);
    channel_destroy(TAKE(fixture->left.channel));
    turn(fixture);
    assert_string_equal(fixture->right.seen.data, "hello n1;last words;");
    assert_int_equal(fixture->right.closed, 1);
    assert_int_equal(fixture->right.reason.code, 0);
    assert_int_equal(send_log(fixture->right.channel, "too late"), TY_ECOMM);
    turn(fixture);
    assert_int_equal(fixture->right.closed, 1);
}

static void writing_to_the_dead_is_not_the_end_of_reading(void **state) {
    struct fixture *fixture = *state;
    (void)send_hello(fixture->left.channel, "n1");
    channel_flush(fixture->left.channel);
    channel_destroy(TAKE(fixture->left.channel));
    (void)send_log(fixture->right.channel, "nobody reads this");
    channel_flush(fixture->right.channel);
    assert_true(channel_empty(fixture->right.channel));
    turn(fixture);
    assert_string_equal(fixture->right.seen.data, "hello n1;");
    assert_int_equal(fixture->right.closed, 1);
    assert_int_equal(fixture->right.reason.code, TY_ECOMM);
}

static void a_peer_that_stops_reading_ends_the_channel(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(shutdown(fixture->raw, SHUT_RD), 0);
    (void)send_hello(fixture->left.channel, "n1");
    channel_flush(fixture->left.channel);
    turn(fixture);
    assert_int_equal(fixture->left.closed, 1);
    assert_int_equal(fixture->left.reason.code, TY_ECOMM);
}

/* A gigabyte would be slow under the sanitizers; 24 MiB is a hundred times what the sockets hold. */
static void nothing_is_lost_under_back_pressure(void **state) {
    struct fixture *fixture = *state;
    enum { CHUNK = 64 << 10, TOTAL = 24 << 20 };
    CLEANUP_FREE char *chunk = calloc(1, CHUNK);
    assert_non_null(chunk);
    fixture->right.check_order = true;
    (void)send_hello(fixture->left.channel, "n1");
    size_t sent = 0, fullest = 0;
    int waits = 0;
    while (sent < TOTAL) {
        int drained = fixture->left.drained;
        while (sent < TOTAL && !channel_full(fixture->left.channel)) {
            memcpy(chunk, &sent, sizeof sent);
            send_output(fixture->left.channel, 1, chunk, CHUNK);
            sent += CHUNK;
        }
        if (channel_out(fixture->left.channel)->size > fullest)
            fullest = channel_out(fixture->left.channel)->size;
        channel_flush(fixture->left.channel);
        for (; sent < TOTAL && fixture->left.drained == drained; waits++)
            (void)loop_turn(fixture->loop, true);
    }
    while (fixture->right.output_bytes < TOTAL)
        (void)loop_turn(fixture->loop, true);
    assert_int_equal(fixture->right.output_bytes, TOTAL);
    assert_true(waits > 0);
    assert_true(fullest < 4 * CHANNEL_HIGH);
    assert_true(channel_empty(fixture->left.channel));
}

static void large_messages_arrive(void **state) {
    struct fixture *fixture = *state;
    size_t size = 5 << 20;
    CLEANUP_FREE char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    (void)send_hello(fixture->left.channel, "n1");
    assert_int_equal(send_log(fixture->left.channel, text), 0);
    channel_flush(fixture->left.channel);
    while (fixture->right.messages < 2)
        (void)loop_turn(fixture->loop, true);
    assert_int_equal(fixture->right.seen.size, strlen("hello n1;") + size + 1);
}

static void too_large_a_message_is_refused_by_the_sender(void **state) {
    struct fixture *fixture = *state;
    size_t size = FRAME_MAX;
    CLEANUP_FREE char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    assert_true(send_log(fixture->left.channel, text) < 0);
    assert_true(channel_empty(fixture->left.channel));
    assert_int_equal(fixture->left.closed, 0);
    turn(fixture);
    assert_int_equal(fixture->left.closed, 1);
    assert_string_equal(fixture->left.reason.message,
                        "cannot write to the peer: a message of 67108874 bytes is over the limit of 67108864");
}

static void an_end_that_cannot_say_what_it_must_is_told(void **state) {
    struct fixture *fixture = *state;
    (void)send_hello(fixture->left.channel, "n1");
    channel_fail(fixture->left.channel, -ENOMEM);
    channel_fail(fixture->left.channel, -EINVAL);
    assert_int_equal(send_log(fixture->left.channel, "late"), TY_ECOMM);
    turn(fixture);
    assert_int_equal(fixture->left.closed, 1);
    assert_string_equal(fixture->left.reason.message, "cannot write to the peer: Cannot allocate memory");
}

static void a_paused_channel_hands_on_nothing(void **state) {
    struct fixture *fixture = *state;
    fixture->right.pause_each = true;
    (void)send_hello(fixture->left.channel, "n1");
    (void)send_log(fixture->left.channel, "a");
    (void)send_log(fixture->left.channel, "b");
    channel_flush(fixture->left.channel);
    channel_destroy(TAKE(fixture->left.channel));
    turn(fixture);
    assert_int_equal(fixture->right.messages, 1);
    channel_pause(fixture->right.channel, false);
    assert_int_equal(fixture->right.messages, 1); /* never from inside the owner's call */
    turn(fixture);
    assert_int_equal(fixture->right.messages, 2);
    assert_int_equal(fixture->right.closed, 0);
    fixture->right.pause_each = false;
    channel_pause(fixture->right.channel, false);
    turn(fixture);
    assert_string_equal(fixture->right.seen.data, "hello n1;a;b;");
    assert_int_equal(fixture->right.closed, 1);
}

static void a_callback_may_destroy_the_channel(void **state) {
    struct fixture *fixture = *state;
    fixture->right.destroy_each = true;
    (void)send_hello(fixture->left.channel, "n1");
    (void)send_log(fixture->left.channel, "never seen");
    channel_flush(fixture->left.channel);
    turn(fixture);
    assert_string_equal(fixture->right.seen.data, "hello n1;");
    assert_null(fixture->right.channel);
    assert_int_equal(fixture->right.closed, 0);
    assert_int_equal(fixture->left.closed, 1);
    fixture->left.destroy_each = true;
}

static void closed_may_destroy_the_channel(void **state) {
    struct fixture *fixture = *state;
    fixture->left.destroy_each = true;
    cleanup_fd(&fixture->raw);
    fixture->raw = -1;
    turn(fixture);
    assert_int_equal(fixture->left.closed, 1);
    assert_null(fixture->left.channel);
}

static void put_raw(struct fixture *fixture, const void *bytes, size_t size) {
    assert_int_equal(write(fixture->raw, bytes, size), size);
}

static void expect_refusal(struct fixture *fixture, const char *word) {
    turn(fixture);
    assert_int_equal(fixture->left.messages, 0);
    assert_int_equal(fixture->left.closed, 1);
    assert_int_equal(fixture->left.reason.code, TY_EPROTOCOL);
    assert_non_null(strstr(fixture->left.reason.message, word));
    assert_int_equal(send_log(fixture->left.channel, "x"), TY_ECOMM);
}

static void a_stranger_is_refused(void **state) {
    put_raw(*state, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    expect_refusal(*state, "unknown kind");
}

static void before_the_hello_frames_are_small(void **state) {
    put_raw(*state, "\1\0\1\0\1\0\0\0", 8);
    expect_refusal(*state, "65537 bytes");
}

static void the_first_message_is_a_hello(void **state) {
    put_raw(*state, "\2\0\0\0\1\0\0\0\x4a\0", 10); /* finish */
    expect_refusal(*state, "hello");
}

static void output_does_not_come_first(void **state) {
    put_raw(*state, "\x9\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0x", 17);
    expect_refusal(*state, "output");
}

static void an_end_inside_a_message_is_told(void **state) {
    struct fixture *fixture = *state;
    put_raw(fixture, "\2\0\0\0\1\0\0\0\x4a", 9);
    cleanup_fd(&fixture->raw);
    fixture->raw = -1;
    expect_refusal(fixture, "middle");
}

/* One byte at a time, as a slow network might. */
static void bytes_one_by_one(void **state) {
    struct fixture *fixture = *state;
    static const char bytes[] = "\4\0\0\0\1\0\0\0\x0a\2\x18\7\2\0\0\0\1\0\0\0\x4a\0";
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        put_raw(fixture, bytes + i, 1);
        turn(fixture);
    }
    assert_int_equal(fixture->left.messages, 2);
    assert_int_equal(fixture->left.closed, 0);
}

/* As where the program that drives a run has closed all descriptors, and opened some of its own. */
static void a_descriptor_that_is_another_file_by_now_stays_open(void **state) {
    struct fixture *fixture = *state;
    struct end end = {0};
    int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    make_end(fixture, &end, pair[0]);
    assert_int_equal(dup2(null, pair[0]), pair[0]);
    channel_destroy(end.channel);
    assert_true(fcntl(pair[0], F_GETFD) >= 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    (void)close(null);
}

#define ONE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TWO(name) cmocka_unit_test_setup_teardown(name, set_up_both, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_descriptors_are_refused),
        ONE(a_descriptor_that_is_another_file_by_now_stays_open),
        TWO(both_ways_in_order),
        TWO(what_came_before_the_end_is_handed_on),
        TWO(writing_to_the_dead_is_not_the_end_of_reading),
        ONE(a_peer_that_stops_reading_ends_the_channel),
        TWO(nothing_is_lost_under_back_pressure),
        TWO(large_messages_arrive),
        TWO(too_large_a_message_is_refused_by_the_sender),
        TWO(an_end_that_cannot_say_what_it_must_is_told),
        TWO(a_paused_channel_hands_on_nothing),
        TWO(a_callback_may_destroy_the_channel),
        ONE(closed_may_destroy_the_channel),
        ONE(a_stranger_is_refused),
        ONE(before_the_hello_frames_are_small),
        ONE(the_first_message_is_a_hello),
        ONE(output_does_not_come_first),
        ONE(an_end_inside_a_message_is_told),
        ONE(bytes_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
