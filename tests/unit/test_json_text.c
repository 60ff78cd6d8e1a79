/* The scanner of a worker and the parser of its agent must agree: what one lets through the other
 * understands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/metrics.h"
#include "worker/metrics.h"

static bool scanned(const char *text) {
    ty_error err = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    int result = json_text_append_object("metrics", text, &out, &err);
    assert_true(result == 0 || (result == TY_EUSAGE && strstr(err.message, "metrics") != NULL));
    assert_true(result == 0 || out.size == 0);
    return result == 0;
}

/* 0 as it stands, 1 when it had to be corrected, negative. What is taken can be read. */
static int parse(const char *text) {
    CLEANUP(buffer_done) struct buffer corrected = {0};
    int result = metrics_check(text, strlen(text), &corrected, NULL);
    const char *kept = result > 0 ? corrected.data : text;
    json_t *read = result < 0 ? NULL : metrics_read(kept, strlen(kept));
    if (result >= 0 && read == NULL) fail_msg("taken, and cannot be read: %s", kept);
    json_decref(read);
    return result;
}

static const char *const objects[] = {
    "{}",
    " { } ",
    "{\"a\":1}",
    "{\"a\": -0.5e+3, \"b\": [1, 2.5, []], \"c\": {\"d\": null, \"e\": true, \"f\": false}}",
    "{\"a\": NaN, \"b\": Infinity, \"c\": -Infinity, \"d\": 1e999, \"e\": [NaN]}",
    "{\"\\u00e9\\n\\t\\\\\\\"\\/\": \"\\ud83d\\ude00\", \"\xc3\xa9\": \"\xe2\x82\xac\"}",
    "{\"long\": 123456789012345678901234567890}",
    "{\"long\": [-123456789012345678901234567890, 1e999, 18446744073709551615, 7]}",
    "\r\n{\t\"a\"\n:\r1\n}\n",
};

static const char *const others[] = {
    "",
    " ",
    "1",
    "[]",
    "null",
    "\"{}\"",
    "{",
    "{}}",
    "{} {}",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":.5}",
    "{\"a\":+1}",
    "{\"a\":1e}",
    "{\"a\":-}",
    "{\"a\":tru}",
    "{\"a\":\"}",
    "{\"a\":\"\n\"}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u12g4\"}",
    "{\"a\":\"\\u0000\"}",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":\"\\udc00\"}",
    "{\"a\":\"\\ud800\\u0041\"}",
    "{\"a\":\"\xff\"}",
    "{\"a\":\"\xc0\x80\"}",
    "{\"a\":[1 2]}",
    "{\"a\":[1}",
    "{\"a\":1]",
    "{\"a\" 1}",
    "{1:1}",
    "{'a':1}",
    "{\"a\":nan}",
    "{\"a\":1}x",
    "{\"a\":truee}",
};

static void examples(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
        if (!scanned(objects[i]) || parse(objects[i]) < 0) fail_msg("%s", objects[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (scanned(others[i])) fail_msg("scanned: %s", others[i]);
        if (parse(others[i]) >= 0) fail_msg("parsed: %s", others[i]);
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    for (int depth = JSON_TEXT_DEPTH - 3; depth < JSON_TEXT_DEPTH + 3; depth++) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_text(&text, "{\"a\":");
        for (int i = 1; i < depth; i++)
            buffer_char(&text, '[');
        for (int i = 1; i < depth; i++)
            buffer_char(&text, ']');
        buffer_text(&text, depth > 1 ? "}" : "1}");
        assert_int_equal(scanned(text.data), depth <= JSON_TEXT_DEPTH);
    }
}

static uint64_t next(uint64_t *random) {
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    return *random;
}

/* Single bytes of good texts changed, added and taken away. */
static void mutations_are_judged_alike(void **state) {
    (void)state;
    static const char bytes[] = "{}[]\",:\\u0nN1-+.eE \t\n\x80\xc3\xa9xtrue";
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        char text[256];
        (void)snprintf(text, sizeof text - 1, "%s", objects[next(&random) % ARRAY_SIZE(objects)]);
        for (uint64_t n = 1 + next(&random) % 3; n > 0; n--) {
            size_t size = strlen(text), at = (size_t)(next(&random) % (size + 1));
            char byte = bytes[next(&random) % (sizeof bytes - 1)];
            switch (next(&random) % 3) {
            case 0:
                if (at < size) text[at] = byte;
                break;
            case 1:
                if (size + 2 < sizeof text) memmove(text + at + 1, text + at, size - at + 1), text[at] = byte;
                break;
            default:
                if (at < size) memmove(text + at, text + at + 1, size - at);
            }
        }
        for (char *at = text; *at != '\0'; at++)
            if (*at == '\n') *at = ' '; /* as the scanner passes it on */
        bool good = scanned(text);
        int result = parse(text); /* corrections are more liberal than need be */
        if (good ? result < 0 : result == 0) fail_msg("scanned %d, parsed %d: %s", good, result, text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(mutations_are_judged_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
