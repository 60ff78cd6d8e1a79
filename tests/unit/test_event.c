/* Events as JSON and back: what is written is what the journal has always had, what is read is what was
 * written, and what somebody else wrote there is taken value by value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "run/event.h"

static const char *const words[] = {"python", "a b", "", "\"\\\n\x01", "ä"};
static const uint32_t numbers[] = {0, 1, UINT32_MAX};
static const struct event_holder holders[] = {{"r", "root", 7, 1.5}, {"", "u", 0, 0}};

/* Sets every value of an event, by its row. */
static void fill_TEXT(event_TEXT *value) {
    *value = "it \"said\" so\n";
}

static void fill_INT(event_INT *value) {
    *value = -(INT64_C(1) << 53) - 1;
}

static void fill_REAL0(event_REAL0 *value) {
    *value = 61;
}

static void fill_REAL3(event_REAL3 *value) {
    *value = 0.125;
}

static void fill_REAL6(event_REAL6 *value) {
    *value = 0.000001;
}

static void fill_REAL17(event_REAL17 *value) {
    *value = 1790000000.1234567;
}

static void fill_FLAG(event_FLAG *value) {
    *value = true;
}

static void fill_MARK(event_MARK *value) {
    *value = true;
}

static void fill_TEXTS(event_TEXTS *value) {
    *value = (event_TEXTS){words, ARRAY_SIZE(words)};
}

static void fill_NUMBERS(event_NUMBERS *value) {
    *value = (event_NUMBERS){numbers, ARRAY_SIZE(numbers)};
}

static void fill_HOLDERS(event_HOLDERS *value) {
    *value = (event_HOLDERS){holders, ARRAY_SIZE(holders)};
}

static struct run_event make_full(enum run_event_kind kind) {
    struct run_event event = run_event_new(kind);
#define F(kind, type, key) fill_##type(&event.of.kind.key);
#define X(enumerator, name, values) \
    if (kind == (enumerator)) {     \
        values(F)                   \
    }
#define E(enumerator, name)
    RUN_EVENTS(X, E)
#undef F
#undef X
#undef E
    return event;
}

/* The keys of a kind's rows. */
static size_t count_values(enum run_event_kind kind) {
#define F(kind, type, key) +1
#define X(enumerator, name, values) \
    if (kind == (enumerator)) return 0 values(F);
#define E(enumerator, name)
    RUN_EVENTS(X, E)
#undef F
#undef X
#undef E
    return 0;
}

/* NULL: nothing is written. */
static char *encode(const struct run_event *event) {
    struct buffer out = {0};
    run_event_encode(event, &out);
    assert_false(out.failed);
    return out.size > 0 ? buffer_take(&out) : NULL;
}

/* What an event of this kind becomes that is read from `data` and written again. The caller frees. */
static char *again(enum run_event_kind kind, const char *data) {
    struct event_memory memory = {0};
    struct run_event event = run_event_new(kind);
    assert_int_equal(run_event_decode(&event, data, &memory), 0);
    char *text = encode(&event);
    event_memory_done(&memory);
    return text;
}

static void every_kind_is_read_as_it_was_written(void **state) {
    (void)state;
    for (int kind = 0; kind < RUN_EVENT_KINDS; kind++) {
        struct run_event event = make_full((enum run_event_kind)kind);
        CLEANUP_FREE char *text = encode(&event);
        CLEANUP_FREE char *other = again(event.kind, text);
        if (count_values(event.kind) == 0) assert_null(text);
        if (text == NULL) continue;
        assert_string_equal(other, text);
        json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_int_equal(json_object_size(object), count_values(event.kind));
        json_decref(object);
    }
}

static void what_is_unknown_is_left_out(void **state) {
    (void)state;
    for (int kind = 0; kind < RUN_EVENT_KINDS; kind++) {
        struct run_event event = run_event_new((enum run_event_kind)kind);
        CLEANUP_FREE char *text = encode(&event);
        const char *wanted = kind == EVENT_STOP    ? "{\"kill\": false}"
                             : kind == EVENT_CLEAN ? "{\"clean\": false}"
                                                   : "{}";
        if (count_values(event.kind) == 0)
            assert_null(text);
        else
            assert_string_equal(text, wanted);
    }
}

