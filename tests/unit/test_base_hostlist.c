/* Host lists: reading and naming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
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
        struct hostlist *list = parse(cases[i].text);
        assert_int_equal(hostlist_each(list, join_name, &names), 0);
        assert_string_equal(names.data, cases[i].names);
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

/* Counts names, and keeps the one at which it stops. */
struct walk {
    size_t n, last;
    struct buffer name;
};

static int keep_last(void *context, const char *name) {
    struct walk *walk = context;
    if (walk->n++ < walk->last) return 0;
    buffer_text(&walk->name, name);
    return 1;
}

static void the_largest_list(void **state) {
    (void)state;
    struct hostlist *list = parse("r[0-4095]n[0000-4095]");
    struct walk walk = {.last = 4096 * 17 + 5};
    assert_int_equal(hostlist_count(list), HOSTLIST_MAX);
    assert_int_equal(hostlist_each(list, keep_last, &walk), 1);
    assert_string_equal(walk.name.data, "r17n0005");
    buffer_done(&walk.name);
    hostlist_destroy(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_refused),
        cmocka_unit_test(expands),
        cmocka_unit_test(walking_stops_when_told),
        cmocka_unit_test(the_largest_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
