/* Output made into lines: every kind of end, escapes, pieces of long lines, and that no cut of the input
 * changes anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/lines.h"
#include "base/cleanup.h"

struct options {
    long rank;
    bool escape;
};

/* What becomes of the input when it comes in chunks of `chunk` bytes. */
static void convert(struct options options, const char *bytes, size_t size, size_t chunk, struct buffer *out) {
    struct lines lines;
    lines_init(&lines, options.rank, options.escape);
    for (size_t at = 0; at < size; at += chunk)
        lines_add(&lines, bytes + at, size - at < chunk ? size - at : chunk, out);
    lines_end(&lines, out);
    lines_done(&lines);
    assert_false(out->failed);
}

static void expect(struct options options, const char *input, const char *wanted) {
    for (size_t chunk = 1; chunk <= strlen(input) + 1; chunk++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        convert(options, input, strlen(input), chunk, &out);
        assert_string_equal(out.size > 0 ? out.data : "", wanted);
    }
}

static const struct options shown = {.rank = -1, .escape = true}, prefixed = {.rank = 3, .escape = false};
static const struct options verbatim = {.rank = -1, .escape = false};

static void lines_get_prefix_and_end(void **state) {
    (void)state;
    expect(prefixed, "", "");
    expect(prefixed, "one", "[rank 3] one\n");
    expect(prefixed, "one\ntwo\n", "[rank 3] one\n[rank 3] two\n");
    expect(prefixed, "\n\n", "[rank 3] \n[rank 3] \n");
    expect(shown, "one\n\ntwo", "one\n\ntwo\n");
    expect(prefixed, "a\033[1mb\n", "[rank 3] a\033[1mb\n");
    expect((struct options){.rank = 4294967295, .escape = true}, "x\n", "[rank 4294967295] x\n");
}

static void carriage_returns_begin_lines_anew(void **state) {
    (void)state;
    expect(shown, "one\r\ntwo\r\n", "one\ntwo\n");
    expect(shown, "\r\n\r\n", "\n\n");
    expect(shown, "10%\r20%\r100%\n", "100%\n");
    expect(shown, "\r10%\r20%\r\n", "20%\n");
    expect(shown, "10%\r20%", "20%\n");
    expect(shown, "long drawing\rend\n", "end\n");
    expect(shown, "\r10%\r   \rsaid\n\r20%\r   \r", "said\n"); /* a bar makes room, and goes in the end */
    expect(shown, "\r10%\r   \r\n", "\n");
    expect(shown, "   \r\n", "   \n");
    expect(shown, "10%\r\033[K20%\r\033[2K\033[0K30%\033[K\n", "30%\n");
    expect(shown, "10%\r\033[K", "");
    expect(shown, "a\033[Kb\n", "a\\x1b[Kb\n");
    expect(shown, "one\r\r\ntwo\r\n", "one\ntwo\n");
    expect(shown, "a\r", "a\n");
    expect(shown, "\r", "");
    expect(shown, "a\r\r\rb", "b\n");
    expect(shown, "a\rb\nc\n\rd\n", "b\nc\nd\n");
    expect(verbatim, "a\rb\r\nc", "a\rb\r\nc\n");
    expect(verbatim, "\r", "\r\n");
}

/* As tqdm draws one within another: down to its row, the drawing, up again. */
static void bars_below_each_other_are_rows(void **state) {
    (void)state;
    const char *up = "\033[A";
    char text[1024] = "\router 0%";
    for (int i = 1; i <= 9; i++) { /* the first row had ended before it was known to be one */
        char step[64];
        (void)snprintf(step, sizeof step, "\n\rinner %d0%%%s", i, up);
        (void)strcat(text, step);
        if (i % 3 != 0) continue;
        (void)snprintf(step, sizeof step, "\router %d0%%", i);
        (void)strcat(text, step);
    }
    expect(shown, text, "outer 0%\nouter 90%\ninner 90%\n");
    (void)strcat(text,
                 "\n\r         \r\033[A\router 100%\n\nsaid\n"); /* the inner one goes, the outer one is done */
    expect(shown, text, "outer 0%\nouter 100%\nsaid\n");
    expect(prefixed, "\ra\n\rb\033[A\rc", "[rank 3] a\n[rank 3] c\n[rank 3] b\n");
    expect(shown, "a\n\033[Ab\n", "a\n\\x1b[Ab\n"); /* no bar */
    struct lines lines;
    CLEANUP(buffer_done) struct buffer out = {0}, live = {0};
    lines_init(&lines, 0, true);
    lines_add(&lines, text,
              strlen("\router 0%\n\rinner 10%\033[A\n\rinner 20%\033[A\n\rinner 30%\033[A\router 30%"), &out);
    lines_live(&lines, &live);
    assert_string_equal(live.data, "[rank 0] outer 30% | inner 30%");
    lines_done(&lines);
}

