/* Labels and selectors: docs/spec/placement.md 3.4 and the vectors of 6.7. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "scaling/label.h"

static const char *format(const struct label_selector *selector) {
    static char text[1024];
    struct buffer out = {0};
    buffer_text(&out, "");
    label_selector_format(selector, &out);
    (void)snprintf(text, sizeof text, "%s", out.data);
    buffer_done(&out);
    return text;
}

static void assert_expression(const char *expression, const char *expected) {
    struct label_selector selector = {0};
    ty_error err = {0};
    if (label_selector_add(&selector, "key", expression, &err) < 0)
        fail_msg("\"%s\": %s", expression, err.message);
    assert_string_equal(format(&selector), expected);
    label_selector_done(&selector);
}

static void assert_refused(const char *key, const char *expression) {
    struct label_selector selector = {0};
    ty_error err = {0};
    int result = label_selector_add(&selector, key, expression, &err);
    if (result >= 0) fail_msg("%s = \"%s\" was accepted", key, expression);
    assert_int_equal(result, TY_EUSAGE);
    assert_non_null(strstr(err.message, key));
    assert_int_equal(selector.n, 0);
}

static void expressions_are_understood(void **state) {
    (void)state;
    assert_expression("in(us-west,us-east,me-central)", "key in (me-central, us-east, us-west)");
    assert_expression("!in(premium,free)", "key not in (free, premium)");
    assert_expression("dev", "key dev");
    assert_expression("!dev", "key not dev");
    assert_expression("", "key \"\"");
    assert_expression("in(a , b,a )", "key in (a, b)");
    assert_expression("in(a)", "key a");
    assert_expression("in", "key in");
    assert_expression("a.b_c-D9", "key a.b_c-D9");
}

static void bad_expressions_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "-spot",  "spot_",  "in()", "in(spot,", "!!!in(a)", "in(H100, TPU!GPU)", "in(a,)", "in(,a)",
        "in(a))", "in (a)", "a b",  "!!a",      "a,b",      "in(in(a))",         "a/b",    ".a",
        "a.",     "in(a",   "(a)",  "\xc3\xa9",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_refused("key", bad[i]);
}

static void keys_follow_the_syntax(void **state) {
    (void)state;
    static const char *const bad[] = {"-a", "a-", "a b", "/a", "a/", "a/b/c", "a=b", "pre_fix/a"};
    static const char *const good[] = {"a", "ray.io/accelerator-type", "A_b.c", "x-1.example.com/name"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_refused(bad[i], "v");
    assert_refused("", "v");
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct label_selector selector = {0};
        assert_int_equal(label_selector_add(&selector, good[i], "v", NULL), 0);
        label_selector_done(&selector);
    }
}

static void lengths_are_limited(void **state) {
    (void)state;
    char text[400];
    memset(text, 'a', sizeof text);
    struct labels labels = {0};
    text[63] = '\0';
    assert_int_equal(labels_set(&labels, "key", text, NULL), 0);
    assert_int_equal(labels_set(&labels, text, "v", NULL), 0);
    text[63] = 'a', text[64] = '\0';
    assert_int_equal(labels_set(&labels, "key", text, NULL), TY_EUSAGE);
    assert_int_equal(labels_set(&labels, text, "v", NULL), TY_EUSAGE);
    text[64] = 'a', text[253] = '/', text[254] = 'n', text[255] = '\0';
    assert_int_equal(labels_set(&labels, text, "v", NULL), 0);
    text[253] = 'a', text[254] = '/', text[255] = 'n', text[256] = '\0';
    assert_int_equal(labels_set(&labels, text, "v", NULL), TY_EUSAGE);
    assert_int_equal(labels.n, 3);
    labels_done(&labels);
}

static void labels_are_sorted_and_replaced(void **state) {
    (void)state;
    struct labels labels = {0};
    assert_int_equal(labels_set(&labels, "zone", "a", NULL), 0);
    assert_int_equal(labels_set(&labels, "arch", "x", NULL), 0);
    assert_int_equal(labels_set(&labels, "type", "", NULL), 0);
    assert_int_equal(labels_set(&labels, "zone", "b", NULL), 0);
    assert_int_equal(labels.n, 3);
    assert_string_equal(labels.items[0].key, "arch");
    assert_string_equal(labels.items[2].key, "zone");
    assert_string_equal(labels_get(&labels, "zone"), "b");
    assert_string_equal(labels_get(&labels, "type"), "");
    assert_null(labels_get(&labels, "zon"));
    ty_error err = {0};
    assert_int_equal(labels_set(&labels, "zone", "c_", &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "\"c_\""));
    assert_string_equal(labels_get(&labels, "zone"), "b");
    labels_done(&labels);
}

static bool matches(const char *selector_text, const char *const (*pairs)[2], size_t n) {
    struct label_selector selector = {0};
    struct labels labels = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(labels_set(&labels, pairs[i][0], pairs[i][1], NULL), 0);
    assert_int_equal(label_selector_parse(&selector, selector_text, NULL), 0);
    bool match = label_selector_match(&selector, &labels);
    label_selector_done(&selector);
    labels_done(&labels);
    return match;
}

static void selectors_match(void **state) {
    (void)state;
    static const char *const node[][2] = {{"zone", "a"}, {"type", "A100"}, {"empty", ""}};
    static const struct {
        const char *selector;
        bool match;
    } rows[] = {
        {"none=a", false},
        {"none=!a", true},
        {"none=in(a,b)", false},
        {"none=!in(a,b)", true},
        {"zone=in(a,b),type=!T4", true},
        {"zone=in(b,c)", false},
        {"zone=a,type=A100", true},
        {"zone=a,type=T4", false},
        {"empty=", true},
        {"none=", false},
        {"zone=!", true},
        {"zone=!in(a,b)", false},
        {"type=a100", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (matches(rows[i].selector, node, ARRAY_SIZE(node)) != rows[i].match)
            fail_msg("%s", rows[i].selector);
    struct label_selector all = {0};
    struct labels none = {0};
    assert_true(label_selector_match(&all, &none));
}

static void a_list_is_parsed_whole_or_not(void **state) {
    (void)state;
    struct label_selector selector = {0}, same = {0}, copy = {0};
    ty_error err = {0};
    assert_int_equal(label_selector_parse(&selector, "zone=in(b,a), type=!T4", &err), 0);
    assert_string_equal(format(&selector), "zone in (a, b) and type not T4");
    assert_int_equal(label_selector_parse(&selector, "zone=in(a,b,a)", &err), 0);
    assert_int_equal(selector.n, 2);
    static const char *const bad[] = {"x", "x=1,y", "=1", "x=1,", "x=-", "x=in(1"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(label_selector_parse(&selector, bad[i], &err), TY_EUSAGE);
    assert_int_equal(selector.n, 2);
    assert_int_equal(label_selector_parse(&same, "type=!T4,zone=in(a,b)", &err), 0);
    assert_true(label_selector_equal(&selector, &same));
    assert_int_equal(label_selector_copy(&copy, &selector), 0);
    assert_true(label_selector_equal(&selector, &copy));
    assert_int_equal(label_selector_parse(&same, "zone=!in(a,b)", &err), 0);
    assert_false(label_selector_equal(&selector, &same));
    label_selector_done(&selector);
    label_selector_done(&same);
    label_selector_done(&copy);
}

/* As many as there may be, then one more, which changes nothing. */
static void numbers_are_limited(void **state) {
    (void)state;
    CLEANUP(labels_done) struct labels labels = {0};
    CLEANUP(label_selector_done) struct label_selector selector = {0};
    CLEANUP(buffer_done) struct buffer list = {0};
    ty_error err = {0};
    for (int i = 0; i <= LABELS_MAX; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i);
        buffer_printf(&list, "%s%s", i > 0 ? "," : "in(", key);
        int expected = i < LABELS_MAX ? 0 : TY_EUSAGE;
        assert_int_equal(labels_set(&labels, key, "v", &err), expected);
        assert_int_equal(label_selector_add(&selector, key, "v", &err), expected);
    }
    assert_int_equal(labels.n, LABELS_MAX);
    assert_int_equal(labels_set(&labels, "k7", "other", &err), 0);
    assert_string_equal(labels_get(&labels, "k7"), "other");
    assert_int_equal(selector.n, LABELS_MAX);
    label_selector_done(&selector);
    buffer_char(&list, ')');
    buffer_char(&list, '\0');
    assert_int_equal(label_selector_add(&selector, "k", list.data, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "1000"));
    assert_int_equal(selector.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_are_understood),     cmocka_unit_test(bad_expressions_are_refused),
        cmocka_unit_test(keys_follow_the_syntax),         cmocka_unit_test(lengths_are_limited),
        cmocka_unit_test(labels_are_sorted_and_replaced), cmocka_unit_test(selectors_match),
        cmocka_unit_test(a_list_is_parsed_whole_or_not),  cmocka_unit_test(numbers_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
