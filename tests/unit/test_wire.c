/* Frames: what goes in comes out, whatever way the bytes are cut; what is not a frame is refused before it is
 * believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "wire/frame.h"

#define BUFFER           \
    CLEANUP(buffer_done) \
    struct buffer

static const uint8_t *bytes_of(const struct buffer *buffer) {
    return (const uint8_t *)buffer->data;
}

static void hello_with_name(struct buffer *out, const char *name) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    hello.protocol = FRAME_PROTOCOL;
    hello.node = 7;
    hello.node_name = (char *)(uintptr_t)name;
    hello.pid = -1;
    assert_int_equal(frame_message(&WIRE_MESSAGE(HELLO, hello, &hello), out), 0);
}

static void an_empty_message_is_not_sent(void **state) {
    (void)state;
    BUFFER out = {0};
    Wire__Message message = WIRE__MESSAGE__INIT;
    assert_true(frame_message(&message, &out) < 0);
    assert_int_equal(out.size, 0);
}

static void message_comes_back(void **state) {
    (void)state;
    BUFFER out = {0};
    hello_with_name(&out, "gpu01");
    struct frame frame;
    ty_error err = {0};
    assert_int_equal(frame_next(bytes_of(&out), out.size, FRAME_MAX_HELLO, &frame, &err), out.size);
    assert_int_equal(frame.kind, FRAME_MESSAGE);
    Wire__Message *message = frame_unpack(&frame, &err);
    assert_non_null(message);
    assert_int_equal(message->body_case, WIRE__MESSAGE__BODY_HELLO);
    assert_string_equal(message->hello->node_name, "gpu01");
    assert_string_equal(message->hello->address, "");
    assert_int_equal(message->hello->pid, -1);
    wire__message__free_unpacked(message, NULL);
}

static void every_kind_comes_back(void **state) {
    (void)state;
    BUFFER out = {0};
    Wire__Finish finish = WIRE__FINISH__INIT;
    assert_int_equal(frame_message(&WIRE_MESSAGE(FINISH, finish, &finish), &out), 0);
    struct frame frame;
    assert_int_equal(frame_next(bytes_of(&out), out.size, FRAME_MAX, &frame, NULL), out.size);
    Wire__Message *back = frame_unpack(&frame, NULL);
    assert_non_null(back);
    assert_int_equal(back->body_case, WIRE__MESSAGE__BODY_FINISH);
    wire__message__free_unpacked(back, NULL);
}

static void half_a_frame_waits(void **state) {
    (void)state;
    BUFFER out = {0};
    hello_with_name(&out, "n");
    struct frame frame;
    for (size_t size = 0; size < out.size; size++)
        assert_int_equal(frame_next(bytes_of(&out), size, FRAME_MAX, &frame, NULL), 0);
}

static void frames_follow_each_other(void **state) {
    (void)state;
    BUFFER out = {0};
    hello_with_name(&out, "a");
    size_t offset = frame_output_begin(&out, 300, 2);
    buffer_text(&out, "[rank 300] one\n[rank 300] two\n");
    frame_output_end(&out, offset);
    struct frame frame;
    int64_t first = frame_next(bytes_of(&out), out.size, FRAME_MAX, &frame, NULL);
    assert_true(first > 0 && (size_t)first == offset);
    int64_t second = frame_next(bytes_of(&out) + first, out.size - (size_t)first, FRAME_MAX, &frame, NULL);
    assert_int_equal(first + second, out.size);

    uint32_t rank;
    int stream;
    const uint8_t *lines;
    size_t size;
    assert_int_equal(frame_output(&frame, &rank, &stream, &lines, &size), 0);
    assert_int_equal(rank, 300);
    assert_int_equal(stream, 2);
    assert_int_equal(size, strlen("[rank 300] one\n[rank 300] two\n"));
    assert_memory_equal(lines, "[rank 300] one\n", 15);
    assert_null(frame_unpack(&frame, NULL));
}

static void output_without_lines_is_taken_back(void **state) {
    (void)state;
    BUFFER out = {0};
    buffer_text(&out, "before");
    frame_output_end(&out, frame_output_begin(&out, 1, 1));
    assert_int_equal(out.size, 6);
}

static void refuse(const void *header, size_t limit, const char *word) {
    struct frame frame;
    ty_error err = {0};
    assert_int_equal(frame_next(header, FRAME_HEADER, limit, &frame, &err), TY_EPROTOCOL);
    assert_int_equal(err.code, TY_EPROTOCOL);
    assert_non_null(strstr(err.message, word));
}

static void hostile_headers(void **state) {
    (void)state;
    refuse("\0\0\0\0\1\0\0\0", FRAME_MAX, "0 bytes");
    refuse("\7\0\0\0\2\0\0\0", FRAME_MAX, "7 bytes");
    refuse("\0\0\0\x80\1\0\0\0", FRAME_MAX, "2147483648 bytes");
    refuse("\xff\xff\xff\xff\1\0\0\0", FRAME_MAX, "4294967295 bytes");
    refuse("\1\0\0\4\1\0\0\0", FRAME_MAX, "67108865 bytes");
    refuse("\1\0\1\0\1\0\0\0", FRAME_MAX_HELLO, "65537 bytes");
    refuse("\1\0\0\0\0\0\0\0", FRAME_MAX, "unknown kind 0");
    refuse("\1\0\0\0\4\0\0\0", FRAME_MAX, "unknown kind 4");
    refuse("\1\0\0\0\3\0\0\0", FRAME_MAX, "1 bytes");
    refuse("\0\1\0\0\3\0\0\0", FRAME_MAX, "256 bytes");
    refuse("\1\0\0\0\1\1\0\0", FRAME_MAX, "reserved");
    refuse("\1\0\0\0\1\0\0\1", FRAME_MAX, "reserved");
    refuse("GET / HTTP/1.1\r\n", FRAME_MAX, "unknown kind");
    refuse("\x16\x03\x01\x02\x00\x01\x00\x01", FRAME_MAX_HELLO, "unknown kind");
}

static void hostile_output_headers(void **state) {
    (void)state;
    static const char *const payloads[] = {"\1\0\0\0\0\0\0\0x", "\1\0\0\0\3\0\0\0x", "\1\0\0\0\1\0\0\1x"};
    for (size_t i = 0; i < ARRAY_SIZE(payloads); i++) {
        struct frame frame = {.kind = FRAME_OUTPUT, .payload = (const uint8_t *)payloads[i], .size = 9};
        uint32_t rank;
        int stream;
        const uint8_t *bytes;
        size_t size;
        assert_int_equal(frame_output(&frame, &rank, &stream, &bytes, &size), TY_EPROTOCOL);
    }
}

static void hostile_messages(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        {"\x0a\xff\xff\xff\xff\x0f", 6},                      /* a length far beyond the end */
        {"\x0a\x05", 2},                                      /* cut off */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, /* a tag without an end */
        {"\x92\x06\x01x", 4},                                 /* nothing but an unknown field */
        {"\x08\x01", 2},                                      /* hello as a number */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct frame frame = {FRAME_MESSAGE, (const uint8_t *)cases[i].bytes, cases[i].size};
        ty_error err = {0};
        assert_null(frame_unpack(&frame, &err));
        assert_int_equal(err.code, TY_EPROTOCOL);
    }
}

/* 16 million empty events in 32 MiB would become more than a gigabyte of structs. */
static void unpacking_is_bounded(void **state) {
    (void)state;
    enum { EVENTS = 16 << 20, INNER = 2 * EVENTS };
    BUFFER payload = {0};
    buffer_append(&payload, "\x1a\x80\x80\x80\x10", 5); /* events, INNER bytes long */
    char *to = buffer_reserve(&payload, INNER);
    assert_non_null(to);
    for (size_t i = 0; i < EVENTS; i++)
        memcpy(to + 2 * i, "\x0a", 2);
    payload.size += INNER;
    struct frame frame = {FRAME_MESSAGE, bytes_of(&payload), payload.size};
    ty_error err = {0};
    assert_null(frame_unpack(&frame, &err));
    assert_int_equal(err.code, TY_EPROTOCOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_message_is_not_sent),
        cmocka_unit_test(message_comes_back),
        cmocka_unit_test(every_kind_comes_back),
        cmocka_unit_test(half_a_frame_waits),
        cmocka_unit_test(frames_follow_each_other),
        cmocka_unit_test(output_without_lines_is_taken_back),
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(hostile_output_headers),
        cmocka_unit_test(hostile_messages),
        cmocka_unit_test(unpacking_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
