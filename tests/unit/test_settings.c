/* The table of settings: standard values, each form of each type with its bounds, what settings_finish
 * concludes, and that a row is all that a new setting takes (this program is built with a table that has one
 * more). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/run_options.h"

static const struct setting *row(const char *key) {
    const struct setting *found = setting_find(key);
    if (found == NULL) fail_msg("no row %s", key);
    return found;
}

static int set_json(struct run_settings *settings, const char *key, const char *json, ty_error *err) {
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    int result = setting_set_json(row(key), settings, value, key, err);
    json_decref(value);
    return result;
}

static void refuses_json(const char *key, const char *json, const char *message) {
    struct run_settings settings, before;
    ty_error err = {0};
    settings_init(&settings);
    before = settings;
    assert_int_equal(set_json(&settings, key, json, &err), TY_EUSAGE);
    if (strstr(err.message, message) == NULL) fail_msg("%s: %s gave \"%s\"", key, json, err.message);
    assert_memory_equal(&settings, &before, sizeof settings);
}

static void refuses_text(const char *key, const char *text, const char *message) {
    struct run_settings settings, before;
    ty_error err = {0};
    settings_init(&settings);
    before = settings;
    assert_int_equal(setting_set_text(row(key), &settings, text, &err), TY_EUSAGE);
    if (strstr(err.message, message) == NULL) fail_msg("%s: %s gave \"%s\"", key, text, err.message);
    assert_memory_equal(&settings, &before, sizeof settings);
}

static void refuses_public(const ty_run_config *config, const char *message) {
    struct run_settings settings;
    ty_error err = {0};
    settings_init(&settings);
    assert_int_equal(settings_from_public(&settings, config, &err), TY_EUSAGE);
    assert_string_equal(err.message, message);
}

static void standard_values_are_those_of_the_table(void **state) {
    (void)state;
    struct run_settings settings;
    settings_init(&settings);
    assert_int_equal(settings.grace, 5 * NS_PER_S);
    assert_int_equal(settings.time_limit, 0);
    assert_int_equal(settings.failures.controller_failure_limit, CONTROLLER_FAILURE_LIMIT_DEFAULT);
    assert_int_equal(settings.bind, BIND_NUMA);
    assert_null(settings.resume);
    ty_error err = {0};
    ty_run_config zero = {0};
    struct run_settings public = settings;
    assert_int_equal(settings_from_public(&public, &zero, &err), 0);
    assert_memory_equal(&public, &settings, sizeof settings);
}

static void numbers_have_the_same_bounds_in_every_form(void **state) {
    (void)state;
    static const char *const seconds[] = {"grace_s", "linger_s", "outlive_s", "time_limit_s", "hang_timeout_s"};
    for (size_t i = 0; i < ARRAY_SIZE(seconds); i++) {
        refuses_json(seconds[i], "3000000001",
                     "must be a number of seconds from 0 to 3000000000, not 3000000001");
        refuses_json(seconds[i], "9223372036854775807", "must be a number of seconds from 0 to 3000000000");
        refuses_text(seconds[i], "3000000001", "must be at most 34722 d");
        refuses_text(seconds[i], "9223372036854775808", "longer than 100 years");
    }
    static const char *const too_large[] = {"2147483648", "4294967296", "9223372036854775807"};
    for (size_t i = 0; i < ARRAY_SIZE(too_large); i++) {
        refuses_json("max_failures", too_large[i], "max_failures must be a whole number from 0 to 1000000");
        refuses_text("num_to_keep", too_large[i], "must be a whole number from 1 to 1000000");
    }
    refuses_public(&(ty_run_config){.grace_s = 9223372036854775808.0},
                   "grace_s must be a number of seconds from 0 to 3000000000, not 9.223372037e+18");
    refuses_json("max_failures", "1000001", "or -1 for no bound, not 1000001");
    refuses_text("max_failures", "-2", "must be a whole number from 0 to 1000000, or -1 for no bound");
    refuses_text("max_failures", "18446744073709551616", "must be a whole number");
    refuses_json("time_limit_s", "-0.001", "from 0 to 3000000000, not -0.001");
    refuses_json("hang_timeout_s", "true", "hang_timeout_s must be a number of seconds");
    refuses_public(&(ty_run_config){.time_limit_s = NAN},
                   "time_limit_s must be a number of seconds from 0 to 3000000000, not nan");
    refuses_public(&(ty_run_config){.hang_timeout_s = DBL_MAX},
                   "hang_timeout_s must be a number of seconds from 0 to 3000000000, not 1.797693135e+308");
    refuses_public(
        &(ty_run_config){.max_failures = INT_MIN},
        "max_failures must be a whole number from 0 to 1000000, or -1 for no bound, not -2147483648");
    refuses_public(&(ty_run_config){.num_to_keep = -1},
                   "num_to_keep must be a whole number from 1 to 1000000, not -1");

    static const char *const sizes[] = {"65535", "-1", "1e16", "9223372036854775807", "18446744073709551616"};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        refuses_json(
            "log_limit", sizes[i][0] == '1' && sizes[i][1] == '8' ? "\"18446744073709551616\"" : sizes[i],
            "log_limit must be an amount of bytes from 65536 to 1000000000000000, as 100MiB, or 0 for any");
        refuses_text("log_limit", sizes[i], "must be an amount of bytes from 65536");
    }
    refuses_text("log_limit", "nan", "must be an amount of bytes");
    refuses_text("log_limit", "64 KiB", "must be an amount of bytes");
    refuses_json("log_limit", "true", "log_limit must be an amount of bytes");
    static const char *const periods[] = {"0", "0.09", "60.1", "-1", "nan", "1e300", "often", "10 s s", ""};
    for (size_t i = 0; i < ARRAY_SIZE(periods); i++)
        refuses_text("sample", periods[i], "must be a time from 0.1 to 60 seconds, or \"off\"");
    refuses_json("sample", "0", "sample must be a time from 0.1 to 60 seconds, or \"off\", not 0");
    refuses_json("sample", "true", "sample must be a time from 0.1 to 60 seconds");
    refuses_public(&(ty_run_config){.log_limit = 1}, "log_limit must be an amount of bytes from 65536 to "
                                                     "1000000000000000, as 100MiB, or 0 for any, not 1");

    static const char *const ranks[] = {"-1", "true", "1.0", "4294967296", "9223372036854775807", "\"some\""};
    for (size_t i = 0; i < ARRAY_SIZE(ranks); i++) {
        refuses_json("debug", ranks[i], "debug must be a rank, not ");
        refuses_json("stdin", ranks[i], "stdin must be a rank, \"all\" or \"none\", not ");
    }
    refuses_json("debug", "\"all\"", "debug must be a rank, not \"all\"");

    struct run_settings settings;
    ty_error err = {0};
    settings_init(&settings);
    assert_int_equal(set_json(&settings, "debug", "3", &err), 0);
    assert_int_equal(settings.debug, 3);
    assert_int_equal(set_json(&settings, "stdin", "\"all\"", &err), 0);
    assert_int_equal(settings.input, RANK_ALL);
    assert_int_equal(setting_set_text(row("log_limit"), &settings, "100MiB", &err), 0);
    assert_int_equal(settings.log_limit, 100 << 20);
    assert_int_equal(set_json(&settings, "log_limit", "\"0.5GB\"", &err), 0);
    assert_int_equal(settings.log_limit, 500000000);
    assert_int_equal(set_json(&settings, "log_limit", "65536", &err), 0);
    assert_int_equal(settings.log_limit, 65536);
    assert_int_equal(setting_set_text(row("grace_s"), &settings, "1193.0465h", &err), 0); /* over 2^32 ms */
    assert_int_equal(settings.grace, 4294967400 * NS_PER_MS);
    assert_int_equal(set_json(&settings, "time_limit_s", "1.5", &err), 0);
    assert_int_equal(settings.time_limit, 3 * NS_PER_S / 2);
    assert_int_equal(set_json(&settings, "time_limit_s", "5e-324", &err), 0);
    assert_int_equal(settings.time_limit, 1);
    assert_int_equal(
        settings_from_public(&settings, &(ty_run_config){.max_failures = -1, .hang_timeout_s = 0.25}, &err), 0);
    assert_int_equal(settings.failures.max_failures, -1);
    assert_int_equal(settings.hang_timeout, NS_PER_S / 4);
}

