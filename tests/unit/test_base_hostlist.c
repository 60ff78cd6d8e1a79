/* Host lists: reading, naming, and the way back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "base/hostlist.h"

static int join_name(void *context, const char *name) {
    struct buffer *out = context;
    if (out->size > 0) buffer_char(out, ' ');
    buffer_text(out, name);
    return 0;
}

static struct hostlist *parse(const char *text) {
    struct hostlist *list = NULL;
    ty_error err = {0};
    if (hostlist_parse(text, &list, &err) < 0) fail_msg("%s", err.message);
    return list;
}

static void texts_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"", "a name is missing at character 1"},
                 {",a", "a name is missing at character 1"},
                 {"a,", "a name is missing at character 3"},
                 {"a,,b", "a name is missing at character 3"},
                 {"a b", "a character that host names do not have at character 2"},
                 {"a, b", "a character that host names do not have at character 3"},
                 {"a/b", "a character that host names do not have"},
                 {"../a", "a character that host names do not have"},
                 {"a]", "a character that host names do not have at character 2"},
                 {"a\xc3\xa9", "a character that host names do not have"},
                 {"a[", "a number is missing"},
                 {"a[]", "a number is missing at character 3"},
                 {"a[1", "a bracket that is not closed at character 4"},
                 {"a[1,", "a number is missing"},
                 {"a[1,]", "a number is missing"},
                 {"a[1-]", "a number is missing"},
                 {"a[-1]", "a number is missing"},
                 {"a[x]", "a number is missing"},
                 {"a[1x]", "a character that cannot stand in a bracket"},
                 {"a[1-2-3]", "a character that cannot stand in a bracket"},
                 {"a[[1]]", "a number is missing"},
                 {"a[1 ]", "a character that cannot stand in a bracket"},
                 {"a[3-1]", "a range that descends at character 3"},
                 {"a[01-3]", "leading zeros"},
                 {"a[1-03]", "leading zeros"},
                 {"a[0000000000000000001]", "a number of more than 18 digits"},
                 {"a[0-99999999999999999]", "a range of too many hosts"},
                 {"a[0-16777216]", "a range of too many hosts"},
                 {"a[0-16777215,16777216]", "too many hosts"},
                 {"a[0-9999]b[0-9999]", "too many hosts"},
                 {"a[0-16777215],b", "too many hosts"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hostlist *list = NULL;
        ty_error err = {0};
        assert_int_equal(hostlist_parse(cases[i].text, &list, &err), TY_EUSAGE);
        assert_null(list);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s: %s", cases[i].text, err.message);
    }
    hostlist_destroy(NULL);
}

static void expands(void **state) {
    (void)state;
    static const struct {
        const char *text, *names;
    } cases[] = {{"login", "login"},
                 {"gpu[01-04,7],login", "gpu01 gpu02 gpu03 gpu04 gpu7 login"},
                 {"n[8-11]", "n8 n9 n10 n11"},
                 {"n[098-101]", "n098 n099 n100 n101"},
                 {"n[09-10]", "n09 n10"},
                 {"n[0-0]", "n0"},
                 {"n[000]", "n000"},
                 {"n[3,1,1]", "n3 n1 n1"},
                 {"[1-2]", "1 2"},
                 {"r[1-2]n[1-3]", "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3"},
                 {"a[1-2][5,7]-ib.x", "a15-ib.x a17-ib.x a25-ib.x a27-ib.x"},
                 {"a_b-c.d:9,a_b-c.d:9", "a_b-c.d:9 a_b-c.d:9"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer names = {0};
        CLEANUP(buffer_done) struct buffer single = {0};
        struct hostlist *list = parse(cases[i].text);
        assert_int_equal(hostlist_each(list, join_name, &names), 0);
        assert_string_equal(names.data, cases[i].names);
        for (size_t k = 0; k < hostlist_count(list); k++) {
            if (k > 0) buffer_char(&single, ' ');
            hostlist_nth(list, k, &single);
        }
        assert_string_equal(single.data, cases[i].names);
        hostlist_nth(list, hostlist_count(list), &single); /* beyond the end: nothing */
        assert_string_equal(single.data, cases[i].names);
        hostlist_destroy(list);
    }
}

static int stop_at_third(void *context, const char *name) {
    (void)name;
    return ++*(int *)context == 3 ? -7 : 0;
}

static void walking_stops_when_told(void **state) {
    (void)state;
    int calls = 0;
    struct hostlist *list = parse("n[1-1000000]");
    assert_int_equal(hostlist_each(list, stop_at_third, &calls), -7);
    assert_int_equal(calls, 3);
    hostlist_destroy(list);
}

