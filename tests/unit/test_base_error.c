/* Errors: one line, a code, and wrapping. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

static void null_error_keeps_the_code(void **state) {
    (void)state;
    assert_int_equal(ty_fail(NULL, TY_EUSAGE, "x"), TY_EUSAGE);
    assert_int_equal(ty_wrap(NULL, "x"), TY_EFAULT);
    assert_int_equal(ty_fail_memory(NULL), -ENOMEM);
}

static void fills_code_and_text(void **state) {
    (void)state;
    ty_error err = {0};
    errno = ENOENT;
    assert_int_equal(ty_fail(&err, -EACCES, "cannot open %s", "a"), -EACCES);
    assert_int_equal(err.code, -EACCES);
    assert_string_equal(err.message, "cannot open a");
    assert_int_equal(errno, ENOENT);
}

static void one_line(void **state) {
    (void)state;
    ty_error err = {0};
    (void)ty_fail(&err, TY_EUSAGE, "\n a\r\nb\tc\x1b[1m\x7f \n");
    assert_string_equal(err.message, "a  b c [1m");
    (void)ty_fail(&err, TY_EUSAGE, "%s", "");
    assert_string_equal(err.message, "");
}

static void the_limit_of_descriptors_is_named(void **state) {
    (void)state;
    ty_error err = {0};
    struct rlimit limit;
    char wanted[128];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    (void)snprintf(wanted, sizeof wanted, "node a: cannot open b: Too many open files (limit %llu: ulimit -n)",
                   (unsigned long long)limit.rlim_cur);
    (void)ty_fail(&err, TY_ESTART, "cannot open b: %s", strerror(EMFILE));
    (void)ty_wrap(&err, "node a");
    assert_string_equal(err.message, wanted);
    (void)ty_fail(&err, -ENFILE, "cannot open b: %s", strerror(ENFILE));
    assert_string_equal(err.message, "cannot open b: Too many open files in system");
}

/* The object at the beginning and the reason at the end stay; what is left out ends between characters. */
static void a_long_path_leaves_the_reason(void **state) {
    (void)state;
    char path[4096];
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = '\0';
    ty_error err = {0};
    for (size_t size = 500; size < sizeof path; size += 37) {
        (void)ty_fail(&err, -ENOENT, "cannot open %.*s: %s", (int)size, path, strerror(ENOENT));
        assert_non_null(strstr(err.message, "cannot open aaa"));
        assert_non_null(strstr(err.message, "aaa: No such file or directory"));
        assert_int_equal(ty_wrap(&err, "node %.*s", (int)size, path), -ENOENT);
        assert_non_null(strstr(err.message, "node aaa"));
        assert_non_null(strstr(err.message, "aaa: No such file or directory"));
        assert_true(strlen(err.message) < TY_ERROR_MESSAGE_SIZE);
    }
    (void)ty_fail(&err, -EXDEV, "cannot rename %s to %s: %s", path, path, strerror(EXDEV));
    assert_non_null(strstr(err.message, strerror(EXDEV)));
    (void)ty_fail(&err, TY_EUSAGE, "%.*s", TY_ERROR_MESSAGE_SIZE - 1, path);
    assert_int_equal(strlen(err.message), TY_ERROR_MESSAGE_SIZE - 1);
    assert_null(strstr(err.message, "..."));
}

static void long_text_is_cut_between_characters(void **state) {
    (void)state;
    char text[3000];
    ty_error err = {0};
    for (size_t shift = 0; shift < 4; shift++) {
        text[0] = '\0';
        for (size_t i = 0; i < shift; i++)
            (void)strcat(text, "a");
        for (size_t i = 0; i < 700; i++)
            (void)strcat(text, "\xf0\x9f\x98\x80");
        (void)ty_fail(&err, TY_EUSAGE, "%s", text);
        assert_true(strlen(err.message) < TY_ERROR_MESSAGE_SIZE);
        assert_true(strlen(err.message) > TY_ERROR_MESSAGE_SIZE - 10);
        assert_true(utf8_valid(err.message, strlen(err.message)));
    }
}

static void wrapping_puts_the_object_before(void **state) {
    (void)state;
    ty_error err = {0};
    (void)ty_fail(&err, TY_ENODE, "lost after %d s", 5);
    assert_int_equal(ty_wrap(&err, "node %s", "n1"), TY_ENODE);
    assert_int_equal(err.code, TY_ENODE);
    assert_string_equal(err.message, "node n1: lost after 5 s");
}

static void wrapping_nothing_is_a_fault(void **state) {
    (void)state;
    ty_error err = {0};
    assert_int_equal(ty_wrap(&err, "node n1"), TY_EFAULT);
    assert_int_equal(err.code, TY_EFAULT);
    assert_string_equal(err.message, "node n1");
}

static void own_message_may_be_an_argument(void **state) {
    (void)state;
    ty_error err = {0};
    (void)ty_fail(&err, TY_EUSAGE, "inner");
    (void)ty_fail(&err, TY_ESTART, "outer (%s)", err.message);
    assert_string_equal(err.message, "outer (inner)");
}

static void names(void **state) {
    (void)state;
    assert_string_equal(ty_error_name(0), "success");
    assert_string_equal(ty_error_name(12), "success");
    assert_string_equal(ty_error_name(TY_EUSAGE), "TY_EUSAGE");
    assert_string_equal(ty_error_name(TY_EFAULT), "TY_EFAULT");
    assert_string_equal(ty_error_name(-EINVAL), "EINVAL");
    assert_string_equal(ty_error_name(-99999), "unknown");
    assert_string_equal(ty_error_name(INT32_MIN), "unknown");
}

static void exit_statuses(void **state) {
    (void)state;
    static const int expected[][2] = {{0, 0},
                                      {3, 0},
                                      {TY_EUSAGE, 2},
                                      {TY_EEXISTS, 2},
                                      {TY_EBUSY, 3},
                                      {TY_ESTART, 4},
                                      {TY_EINFEASIBLE, 3},
                                      {TY_ENODE, 5},
                                      {TY_EWORKER, 1},
                                      {TY_ETIMEOUT, 124},
                                      {TY_EINTERRUPTED, 130},
                                      {TY_EVERSION, 4},
                                      {-EINVAL, 1},
                                      {-99999, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        assert_int_equal(ty_error_exit_status(expected[i][0]), expected[i][1]);
}

static void what_may_pass(void **state) {
    (void)state;
    static const int passing[] = {-EAGAIN, -ENOMEM, -EMFILE, TY_ECOMM},
                     lasting[] = {0, 1, -ENOENT, -EACCES, TY_EUSAGE, TY_ESTART};
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        assert_true(error_may_pass(passing[i]));
    for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++)
        assert_false(error_may_pass(lasting[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_error_keeps_the_code),
        cmocka_unit_test(fills_code_and_text),
        cmocka_unit_test(one_line),
        cmocka_unit_test(the_limit_of_descriptors_is_named),
        cmocka_unit_test(a_long_path_leaves_the_reason),
        cmocka_unit_test(long_text_is_cut_between_characters),
        cmocka_unit_test(wrapping_puts_the_object_before),
        cmocka_unit_test(wrapping_nothing_is_a_fault),
        cmocka_unit_test(own_message_may_be_an_argument),
        cmocka_unit_test(names),
        cmocka_unit_test(exit_statuses),
        cmocka_unit_test(what_may_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