static void words_and_texts_are_the_same_in_every_form(void **state) {
    (void)state;
    refuses_json("backend", "\"mpi\"", "backend must be one of auto|gloo|nccl, not \"mpi\"");
    refuses_text("backend", "glo", "must be one of auto|gloo|nccl; did you mean gloo?");
    refuses_json("backend", "\"glo\"", "must be one of auto|gloo|nccl, not \"glo\"; did you mean gloo?");
    refuses_public(&(ty_run_config){.backend = "mpi"}, "backend must be one of auto|gloo|nccl, not \"mpi\"");
    refuses_public(&(ty_run_config){.on_checkpoint_error = ""},
                   "on_checkpoint_error must be one of fail|continue, not \"\"");
    refuses_public(
        &(ty_run_config){.preempt_signal = SIGKILL},
        "preempt_signal: \"9\" is no signal of a preemption: TERM, USR1, USR2, HUP, XCPU and the like");
    refuses_json("preempt_signal", "10", "preempt_signal must be the name of a signal, not 10");
    refuses_json("name", "\"a/b\"", "name: the run name \"a/b\" is not usable");
    refuses_text("name", "", "must not be empty");
    refuses_text("name", "-a", "the run name \"-a\" is not usable");
    refuses_json("storage_path", "\"\"", "storage_path must be a text that is not empty, not \"\"");
    refuses_json("storage_path", "\"s3://b/r\"",
                 "storage_path: \"s3://b/r\": must be a directory; other file systems are not provided "
                 "(mount it, or copy checkpoints there)");
    refuses_json("quiet", "0", "quiet must be true or false, not 0");
    refuses_json("chaos", "\"1:1ms\"", "chaos: faults cannot come more often than every 10ms");

    struct run_settings settings;
    ty_error err = {0};
    settings_init(&settings);
    assert_int_equal(setting_set_text(row("backend"), &settings, "gloo", &err), 0);
    assert_string_equal(settings.backend, "gloo");
    assert_int_equal(setting_set_text(row("backend"), &settings, "auto", &err), 0);
    assert_null(settings.backend);
    assert_int_equal(setting_set_text(row("progress"), &settings, "none", &err), 0);
    assert_int_equal(settings.progress, PROGRESS_NONE);
    assert_int_equal(set_json(&settings, "preempt_signal", "\"USR1\"", &err), 0);
    assert_int_equal(settings.preempt_signal, SIGUSR1);
    assert_int_equal(set_json(&settings, "preempt_signal", "null", &err), 0);
    assert_int_equal(settings.preempt_signal, SIGUSR1);
}