static void the_largest_list(void **state) {
    (void)state;
    struct hostlist *list = parse("r[0-4095]n[0000-4095]");
    assert_int_equal(hostlist_count(list), HOSTLIST_MAX);
    CLEANUP(buffer_done) struct buffer name = {0};
    hostlist_nth(list, HOSTLIST_MAX - 1, &name);
    assert_string_equal(name.data, "r4095n4095");
    buffer_clear(&name);
    hostlist_nth(list, 4096 * 17 + 5, &name);
    assert_string_equal(name.data, "r17n0005");
    hostlist_destroy(list);
}

/* Names gathered from a list. */
struct names {
    char *items[2048];
    size_t n;
};

static int keep_name(void *context, const char *name) {
    struct names *names = context;
    names->items[names->n++] = strdup(name);
    return 0;
}

static void gather(const char *text, struct names *names) {
    struct hostlist *list = parse(text);
    assert_int_equal(hostlist_each(list, keep_name, names), 0);
    hostlist_destroy(list);
}

static void release(struct names *names) {
    while (names->n > 0)
        free(names->items[--names->n]);
}

static void compresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *joined;
    } cases[] = {{"a", "a"},
                 {"a,a", "a,a"},
                 {"a1", "a1"},
                 {"a1,a2", "a[1-2]"},
                 {"a1,a3", "a[1,3]"},
                 {"a2,a1", "a[2,1]"},
                 {"a1,a1", "a[1,1]"},
                 {"a1,b1", "a1,b1"},
                 {"a,a1", "a,a1"},
                 {"1,2", "[1-2]"},
                 {"gpu01,gpu02,gpu03,gpu04,gpu7,login", "gpu[01-04,7],login"},
                 {"n8,n9,n10,n11", "n[8-11]"},
                 {"n09,n10", "n[09-10]"},
                 {"n9,n010", "n[9,010]"},
                 {"n010,n11", "n[010,11]"},
                 {"n1,n02,n3", "n[1,02,3]"},
                 {"n1-ib,n2-ib,n3", "n[1-2]-ib,n3"},
                 {"r1n1,r1n2,r2n1,r2n2", "r[1-2]n[1-2]"},
                 {"r1n1,r1n2,r2n1,r2n3", "r1n[1-2],r2n[1,3]"},
                 {"r1n1,r2n1,r1n2,r2n2", "r[1-2]n1,r[1-2]n2"}, /* the left number turns faster: order is kept */
                 {"a1,b2,b3,a4", "a1,b[2-3],a4"},
                 {"n0000000000000000001,n0000000000000000002", "n0000000000000000001,n0000000000000000002"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        struct names names = {0};
        gather(cases[i].text, &names);
        hostlist_compress((const char *const *)names.items, names.n, &out);
        assert_string_equal(out.data, cases[i].joined);
        release(&names);
    }
    struct buffer nothing = {0};
    hostlist_compress(NULL, 0, &nothing);
    assert_int_equal(nothing.size, 0);
}

static void what_is_compressed_is_read_back(void **state) {
    (void)state;
    struct dice dice;
    dice_seed(&dice, 7);
    for (int round = 0; round < 200; round++) {
        CLEANUP(buffer_done) struct buffer text = {0};
        CLEANUP(buffer_done) struct buffer compressed = {0};
        for (int i = 0; i < 40; i++) {
            const char *comma = i > 0 ? "," : "";
            unsigned number = (unsigned)dice_below(&dice, 12);
            switch (dice_below(&dice, 4)) {
            case 0:
                buffer_printf(&text, "%sn%u", comma, number);
                break;
            case 1:
                buffer_printf(&text, "%sr%u-x", comma, number);
                break;
            case 2:
                buffer_printf(&text, "%sr%un%u", comma, number % 3, number);
                break;
            default:
                buffer_printf(&text, "%sr1n%02u", comma, number);
                break;
            }
        }
        struct names names = {0}, again = {0};
        gather(text.data, &names);
        hostlist_compress((const char *const *)names.items, names.n, &compressed);
        gather(compressed.data, &again);
        assert_int_equal(again.n, names.n);
        for (size_t i = 0; i < names.n; i++)
            assert_string_equal(again.items[i], names.items[i]);
        release(&names);
        release(&again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_refused),
        cmocka_unit_test(expands),
        cmocka_unit_test(walking_stops_when_told),
        cmocka_unit_test(the_largest_list),
        cmocka_unit_test(compresses),
        cmocka_unit_test(what_is_compressed_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
