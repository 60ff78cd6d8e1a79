/* The parts of the command that stand alone: option tables, text made harmless, columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/terminal.h"

struct option_target {
    bool flag;
    const char *text;
    int choice;
    nanoseconds limit;
};

static const char *const colours[] = {"red", "green", NULL};
static const struct option_spec first_specs[] = {
    {"flag", 'f', NULL, "", option_flag, offsetof(struct option_target, flag), NULL},
    {"text", 't', "TEXT", "", option_text, offsetof(struct option_target, text), NULL},
};
static const struct option_spec second_specs[] = {
    {"colour", 0, "red|green", "", option_choice, offsetof(struct option_target, choice), colours},
    {"limit", 0, "DURATION", "", option_duration, offsetof(struct option_target, limit), NULL},
};
static const struct option_group first = {"First", first_specs, ARRAY_SIZE(first_specs)};
static const struct option_group second = {"Second", second_specs, ARRAY_SIZE(second_specs)};
static const struct option_group *const groups[] = {&first, &second, NULL};

#define ARGV(...) ((char *[]){(char[]){"test"}, __VA_ARGS__, NULL})

static int count(char **argv) {
    int n = 0;
    while (argv[n] != NULL)
        n++;
    return n;
}

static int parse(bool rest, char **argv, struct arguments *arguments, struct option_target *target,
                 ty_error *err) {
    int result = options_parse(groups, rest, count(argv), argv, arguments, err);
    if (result < 0) return result;
    return options_apply(arguments, (void *[]){target, target}, err);
}

static void refuses(char **argv, const char *message) {
    CLEANUP(arguments_done) struct arguments arguments = {0};
    struct option_target target = {0};
    ty_error err = {0};
    assert_int_equal(parse(false, argv, &arguments, &target, &err), TY_EUSAGE);
    assert_string_equal(err.message, message);
}

static void test_options_refused(void **state) {
    (void)state;
    refuses(ARGV("--tex", "a"), "unknown option --tex; did you mean --text?");
    refuses(ARGV("--texd=a"), "unknown option --texd; did you mean --text?");
    refuses(ARGV("--frobnicate"), "unknown option --frobnicate; --help lists those there are");
    refuses(ARGV("--text"), "option --text needs a value: --text TEXT");
    refuses(ARGV("-ft"), "option --text needs a value: --text TEXT");
    refuses(ARGV("--flag=1"), "option --flag takes no value, but was given '1'");
    refuses(ARGV("-fx"), "unknown option -x in -fx; --help lists those there are");
    refuses(ARGV("-7"), "unknown option -7; put -- before a value that begins with a dash");
    refuses(ARGV("--colour", "rde"), "--colour rde: must be one of red|green; did you mean red?");
    refuses(ARGV("--colour", ""), "--colour '': must be one of red|green");
    refuses(ARGV("word", "-f", "--nope"), "unknown option --nope; --help lists those there are");
}

static void test_options_taken(void **state) {
    (void)state;
    CLEANUP(arguments_done) struct arguments arguments = {0};
    struct option_target target = {0};
    char **argv = ARGV("-ftx", "one", "--text=y", "--colour", "green", "--limit", "2s", "--", "--flag");
    assert_int_equal(parse(false, argv, &arguments, &target, NULL), 0);
    assert_true(target.flag);
    assert_string_equal(target.text, "y");
    assert_int_equal(target.choice, 1);
    assert_int_equal(target.limit, 2 * NS_PER_S);
    assert_int_equal(arguments.n_words, 2);
    assert_string_equal(arguments.words[0], "one");
    assert_string_equal(arguments.words[1], "--flag");
    assert_string_equal(options_value(&arguments, "colour"), "green");
    assert_null(options_value(&arguments, "nothing"));
}

static void test_options_rest(void **state) {
    (void)state;
    CLEANUP(arguments_done) struct arguments arguments = {0};
    struct option_target target = {0};
    assert_int_equal(parse(true, ARGV("-f", "prog", "--text", "--", "-x"), &arguments, &target, NULL), 0);
    assert_null(target.text);
    assert_int_equal(arguments.n_words, 4);
    assert_string_equal(arguments.words[3], "-x");
    assert_null(arguments.words[4]);
}

static void test_options_value_like_an_option(void **state) {
    (void)state;
    CLEANUP(arguments_done) struct arguments arguments = {0};
    struct option_target target = {0};
    assert_int_equal(parse(false, ARGV("--text", "--flag"), &arguments, &target, NULL), 0);
    assert_string_equal(target.text, "--flag");
    assert_false(target.flag);
}

static void test_options_help(void **state) {
    (void)state;
    CLEANUP(arguments_done) struct arguments arguments = {0};
    char **argv = ARGV("-f", "--help");
    assert_int_equal(options_parse(groups, false, count(argv), argv, &arguments, NULL), 0);
    assert_true(arguments.help);
}

static void escapes(const char *text, const char *shown) {
    CLEANUP(buffer_done) struct buffer out = {0};
    utf8_escape(text, strlen(text), &out);
    buffer_char(&out, '\0');
    assert_string_equal(out.data, shown);
}

static void test_escape(void **state) {
    (void)state;
    escapes("plain\ttext", "plain\ttext");
    escapes("\x1b[31mred", "\\x1b[31mred");
    escapes("a\rb\nc\x7f", "a\\x0db\\x0ac\\x7f");
    escapes("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    escapes("\xc2\x9b"
            "31m",
            "\\u009b31m");
    escapes("\xe2\x80\xae"
            "evil",
            "\\u202eevil");
    escapes("\xff\xfe", "\\xff\\xfe");
    escapes("\xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80", "\\xc0\\xaf \\xed\\xa0\\x80 \\xf5\\x80\\x80\\x80");
    escapes("cut \xe2\x82", "cut \\xe2\\x82");
    escapes("", "");
}

static void test_table(void **state) {
    (void)state;
    CLEANUP(table_done) struct text_table table = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    TABLE_HEADS(&table, "NAME", "N", "NOTE");
    const char *const cells[] = {"gr\xc3\xbcn", "10", "", "a", "2", "x\ny"};
    for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
        table_cell(&table, cells[i]);
    table_format(&table, &out);
    buffer_char(&out, '\0');
    assert_string_equal(out.data, "NAME  N   NOTE\ngr\xc3\xbcn  10\na     2   x\\x0ay\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_refused), cmocka_unit_test(test_options_taken),
        cmocka_unit_test(test_options_rest),    cmocka_unit_test(test_options_value_like_an_option),
        cmocka_unit_test(test_options_help),    cmocka_unit_test(test_escape),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