static void what_follows_is_the_same_in_every_form(void **state) {
    (void)state;
    struct run_settings settings;
    ty_error err = {0};
    settings_init(&settings);
    assert_int_equal(settings_finish(&settings, FACE_FIELDS, &err), 0);
    assert_int_equal(settings.failures.max_preemption_failures, 0);

    settings_init(&settings);
    settings.failures.max_failures = 2;
    assert_int_equal(settings_finish(&settings, FACE_FIELDS, &err), 0);
    assert_int_equal(settings.failures.max_preemption_failures, -1);

    settings_init(&settings);
    settings.failures = (struct failure_policy){.max_failures = 2, .max_preemption_failures = 1};
    assert_int_equal(settings_finish(&settings, FACE_FIELDS, &err), 0);
    assert_int_equal(settings.failures.max_preemption_failures, 1);

    settings_init(&settings);
    settings.checkpoints.score_order = SCORE_MIN;
    assert_int_equal(settings_finish(&settings, FACE_FIELDS, &err), TY_EUSAGE);
    assert_string_equal(
        err.message, "`checkpoint_score_order` \"min\" needs `checkpoint_score_attribute`, whose order it is");

    settings_init(&settings);
    settings.resume = "b";
    assert_int_equal(settings_finish(&settings, FACE_COMMAND, &err), 0);
    assert_string_equal(settings.name, "b");
    settings.name = "a";
    assert_int_equal(settings_finish(&settings, FACE_COMMAND, &err), TY_EUSAGE);
}

static const struct option_spec *option_named(const char *name) {
    for (size_t i = 0; i < run_group.n; i++)
        if (str_equal(run_group.options[i].name, name)) return &run_group.options[i];
    fail_msg("no option --%s", name);
    return NULL;
}

/* The row of settings_with_one_more.def is an option with help, a key of requests and a field of config
 * files. */
static void a_new_setting_takes_one_row(void **state) {
    (void)state;
    const struct option_spec *option = option_named("widgets");
    assert_int_equal(option->letter, 'w');
    assert_string_equal(option->help, "how many widgets a worker turns (default: 4)");

    struct run_options options = {0};
    settings_init(&options.settings);
    assert_int_equal(options.settings.widgets, 4);
    const struct option_group *const groups[] = {&run_group, NULL};
    struct arguments arguments;
    ty_error err = {0};
    char *argv[] = {"run", "--widgets", "7", NULL};
    if (options_parse(groups, true, 3, argv, &arguments, &err) < 0) fail_msg("%s", err.message);
    assert_int_equal(options_apply(&arguments, (void *[]){&options}, &err), 0);
    assert_int_equal(options.settings.widgets, 7);
    arguments_done(&arguments);

    refuses_json("widgets", "10", "widgets must be a whole number from 1 to 9, not 10");
    assert_int_equal(set_json(&options.settings, "widgets", "2", &err), 0);
    assert_int_equal(options.settings.widgets, 2);

    char path[] = "/tmp/trainyard-settings-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "run_config: {widgets: 9, failure_config: {max_failures: 3}}\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
    struct config_file file = {0};
    struct scaling scaling;
    scaling_init(&scaling);
    assert_int_equal(config_file_read(path, &file, &scaling, &options.settings, &err), 0);
    assert_int_equal(options.settings.widgets, 9);
    assert_int_equal(options.settings.failures.max_failures, 3);
    config_file_done(&file);
    scaling_done(&scaling);
    (void)unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_values_are_those_of_the_table),
        cmocka_unit_test(numbers_have_the_same_bounds_in_every_form),
        cmocka_unit_test(words_and_texts_are_the_same_in_every_form),
        cmocka_unit_test(what_follows_is_the_same_in_every_form),
        cmocka_unit_test(a_new_setting_takes_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
