/* Buffers: growth, text, failure, and JSON strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"

static void empty_is_usable(void **state) {
    (void)state;
    struct buffer buffer = {0};
    buffer_clear(&buffer);
    buffer_consume(&buffer, 10);
    buffer_done(&buffer);
    char *text = buffer_take(&buffer);
    assert_string_equal(text, "");
    free(text);
}

static void appends(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer buffer = {0};
    buffer_append(&buffer, NULL, 0);
    buffer_text(&buffer, "ab");
    buffer_char(&buffer, 'c');
    buffer_printf(&buffer, "%d-%s", 7, "x");
    buffer_append(&buffer, "\0z", 2);
    assert_int_equal(buffer.size, 8);
    assert_memory_equal(buffer.data, "abc7-x\0z", 9);
}

static void grows_without_losing_anything(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer buffer = {0};
    for (int i = 0; i < 20000; i++)
        buffer_printf(&buffer, "%05d", i);
    assert_int_equal(buffer.size, 100000);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(strtol((char[]){buffer.data[5 * i], buffer.data[5 * i + 1], buffer.data[5 * i + 2],
                                         buffer.data[5 * i + 3], buffer.data[5 * i + 4], 0},
                                NULL, 10),
                         i);
}

static void reserved_room_is_the_callers(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer buffer = {0};
    buffer_text(&buffer, "a");
    char *room = buffer_reserve(&buffer, 1000);
    assert_ptr_equal(room, buffer.data + 1);
    memset(room, 'b', 1000);
    buffer.size += 1000;
    buffer_char(&buffer, 'c');
    assert_int_equal(buffer.size, 1002);
    assert_int_equal(strspn(buffer.data + 1, "b"), 1000);
}

static void a_failed_buffer_stays_failed(void **state) {
    (void)state;
    struct buffer buffer = {0};
    buffer_text(&buffer, "ab");
    assert_null(buffer_reserve(&buffer, SIZE_MAX));
    assert_true(buffer.failed);
    buffer_text(&buffer, "c");
    buffer_json_string(&buffer, "\x01\xff", 2);
    assert_int_equal(buffer.size, 2);
    assert_null(buffer_take(&buffer));
    assert_false(buffer.failed);
    assert_null(buffer.data);
}

static void consuming_moves_the_rest_to_the_front(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer buffer = {0};
    buffer_text(&buffer, "abcdef");
    buffer_consume(&buffer, 0);
    buffer_consume(&buffer, 2);
    assert_string_equal(buffer.data, "cdef");
    buffer_consume(&buffer, 99);
    assert_int_equal(buffer.size, 0);
    assert_string_equal(buffer.data, "");
}

static void taking_leaves_it_empty(void **state) {
    (void)state;
    struct buffer buffer = {0};
    buffer_text(&buffer, "abc");
    CLEANUP_FREE char *text = buffer_take(&buffer);
    assert_string_equal(text, "abc");
    assert_null(buffer.data);
    assert_int_equal(buffer.size, 0);
}

#define BAD "\xef\xbf\xbd"

static void json_strings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"a\0b\x01\x1f\x7f", 6, "\"a\\u0000b\\u0001\\u001f\x7f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", 1, "\"" BAD "\""},
        {"\x80\x80", 2, "\"" BAD BAD "\""},                 /* stray continuations, one each */
        {"\xc0\xaf", 2, "\"" BAD BAD "\""},                 /* overlong */
        {"\xe0\x80\xaf", 3, "\"" BAD BAD BAD "\""},         /* overlong */
        {"\xed\xa0\x80", 3, "\"" BAD BAD BAD "\""},         /* a surrogate */
        {"\xf4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\""}, /* above U+10FFFF */
        {"\xe2\x82", 2, "\"" BAD "\""},                     /* cut off at the end: one for the whole start */
        {"\xf0\x9f\x98z", 4, "\"" BAD "z\""},
        {"\xe2\x82\"", 3, "\"" BAD "\\\"\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buffer buffer = {0};
        buffer_json_string(&buffer, cases[i].text, cases[i].size);
        assert_string_equal(buffer.data, cases[i].json);
        buffer_done(&buffer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_usable),
        cmocka_unit_test(appends),
        cmocka_unit_test(grows_without_losing_anything),
        cmocka_unit_test(reserved_room_is_the_callers),
        cmocka_unit_test(a_failed_buffer_stays_failed),
        cmocka_unit_test(consuming_moves_the_rest_to_the_front),
        cmocka_unit_test(taking_leaves_it_empty),
        cmocka_unit_test(json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