static void what_could_do_harm_is_escaped(void **state) {
    (void)state;
    expect(shown, "\033[2J\033]0;x\007", "\\x1b[2J\\x1b]0;x\\x07\n");
    expect(shown, "tab\there\x7f\b\v\f\016", "tab\there\\x7f\\x08\\x0b\\x0c\\x0e\n");
    expect(shown, "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0",
           "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0\n");
    expect(shown,
           "\xc2\x9b"
           "1m",
           "\\xc2\\x9b1m\n"); /* CSI as a C1 code point */
    expect(shown, "\xff\xfe\x80", "\\xff\\xfe\\x80\n");
    expect(shown, "\xc0\xaf", "\\xc0\\xaf\n"); /* overlong */
    expect(shown, "\xe0\x80\xaf \xf0\x80\x80\xaf", "\\xe0\\x80\\xaf \\xf0\\x80\\x80\\xaf\n");
    expect(shown, "\xed\xa0\x80", "\\xed\\xa0\\x80\n");          /* a surrogate */
    expect(shown, "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80\n"); /* beyond U+10FFFF */
    expect(shown, "\xe2\x82", "\\xe2\\x82\n");                   /* cut off */
    expect(shown, "\xe2\x82\nx", "\\xe2\\x82\nx\n");
    expect(verbatim, "\033\xff\x01", "\033\xff\x01\n");
    char zero[] = {'a', '\0', 'b', '\n'};
    CLEANUP(buffer_done) struct buffer out = {0};
    convert(shown, zero, sizeof zero, sizeof zero, &out);
    assert_string_equal(out.data, "a\\x00b\n");
}

static void every_byte_at_every_place(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++)
        for (size_t at = 0; at < 20; at++) {
            char line[20], wanted[64];
            memset(line, 'x', sizeof line);
            line[at] = (char)c;
            bool plain = c == '\t' || (c >= ' ' && c < 0x7f);
            if (c == '\n' || c == '\r') continue;
            (void)snprintf(wanted, sizeof wanted, plain ? "%.*s%c%s\n" : "%.*s\\x%02x%s\n", (int)at, line, c,
                           &"xxxxxxxxxxxxxxxxxxx"[at]);
            CLEANUP(buffer_done) struct buffer out = {0};
            convert(shown, line, sizeof line, sizeof line, &out);
            assert_string_equal(out.data, wanted);
        }
}

/* Joins the pieces of a long line again: the same bytes, marks and prefixes aside. */
static void expect_pieces(size_t size, size_t chunk) {
    CLEANUP_FREE char *line = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        line[i] = "abc\xc3\xa9"
                  "defgh"[i % 10];
    line[size] = '\0';
    if ((unsigned char)line[size - 1] == 0xc3) line[size - 1] = 'x';
    CLEANUP(buffer_done) struct buffer out = {0}, joined = {0};
    convert((struct options){.rank = 1, .escape = true}, line, size, chunk, &out);
    for (char *at = strtok(out.data, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        assert_memory_equal(at, "[rank 1] ", 9);
        size_t length = strlen(at + 9);
        assert_true(length <= LINES_MAX + 1);
        bool cut = at[8 + length] == '\\';
        buffer_append(&joined, at + 9, length - cut);
    }
    assert_int_equal(joined.size, size); /* no sequence was torn, or its halves would be escaped */
    assert_memory_equal(joined.data, line, size);
}

static void long_lines_come_in_pieces(void **state) {
    (void)state;
    static const size_t sizes[] = {LINES_MAX - 1, LINES_MAX,     LINES_MAX + 1,
                                   LINES_MAX + 5, 3 * LINES_MAX, 1000003};
    static const size_t chunks[] = {1000, 4096, LINES_MAX, LINES_MAX + 3, 256 << 10, 2000000};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        for (size_t j = 0; j < ARRAY_SIZE(chunks); j++)
            expect_pieces(sizes[i], chunks[j]);
}

static void verbatim_long_lines_stay_as_they_are(void **state) {
    (void)state;
    size_t size = 5 * LINES_MAX + 17;
    CLEANUP_FREE char *line = malloc(size);
    for (size_t i = 0; i < size; i++)
        line[i] = (char)(i % 251 == 10 ? 11 : i % 251);
    CLEANUP(buffer_done) struct buffer out = {0};
    convert(verbatim, line, size, 70000, &out);
    assert_int_equal(out.size, size + 1);
    assert_memory_equal(out.data, line, size);
}

static void memory_of_a_line_without_end_is_bounded(void **state) {
    (void)state;
    struct lines lines;
    CLEANUP(buffer_done) struct buffer out = {0};
    static char chunk[256 << 10];
    memset(chunk, 'x', sizeof chunk);
    lines_init(&lines, 0, true);
    for (int i = 0; i < 100; i++) {
        buffer_clear(&out);
        lines_add(&lines, chunk, sizeof chunk - (size_t)i, &out);
        assert_true(lines.partial.capacity <= 2 * LINES_MAX);
    }
    lines_add(&lines, "\n", 1, &out);
    assert_int_equal(lines.partial.capacity, 0);
    lines_done(&lines);
}

static void random_input_does_not_depend_on_cuts(void **state) {
    (void)state;
    static const char alphabet[] = "ab [2K\t\r\n\r\n\033\xc3\xa9\xe2\x82\xac\xc2\x9b\x7f";
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        char input[64];
        size_t size = (size_t)rand_r(&seed) % sizeof input;
        for (size_t i = 0; i < size; i++)
            input[i] = alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        CLEANUP(buffer_done) struct buffer whole = {0}, parts = {0};
        convert(shown, input, size, sizeof input, &whole);
        convert(shown, input, size, 1 + (size_t)rand_r(&seed) % 7, &parts);
        assert_int_equal(whole.size, parts.size);
        if (whole.size > 0) assert_memory_equal(whole.data, parts.data, whole.size);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_get_prefix_and_end),
        cmocka_unit_test(carriage_returns_begin_lines_anew),
        cmocka_unit_test(bars_below_each_other_are_rows),
        cmocka_unit_test(what_could_do_harm_is_escaped),
        cmocka_unit_test(every_byte_at_every_place),
        cmocka_unit_test(long_lines_come_in_pieces),
        cmocka_unit_test(verbatim_long_lines_stay_as_they_are),
        cmocka_unit_test(memory_of_a_line_without_end_is_bounded),
        cmocka_unit_test(random_input_does_not_depend_on_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
