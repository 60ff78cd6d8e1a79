/* Logging: levels and the sink. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log.h"

static void keep(void *context, enum log_level level, const char *subsystem, const char *text) {
    buffer_printf(context, "%d %s %s\n", (int)level, subsystem, text);
    errno = EIO;
}

static void log_at_every_level(void) {
    log_error("agent", "lost %s", "n1");
    log_warning("agent", "late");
    log_info("agent", "started");
    log_debug("agent", "woke");
}

static void expect_at(const char *level, const char *expected) {
    CLEANUP(buffer_done) struct buffer out = {0};
    if (level == NULL)
        (void)unsetenv("TRAINYARD_LOG");
    else
        (void)setenv("TRAINYARD_LOG", level, 1);
    log_set_sink(keep, &out);
    errno = ENOENT;
    log_at_every_level();
    assert_int_equal(errno, ENOENT);
    assert_string_equal(out.data, expected);
    log_set_sink(NULL, NULL);
}

static void silent_without_a_sink(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    log_at_every_level();
    log_set_sink(keep, &out);
    log_set_sink(NULL, NULL);
    log_at_every_level();
    assert_int_equal(out.size, 0);
}

static void the_level_limits(void **state) {
    (void)state;
    expect_at("error", "0 agent lost n1\n");
    expect_at("warning", "0 agent lost n1\n1 agent late\n");
    expect_at("info", "0 agent lost n1\n1 agent late\n2 agent started\n");
    expect_at("debug", "0 agent lost n1\n1 agent late\n2 agent started\n3 agent woke\n");
    expect_at(NULL, "0 agent lost n1\n1 agent late\n");
    expect_at("loud", "0 agent lost n1\n1 agent late\n");
}

static void long_text_is_cut(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_set_sink(keep, &out);
    log_error("x", "%s", text);
    assert_int_equal(out.size, strlen("0 x \n") + 1023);
    log_set_sink(NULL, NULL);
}

static void *log_once(void *nothing) {
    log_error("other", "said");
    return nothing;
}

static void a_thread_has_a_target_of_its_own(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer all = {0}, own = {0}, inner = {0};
    pthread_t other;
    (void)unsetenv("TRAINYARD_LOG");
    log_set_sink(keep, &all);
    struct log_target none = log_divert(log_target(keep, &own));
    struct log_target outer = log_divert(log_target(keep, &inner));
    log_error("a", "within");
    (void)log_divert(outer);
    assert_int_equal(pthread_create(&other, NULL, log_once, NULL), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    log_error("a", "again");
    (void)log_divert(none);
    log_error("a", "all");
    log_set_sink(NULL, NULL);
    assert_string_equal(inner.data, "0 a within\n");
    assert_string_equal(own.data, "0 a again\n");
    assert_string_equal(all.data, "0 other said\n0 a all\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_without_a_sink),
        cmocka_unit_test(the_level_limits),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(a_thread_has_a_target_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
