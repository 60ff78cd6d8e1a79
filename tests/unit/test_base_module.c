/* Loading modules and finding the command. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/module.h"

static void expect_refused(const char *name, int code, const char *part) {
    ty_error err = {0};
    assert_null(module_load(name, &err));
    assert_int_equal(err.code, code);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void refuses(void **state) {
    (void)state;
    char longest[100];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    expect_refused("../test_good", TY_EUNSUPPORTED,
                   "cannot load module ../test_good: no module has such a name");
    expect_refused(longest, TY_EUNSUPPORTED, "no module has such a name");
    expect_refused("missing", TY_EUNSUPPORTED, "module missing is not installed: looked for missing.so in ");
    expect_refused("test_nameless", TY_EUNSUPPORTED, "trainyard_test_nameless");
    expect_refused("test_old", TY_EVERSION,
                   "test_old.so is of build 0.0.0, but this is trainyard " TY_VERSION "+");
    expect_refused("test_apart", TY_EVERSION, base_build); /* the same version, built apart */
    assert_null(module_load("missing", NULL));
}

static void loads(void **state) {
    (void)state;
    const struct {
        const char *version;
        int (*answer)(void);
    } *module = module_load("test_good", NULL);
    assert_non_null(module);
    assert_string_equal(module->version, base_build);
    assert_int_equal(module->answer(), 42);
    assert_ptr_equal(module_load("test_good", NULL), module);
}

static void home_is_where_this_program_lies(void **state) {
    (void)state;
    char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(size > 0);
    path[size] = '\0';
    *strrchr(path, '/') = '\0';
    assert_int_equal(chdir("/"), 0);
    assert_string_equal(module_home(), path);
}

static char *home_path(const char *rest) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", module_home(), rest);
    return buffer_take(&path);
}

static void finds_the_command_beside_or_in_bin(void **state) {
    (void)state;
    CLEANUP_FREE char *beside = home_path("trainyard");
    CLEANUP_FREE char *bin = home_path("../bin");
    CLEANUP_FREE char *command = home_path("../bin/trainyard");
    ty_error err = {0};
    const char *installed = module_command(&err);
    if (installed == NULL) assert_int_equal(err.code, TY_EUNSUPPORTED);
    if (installed == NULL)
        assert_non_null(strstr(err.message, "cannot find the trainyard command: looked in "));
    assert_int_equal(file_make_directories(bin, 0755, NULL), 0);
    assert_int_equal(mknod(command, S_IFREG | 0755, 0), 0);
    assert_string_equal(module_command(NULL), command);
    assert_int_equal(mknod(beside, S_IFREG | 0644, 0), 0); /* not executable: passed over */
    assert_string_equal(module_command(NULL), command);
    assert_int_equal(chmod(beside, 0755), 0);
    assert_string_equal(module_command(NULL), beside);
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(unlink(command), 0);
    assert_int_equal(rmdir(bin), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(loads),
        cmocka_unit_test(home_is_where_this_program_lies),
        cmocka_unit_test(finds_the_command_beside_or_in_bin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
