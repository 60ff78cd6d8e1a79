/* A channel between two ends whose memory runs short, or whose sends the kernel refuses: each allocation and
 * each send fails once, and from there on. All arrives, or whoever sent it was told so, or an end is told why
 * the channel has ended; nothing is waited for in vain. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "countdown.h"
#include "descriptors.h"
#include "failing_memory.h"
#include "wire/channel.h"

enum { LOGS = 5, OUTPUT = 3 * CHANNEL_HIGH / 2, TURNS = 200 };

static struct countdown sends = COUNTDOWN;

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    if (!countdown_strikes(&sends)) return __real_send(fd, bytes, size, flags);
    errno = ENOBUFS;
    return -1;
}

static long fail_sends(long n, bool for_good) {
    return countdown_set(&sends, n, for_good);
}

struct end {
    struct channel *channel;
    int messages, messages_due;
    size_t output;
    bool refused; /* a send of it was not taken */
    int closed;
    ty_error reason;
};

static void on_message(void *context, const Wire__Message *message) {
    (void)message;
    struct end *end = context;
    end->messages++;
    channel_pause(end->channel, true);
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)rank, (void)stream, (void)bytes;
    ((struct end *)context)->output += size;
}

static void on_closed(void *context, const ty_error *reason) {
    struct end *end = context;
    end->closed++;
    end->reason = *reason;
}

static void say(struct end *end, Wire__Message *message) {
    if (end->closed == 0 && channel_send(end->channel, message) < 0) end->refused = true;
}

static void say_hello(struct end *end) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    say(end, &WIRE_MESSAGE(HELLO, hello, &hello));
}

static void say_logs(struct end *end) {
    Wire__Log log = WIRE__LOG__INIT;
    log.text = "text";
    for (int i = 0; i < LOGS; i++)
        say(end, &WIRE_MESSAGE(LOG, log, &log));
}

static void say_output(struct end *end) {
    static const char line[] = "0123456789012345678901234567890123456789012345678901234567890\n";
    struct buffer *out = channel_out(end->channel);
    for (size_t sent = 0; sent < OUTPUT; sent += sizeof line - 1) {
        size_t offset = frame_output_begin(out, 3, 1);
        buffer_append(out, line, sizeof line - 1);
        frame_output_end(out, offset);
    }
}

static bool all_came(const struct end *end) {
    return end->messages == end->messages_due && end->output >= OUTPUT;
}

static void expect_told(const struct end *from, const struct end *to) {
    if (!all_came(to)) assert_true(from->refused || from->closed > 0 || to->closed > 0);
    assert_in_range(to->closed, 0, 1);
    if (to->closed > 0) assert_true(to->reason.code < 0 && to->reason.message[0] != '\0');
}

/* What both say, one after the other, but the last, which is for one to hear who has said all; who has read a
 * message rests for the remainder of the turn. */
static void converse(struct loop *loop, struct end ends[2]) {
    static void (*const said[])(struct end * end) = {say_hello, say_logs, say_output, say_logs, say_logs};
    for (size_t at = 0; at < ARRAY_SIZE(said); at++) {
        for (int i = 0; i < (at + 1 < ARRAY_SIZE(said) ? 2 : 1); i++) {
            said[at](&ends[i]);
            channel_flush(ends[i].channel);
        }
        for (int turn = 0; turn < TURNS; turn++) {
            (void)loop_turn(loop, false);
            for (int i = 0; i < 2; i++)
                channel_pause(ends[i].channel, false);
        }
    }
}

/* False when it did not come to the failure. */
static bool try(long (*fail_after)(long n, bool for_good), long k, bool for_good) {
    static const struct channel_events events = {
        .message = on_message, .output = on_output, .closed = on_closed};
    struct end ends[2] = {{.messages_due = 1 + 2 * LOGS}, {.messages_due = 1 + 3 * LOGS}};
    int fds[2], made = 0;
    ty_error err = {0};
    unsigned before = count_descriptors();
    struct loop *loop = loop_create(NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    (void)fail_after(k, for_good);
    for (; made < 2; made++)
        if (channel_create(loop, fds[made], &events, &ends[made], &ends[made].channel, &err) < 0) break;
    if (made == 2) converse(loop, ends);
    bool failed = fail_after(-1, false) <= (for_good ? 0 : -1);
    if (made < 2) assert_true(err.code < 0 && err.message[0] != '\0');
    for (int i = 0; i < 2; i++) {
        if (made == 2) expect_told(&ends[i], &ends[1 - i]);
        if (i < made)
            channel_destroy(ends[i].channel);
        else
            (void)close(fds[i]);
    }
    if (!failed) assert_true(all_came(&ends[0]) && all_came(&ends[1]));
    while (loop_turn(loop, false)) {
    }
    loop_destroy(loop);
    assert_int_equal(count_descriptors(), before);
    return failed;
}

static long count(long (*fail_after)(long n, bool for_good), bool for_good) {
    long k = 0;
    while (try(fail_after, k, for_good))
        k++;
    return k;
}

static void each_allocation_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(count(memory_fails_after, for_good), 10, 1000);
}

static void each_send_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(count(fail_sends, for_good), 2, 1000);
}

/* What was read before a release and found no room there must not be missing from the middle of the stream. */
static void bytes_without_room_end_the_stream(void **state) {
    (void)state;
    static const struct channel_events events = {
        .message = on_message, .output = on_output, .closed = on_closed};
    struct end ends[2] = {0};
    int fds[2];
    struct loop *loop = loop_create(NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(channel_create(loop, fds[i], &events, &ends[i], &ends[i].channel, NULL), 0);
    say_hello(&ends[1]);
    say_logs(&ends[1]);
    channel_flush(ends[1].channel);
    for (int turn = 0; turn < TURNS && ends[0].messages == 0; turn++)
        (void)loop_turn(loop, false);
    assert_int_equal(ends[0].messages, 1);
    (void)memory_fails_after(0, false);
    struct transport transport = channel_release_transport(ends[0].channel);
    assert_true(memory_fails_after(-1, false) < 0);
    assert_int_equal(channel_create_over(loop, &transport, &events, &ends[0], &ends[0].channel, NULL), 0);
    for (int turn = 0; turn < TURNS; turn++) {
        (void)loop_turn(loop, false);
        channel_pause(ends[0].channel, false);
    }
    assert_int_equal(ends[0].messages, 1);
    assert_int_equal(ends[0].closed, 1);
    assert_true(ends[0].reason.code < 0);
    for (int i = 0; i < 2; i++)
        channel_destroy(ends[i].channel);
    loop_destroy(loop);
}

int main(void) {
    loop_destroy(loop_create(NULL)); /* libuv keeps descriptors from the first on */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_send_fails),
        cmocka_unit_test(each_allocation_fails),
        cmocka_unit_test(bytes_without_room_end_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
