/* Answers on their way to an agent: large values in parts that the channel has room for, one for all who wait
 * for the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "controller/answers.h"

enum { LARGE = 5 << 20, ROOM = CHANNEL_HIGH + (512 << 10) };

static struct loop *loop;
static struct channel *here, *there;
static struct answers answers;
static size_t held;

/* What has come, as text: "status:bytes of n parts to channels;". */
static struct buffer heard;
static size_t parts, bytes;

static void on_message(void *context, const Wire__Message *message) {
    (void)context;
    if (message->body_case != WIRE__MESSAGE__BODY_ANSWER) return;
    const Wire__Answer *answer = message->answer;
    assert_true(answer->value.len <= ROOM);
    for (size_t i = 0; i < answer->value.len; i++)
        if (answer->value.data[i] != (uint8_t)(bytes + i)) fail_msg("byte %zu is another", bytes + i);
    bytes += answer->value.len;
    parts++;
    if (bytes < answer->size) {
        assert_int_equal(answer->n_channels, 0);
        return;
    }
    buffer_printf(&heard, "%d:%zu of %zu parts to", (int)answer->status, bytes, parts);
    for (size_t i = 0; i < answer->n_channels; i++)
        buffer_printf(&heard, " %u", answer->channels[i]);
    buffer_text(&heard, "; ");
    bytes = parts = 0;
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *text, size_t size) {
    (void)context, (void)rank, (void)stream, (void)text, (void)size;
}

static void on_drained(void *context) {
    (void)context;
    answers_send(&answers, here);
    assert_true(channel_out(here)->size <= ROOM);
}

static void on_closed(void *context, const ty_error *reason) {
    (void)context;
    fail_msg("%s", reason->message);
}

static const struct channel_events events = {on_message, on_output, on_drained, on_closed, NULL};

static int open_channel(void **state) {
    (void)state;
    int fds[2];
    Wire__Hello hello = WIRE__HELLO__INIT;
    loop = loop_create(NULL);
    if (loop == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) return -1;
    if (channel_create(loop, fds[0], &events, NULL, &here, NULL) < 0 ||
        channel_create(loop, fds[1], &events, NULL, &there, NULL) < 0)
        return -1;
    bytes = parts = 0;
    return channel_send(here, &WIRE_MESSAGE(HELLO, hello, &hello));
}

static int close_channel(void **state) {
    (void)state;
    answers_drop(&answers);
    channel_destroy(here);
    channel_destroy(there);
    while (loop_turn(loop, false)) {
    }
    loop_destroy(loop);
    buffer_done(&heard);
    return held != 0;
}

static struct shared *make_value(size_t size) {
    struct shared *value = shared_create(size, &held);
    assert_non_null(value);
    for (size_t i = 0; i < size; i++)
        value->bytes[i] = (char)i;
    return value;
}

static void add(uint32_t channel, enum store_status status, struct shared *value) {
    assert_int_equal(answers_add(&answers, channel, status, value), 0);
}

static void flush(void) {
    answers_send(&answers, here);
    assert_true(channel_out(here)->size <= ROOM);
    channel_flush(here);
}

static void hear(const char *wanted) {
    for (int i = 0; i < 500; i++)
        (void)loop_turn(loop, false);
    assert_string_equal(heard.size > 0 ? heard.data : "", wanted);
}

static void who_waits_for_the_same_is_answered_at_once(void **state) {
    (void)state;
    struct shared *value = make_value(10), *other = make_value(10);
    for (uint32_t channel = 1; channel <= 5; channel++)
        add(channel, STORE_OK, value);
    add(6, STORE_OK, other);
    add(7, STORE_INVALID, other);
    add(8, STORE_OK, NULL);
    add(9, STORE_OK, NULL);
    add(10, STORE_NONE, NULL);
    shared_release(value);
    shared_release(other);
    flush();
    assert_int_equal(held, 0);
    hear("0:10 of 1 parts to 1 2 3 4 5; 0:10 of 1 parts to 6; 3:10 of 1 parts to 7; 0:0 of 1 parts to 8 9; "
         "1:0 of 1 parts to 10; ");
}

static void a_large_value_goes_as_the_channel_has_room(void **state) {
    (void)state;
    struct shared *value = make_value(LARGE);
    add(1, STORE_OK, value);
    add(2, STORE_OK, value);
    flush();
    add(3, STORE_OK, value); /* while it is on its way */
    shared_release(value);
    add(4, STORE_NONE, NULL);
    assert_int_equal(held, LARGE);
    hear("0:5242880 of 20 parts to 1 2 3; 1:0 of 1 parts to 4; ");
    assert_int_equal(held, 0);
}

static void what_nobody_waits_for_is_dropped(void **state) {
    (void)state;
    struct shared *value = make_value(LARGE);
    add(1, STORE_OK, value);
    add(2, STORE_NONE, NULL);
    shared_release(value);
    flush();
    answers_drop(&answers);
    assert_int_equal(held, 0);
    hear("");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_waits_for_the_same_is_answered_at_once, open_channel,
                                        close_channel),
        cmocka_unit_test_setup_teardown(a_large_value_goes_as_the_channel_has_room, open_channel,
                                        close_channel),
        cmocka_unit_test_setup_teardown(what_nobody_waits_for_is_dropped, open_channel, close_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