/* Byte for byte: readers of old journals, and programs that read them by hand, see no difference. */
static void values_look_as_they_always_did(void **state) {
    (void)state;
    struct run_event event = run_event_new(EVENT_EXITED);
    event.of.exited.signal = 9;
    event.of.exited.stopped = true;
    event.of.exited.cause = "out of memory";
    CLEANUP_FREE char *exited = encode(&event);
    assert_string_equal(exited, "{\"signal\": 9, \"stopped\": true, \"cause\": \"out of memory\"}");
    event = run_event_new(EVENT_PLAN);
    event.of.plan = (struct event_plan){0.00012345,     {words, 2},    {numbers, 2}, {NULL, 0},
                                        {words + 2, 1}, EVENT_UNKNOWN, NULL};
    CLEANUP_FREE char *plan = encode(&event);
    assert_string_equal(
        plan,
        "{\"seconds\": 0.000123, \"nodes\": [\"python\", \"a b\"], \"ranks\": [0, 1], \"devices\": [\"\"]}");
    event = run_event_new(EVENT_WAIT);
    event.of.wait = (struct event_wait){"busy", {holders, 1}};
    CLEANUP_FREE char *waits = encode(&event);
    assert_string_equal(waits, "{\"reason\": \"busy\", \"holders\": [{\"run\": \"r\", \"pid\": 7, \"user\": "
                               "\"root\", \"since\": 1.500}]}");
    event.of.wait.holders.n = 0;
    CLEANUP_FREE char *alone = encode(&event);
    assert_string_equal(alone, "{\"reason\": \"busy\", \"holders\": []}");
    event = run_event_new(EVENT_ATTEMPT_END);
    event.of.attempt_end.outcome = "failed";
    event.of.attempt_end.status = 1;
    event.of.attempt_end.rank = -1;
    event.of.attempt_end.retry = 1.0005;
    CLEANUP_FREE char *end = encode(&event);
    assert_string_equal(end, "{\"outcome\": \"failed\", \"status\": 1, \"rank\": -1, \"retry\": 1.000}");
}

static void expect_again(enum run_event_kind kind, const char *data, const char *wanted) {
    CLEANUP_FREE char *text = again(kind, data);
    assert_string_equal(text, wanted);
}

static void what_others_wrote_is_taken_value_by_value(void **state) {
    (void)state;
    static const char *const nothing[] = {"",
                                          "null",
                                          "[]",
                                          "3",
                                          "\"reason\"",
                                          "{",
                                          "{\"code\": 1",
                                          "{\"code\": 99999999999999999999}",
                                          "{\"code\": 1} x",
                                          "{\"code\": 1.0}",
                                          "{\"code\": \"1\"}",
                                          "{\"code\": [1]}",
                                          "{\"code\": {\"code\": 1}}",
                                          "{\"stopped\": 1, \"cause\": 7}",
                                          "{\"\\u0000code\": 1}",
                                          "\xff\xfe"};
    for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
        expect_again(EVENT_EXITED, nothing[i], "{}");
    expect_again(EVENT_EXITED, NULL, "{}");
    expect_again(EVENT_EXITED, "{\"code\": 9223372036854775807, \"cause\": [], \"new\": {\"a\": []}}",
                 "{\"code\": 9223372036854775807}");
    expect_again(EVENT_EXITED, "{\"code\": 1, \"code\": 2}", "{\"code\": 2}");
    expect_again(EVENT_EXITED, "{\"cause\": \"a\\u0000b\"}", "{\"cause\": \"a\"}");
    expect_again(EVENT_PLAN, "{\"seconds\": 2, \"nodes\": [1, \"b\"], \"ranks\": [0, -1], \"devices\": {}}",
                 "{\"seconds\": 2.000000, \"nodes\": [\"?\", \"b\"]}");
    expect_again(EVENT_PLAN, "{\"nodes\": [], \"ranks\": [4294967296]}", "{\"nodes\": []}");
    expect_again(EVENT_WAIT, "{\"holders\": [null, {\"run\": 1, \"pid\": 3}]}",
                 "{\"holders\": [{\"run\": null, \"pid\": 0, \"user\": null, \"since\": 0.000}, {\"run\": "
                 "null, \"pid\": 3, \"user\": null, \"since\": 0.000}]}");
    expect_again(EVENT_ATTEMPT_END, "{\"retry\": 1e308, \"status\": 1e3}",
                 "{\"retry\": "
                 "100000000000000001097906362944045541740492309677311846336810682903157585404911491537163328978"
                 "494688899061249669721172515611590283743140088328307009198146046031271664502933027185697489699"
                 "588559043338384466165001178426897626212945177628091195786707458122783970171784415105291802893"
                 "207873272974885715430223118336.000}");
}

static void nesting_has_an_end(void **state) {
    (void)state;
    for (size_t depth = 100; depth <= 1000000; depth *= 100) {
        struct buffer data = {0};
        buffer_text(&data, "{\"code\": ");
        for (size_t i = 0; i < depth; i++)
            buffer_char(&data, '[');
        expect_again(EVENT_EXITED, data.data, "{}");
        buffer_done(&data);
    }
}

static void names_are_those_of_the_rows(void **state) {
    (void)state;
    assert_string_equal(run_event_name(EVENT_RUN_END), "run_end");
    assert_string_equal(run_event_name(EVENT_CHECKPOINT_REMOVED), "checkpoint_removed");
    assert_string_equal(run_event_name((enum run_event_kind)RUN_EVENT_KINDS), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read_as_it_was_written),
        cmocka_unit_test(what_is_unknown_is_left_out),
        cmocka_unit_test(values_look_as_they_always_did),
        cmocka_unit_test(what_others_wrote_is_taken_value_by_value),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(names_are_those_of_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
