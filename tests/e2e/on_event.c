/* What ty_fit tells while it runs (ty_trainer_config.on_event): each beginning and end in order, a word that
 * ends the run, a function that forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

static char place[] = "/tmp/trainyard-on-event-XXXXXX";

struct told {
    char kinds[512];         /* "run attempt ..." */
    const char *answer_with; /* 1 for events of this kind */
    bool fork;
    bool handle; /* sets a handler of its own */
    bool loud;
    int attempt; /* of the last event that has one */
    pid_t child; /* 0 in the child */
};

static int train(ty_worker *worker, const void *config, size_t size) {
    char how = size > 0 ? *(const char *)config : ' ';
    if (how == 'f') return ty_attempt(worker) == 1 ? 7 : 0;
    for (int i = 0; how == 'w' && i < 6000 && !ty_stop_requested(worker); i++)
        (void)usleep(10000);
    return 0;
}

static void handle_nothing(int signal_number) {
    (void)signal_number;
}

static int hear(void *context, const char *event_json) {
    struct told *told = context;
    json_t *event = json_loads(event_json, 0, NULL);
    assert_non_null(event);
    char kind[32], attempt[] = "attempt";
    (void)snprintf(kind, sizeof kind, "%s", json_string_value(json_object_get(event, "event")));
    if (json_is_integer(json_object_get(event, attempt)))
        told->attempt = (int)json_integer_value(json_object_get(event, attempt));
    json_decref(event);
    size_t used = strlen(told->kinds);
    (void)snprintf(told->kinds + used, sizeof told->kinds - used, "%s%s", used > 0 ? " " : "", kind);
    if (told->fork && strcmp(kind, attempt) == 0) told->child = fork();
    if (told->handle && strcmp(kind, attempt) == 0) (void)signal(SIGTERM, handle_nothing);
    return told->answer_with != NULL && strcmp(kind, told->answer_with) == 0;
}

static int fit(struct told *told, const char *how, ty_run_config run, ty_error *err) {
    const ty_scaling_config scaling = {.num_workers = 2};
    run.storage_path = place;
    run.quiet = !told->loud;
    const ty_trainer_config trainer = {.train = train,
                                       .config = how,
                                       .config_size = 1,
                                       .scaling = &scaling,
                                       .run = &run,
                                       .on_event = hear,
                                       .event_context = told};
    ty_result *result = NULL;
    int code = ty_fit(&trainer, &result, err);
    ty_result_free(result);
    return code;
}

static void beginnings_and_ends_in_order(void **state) {
    (void)state;
    struct told told = {0};
    ty_error err = {0};
    assert_int_equal(fit(&told, "f", (ty_run_config){.max_failures = 1}, &err), 0);
    assert_string_equal(told.kinds, "run attempt attempt_end attempt attempt_end run_end");
    assert_int_equal(told.attempt, 2);
}

static void the_end_is_told_of_a_run_that_fails(void **state) {
    (void)state;
    struct told told = {0};
    ty_error err = {0};
    assert_int_equal(fit(&told, "f", (ty_run_config){0}, &err), TY_EWORKER);
    assert_string_equal(told.kinds, "run attempt attempt_end run_end");
}

/* Also where it answers so more than once: only the first counts, so that workers have their grace. */
static void an_answer_ends_the_run(void **state) {
    (void)state;
    static const char *const kinds[] = {"attempt", "run"};
    for (size_t i = 0; i < 2; i++) {
        struct told told = {.answer_with = kinds[i]};
        ty_error err = {0};
        assert_int_equal(fit(&told, "w", (ty_run_config){0}, &err), TY_EINTERRUPTED);
        assert_non_null(strstr(told.kinds, "run_end"));
    }
    struct told told = {.answer_with = "run_end"}; /* too late */
    ty_error err = {0};
    assert_int_equal(fit(&told, " ", (ty_run_config){0}, &err), 0);
}

/* What ty_fit writes to standard error; NUL-terminated. */
static void fit_loudly(struct told *told, const char *how, ty_run_config run, int expected, char text[4096]) {
    char path[64];
    ty_error err = {0};
    (void)snprintf(path, sizeof path, "%s/stderr", place);
    int saved = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    told->loud = true;
    int code = fit(told, how, run, &err);
    (void)dup2(saved, STDERR_FILENO);
    ssize_t size = pread(file, text, 4095, 0);
    text[size < 0 ? 0 : size] = '\0';
    (void)close(saved);
    (void)close(file);
    assert_int_equal(code, expected);
}

static void what_goes_on_is_told(void **state) {
    (void)state;
    char text[4096], place_told[128];
    (void)snprintf(place_told, sizeof place_told, ", .storage_path = \"%s\", .resume = true\n", place);
    fit_loudly(&(struct told){.answer_with = "attempt"}, "w", (ty_run_config){0}, TY_EINTERRUPTED, text);
    assert_non_null(strstr(text, "trainyard: to go on: ty_fit again with ty_run_config .name = \"run-"));
    assert_non_null(strstr(text, place_told));
    fit_loudly(&(struct told){0}, "w", (ty_run_config){.name = "mine", .resume = true, .time_limit_s = 0.5},
               TY_ETIMEOUT, text);
    assert_non_null(strstr(text, "trainyard: to go on: start the program again\n"));
    fit_loudly(&(struct told){0}, " ", (ty_run_config){0}, 0, text);
    assert_non_null(strstr(text, " succeeded in "));
    assert_null(strstr(text, "to go on"));
    fit_loudly(&(struct told){0}, "f", (ty_run_config){0}, TY_EWORKER, text);
    assert_null(strstr(text, "to go on"));
}

/* The child may return from the function: it gets an error from ty_fit, and the run goes on with its owner. */
static void a_child_that_it_forks_has_no_run(void **state) {
    (void)state;
    struct told told = {.fork = true, .child = -1};
    ty_error err = {0};
    int status = 0;
    int code = fit(&told, " ", (ty_run_config){0}, &err);
    if (told.child == 0) _exit(code == TY_EUSAGE && strstr(err.message, "belongs to process") != NULL ? 42 : 1);
    assert_int_equal(code, 0);
    assert_int_equal(waitpid(told.child, &status, 0), told.child);
    assert_int_equal(WEXITSTATUS(status), 42);
}

static void a_handler_that_it_sets_stays(void **state) {
    (void)state;
    struct told told = {.handle = true};
    ty_error err = {0};
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    assert_int_equal(fit(&told, " ", (ty_run_config){0}, &err), 0);
    assert_true(signal(SIGTERM, SIG_DFL) == handle_nothing);
    assert_true(signal(SIGHUP, SIG_DFL) == SIG_DFL);
}

static int make_place(void **state) {
    (void)state;
    return mkdtemp(place) == NULL;
}

static int remove_place(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", place);
    return system(command);
}

int main(int argc, char **argv) {
    ty_init(&argc, &argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginnings_and_ends_in_order),
        cmocka_unit_test(the_end_is_told_of_a_run_that_fails),
        cmocka_unit_test(an_answer_ends_the_run),
        cmocka_unit_test(what_goes_on_is_told),
        cmocka_unit_test(a_child_that_it_forks_has_no_run),
        cmocka_unit_test(a_handler_that_it_sets_stays),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
