/* Hosts that a user names: --hosts and host files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "cluster/hosts.h"

/* "a b:8": names with their slots. */
static char *format(struct hosts *hosts) {
    struct buffer text = {0};
    for (size_t i = 0; i < hosts->n; i++) {
        buffer_printf(&text, "%s%s", i > 0 ? " " : "", hosts->items[i].name);
        if (hosts->items[i].slots > 0) buffer_printf(&text, "=%u", hosts->items[i].slots);
    }
    hosts_done(hosts);
    return buffer_take(&text);
}

static int read_text(const char *text, size_t size, struct hosts *hosts, ty_error *err) {
    char path[] = "/tmp/trainyard-test-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, text, size), 0);
    (void)close(fd);
    int result = hosts_read(path, hosts, err);
    (void)unlink(path);
    return result;
}

static void words_of_the_option(void **state) {
    (void)state;
    static const struct {
        const char *text, *hosts;
    } cases[] = {
        {"a", "a"},
        {"a,b:8,c", "a b=8 c"},
        {" a , b:8 ", "a b=8"},
        {"gpu[01-03]:2,login", "gpu01=2 gpu02=2 gpu03=2 login"},
        {"r[1,2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
        {"a,a", "a=2"},
        {"a:4,b,a:4", "a=8 b"},
        {"ada@a.example.org:1000000", "ada@a.example.org=1000000"},
        {"fd77::2,[fd77::3],[fd77::4]:8,[::1]", "fd77::2 fd77::3 fd77::4=8 ::1"},
        {"fe80::1%eth0", "fe80::1%eth0"},
        {"10.0.0.1:2", "10.0.0.1=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hosts hosts = {0};
        ty_error err = {0};
        if (hosts_parse(cases[i].text, &hosts, &err) < 0) fail_msg("%s: %s", cases[i].text, err.message);
        CLEANUP_FREE char *text = format(&hosts);
        assert_string_equal(text, cases[i].hosts);
    }
}

static void words_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "a host has no name"},
        {"a,,b", "a host has no name"},
        {",", "a host has no name"},
        {":8", "a host has no name"},
        {"-oProxyCommand=id", "does not begin with '-'"},
        {"ada@-oProxyCommand", "does not begin with '-'"},
        {"a b", "a name has letters"},
        {"a;id", "a name has letters"},
        {"$(id)", "a name has letters"},
        {"a:0", "1 to 1000000"},
        {"a:-1", "1 to 1000000"},
        {"a:1000001", "1 to 1000000"},
        {"a:", "1 to 1000000"},
        {"a:b", "1 to 1000000"},
        {"a:99999999999999999999", "1 to 1000000"},
        {"a:600000,a:600000", "more than 1000000 slots"},
        {"a[1-100001]", "more than 100000 hosts"},
        {"a[1-100000],b", "more than 100000 hosts"},
        {"a[1", "a["},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hosts hosts = {0};
        ty_error err = {0};
        assert_int_equal(hosts_parse(cases[i].text, &hosts, &err), TY_EUSAGE);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s: %s", cases[i].text, err.message);
        assert_null(hosts.items);
    }
}

static void lines_of_a_file(void **state) {
    (void)state;
    static const struct {
        const char *text, *hosts;
    } cases[] = {
        {"# Open MPI\na slots=8\n\nb slots = 4 max_slots=16 # two sockets\r\nc max-slots=2\n", "a=8 b=4 c=2"},
        {"worker-1 slots=4\nworker-2 slots=4", "worker-1=4 worker-2=4"},
        {"a:8\nb\n", "a=8 b"},
        {"a\na\nb\na\n", "a=3 b"},
        {"gpu[01-02] slots=8\n[fd77::2]:2\nfd77::3 slots=4\n", "gpu01=8 gpu02=8 fd77::2=2 fd77::3=4"},
        {"\t a\tcount=2\n b cpu=3", "a=2 b=3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hosts hosts = {0};
        ty_error err = {0};
        if (read_text(cases[i].text, strlen(cases[i].text), &hosts, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.message);
        CLEANUP_FREE char *text = format(&hosts);
        assert_string_equal(text, cases[i].hosts);
    }
}

static void lines_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", ": names no host"},
        {"# nobody\n\n", ": names no host"},
        {"a\nb slots\n", ":2: \"slots\" is not what goes behind a host"},
        {"a\n\nb slots=\n", ":3: \"slots\" is not"},
        {"a slots==8", ":1: \"slots\" is not"},
        {"a slots=8=", ":1: \"slots\" is not"},
        {"a slots=eight", ":1: slots: \"eight\" is not a number of slots"},
        {"a slots=0", ":1: slots: \"0\""},
        {"a 8", ":1: \"8\" is not what goes behind a host"},
        {"a user=ada", ":1: \"user\" is not"},
        {"a b", ":1: \"b\" is not"},
        {"a:8 slots=4", ":1: host a:8 has its slots twice"},
        {"a slots=8 max_slots=4", ":1: max_slots=4 is less than slots=8"},
        {"slots=8", ":1: a line begins with a host, not with slots="},
        {"=", ":1: a line begins with a host"},
        {"a\n-oProxyCommand=id\n", ":2: a line begins with a host, not with -oProxyCommand="},
        {"-oProxyCommand\n", ":1: host \"-oProxyCommand\": a name does not begin"},
        {"a\n`id`\n", ":2: host \"`id`\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hosts hosts = {0};
        ty_error err = {0};
        assert_int_equal(read_text(cases[i].text, strlen(cases[i].text), &hosts, &err), TY_EUSAGE);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s: %s", cases[i].text, err.message);
        assert_null(hosts.items);
    }
    struct hosts hosts = {0};
    ty_error err = {0};
    assert_int_equal(read_text("a\0b", 3, &hosts, &err), TY_EUSAGE);
    assert_int_equal(hosts_read("/nowhere/hosts", &hosts, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "/nowhere/hosts"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_the_option),
        cmocka_unit_test(words_that_are_refused),
        cmocka_unit_test(lines_of_a_file),
        cmocka_unit_test(lines_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
