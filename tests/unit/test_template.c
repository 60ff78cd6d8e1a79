/* Workers forked from a template, as their controller sees it, with a stand-in for the template
 * (stand_in_template.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_controller.h"
#include "agent_worker.h"
#include "base/cleanup.h"
#include "stand_in_template.h"

static char *template_words[5];

static char **template_of(const char *mode, const char *worker_mode) {
    char *words[] = {controller_worker, "template", (char *)mode, (char *)worker_mode, NULL};
    memcpy(template_words, words, sizeof words);
    return template_words;
}

static struct launch_options launch_of(unsigned n, const char *mode, const char *worker_mode,
                                       const char *method) {
    return (struct launch_options){
        .n = n, .mode = worker_mode, .start_method = method, .template_argv = template_of(mode, worker_mode)};
}

/* One that does not answer is given up soon; any other may be slow on a busy machine. */
static char **environment_of(const char *mode) {
    static char path[] = "PATH=/usr/bin:/bin", leaks[] = "ASAN_OPTIONS=detect_leaks=0";
    static char soon[] = "TRAINYARD_TEMPLATE_LIMIT=3s";
    static char *quick[] = {path, leaks, soon, NULL}, *patient[] = {path, leaks, NULL};
    return strstr(mode, "silent") != NULL ? quick : patient;
}

static struct controller *begin(void) {
    return controller_begin_with((struct begin_options){.log = true});
}

/* A test that failed has left its agent, which must not be the next one's. */
static int end_what_is_left(void **state) {
    char path[64];
    (void)state;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *file = fopen(path, "r");
    for (int pid; file != NULL && fscanf(file, "%d", &pid) == 1;)
        (void)kill(pid, SIGKILL);
    if (file != NULL) fclose(file);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    return 0;
}

/* Pids of the children of `parent` whose command line says "template". */
static size_t find_templates(pid_t parent, pid_t *pids, size_t room) {
    char path[64], text[4096];
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int pid; fscanf(file, "%d", &pid) == 1;) {
        (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        FILE *line = fopen(path, "r");
        size_t size = line != NULL ? fread(text, 1, sizeof text - 1, line) : 0;
        if (line != NULL) fclose(line);
        if (memmem(text, size, "template", 8) != NULL && n < room) pids[n++] = pid;
    }
    fclose(file);
    return n;
}

static void workers_are_forked(void **state) {
    (void)state;
    pid_t first[2], second[2];
    struct controller *c = begin();
    for (int attempt = 0; attempt < 2; attempt++) {
        controller_launch(c, launch_of(40, "good", "rank-status", "template"));
        HEAR_UNTIL(c, controller_all_gone(c, 40));
        for (int i = 0; i < 40; i++)
            assert_int_equal(WEXITSTATUS(c->ranks[i].wait_status), i);
        assert_int_equal(find_templates(c->agent, attempt == 0 ? first : second, 2), 2);
    }
    assert_memory_equal(first, second, sizeof first); /* both outlive the attempt */
    assert_int_equal(controller_end(c), 0);
}

static void forked_workers_are_set_up(void **state) {
    (void)state;
    struct rlimit before, small;
    getrlimit(RLIMIT_NOFILE, &before);
    small = (struct rlimit){.rlim_cur = 512, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &small);
    struct controller *c = begin();
    setrlimit(RLIMIT_NOFILE, &before);
    struct launch_options options = launch_of(3, "good", "set-up", "template");
    options.working_directory = "/usr";
    options.payload = "payload";
    options.worker_environment = "SHARED";
    controller_launch(c, options);
    HEAR_UNTIL(c, controller_all_gone(c, 3));
    for (int i = 0; i < 3; i++)
        assert_int_equal(c->ranks[i].wait_status, 0);
    assert_int_equal(controller_end(c), 0);
}

static void the_zygote_outlives_a_run(void **state) {
    (void)state;
    pid_t before[2], after[2];
    struct controller *c = begin();
    controller_launch(c, launch_of(2, "good", "nothing", "auto"));
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_int_equal(find_templates(c->agent, before, 2), 2);
    controller_rest(c);
    assert_true(c->clean && c->leftovers == 0);
    assert_int_equal(find_templates(c->agent, after, 2), 1);
    assert_int_equal(before[0], after[0]);
    controller_start(c, -1);
    controller_launch(c, launch_of(2, "good", "nothing", "auto"));
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_int_equal(find_templates(c->agent, after, 2), 2);
    assert_true(before[0] == after[0] && before[1] != after[1]);
    controller_rest(c);
    controller_start(c, -1);
    controller_launch(c, launch_of(1, "good", "rank-status", "auto")); /* other words: another zygote */
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_int_equal(find_templates(c->agent, after, 2), 2);
    assert_true(before[0] != after[0] && before[0] != after[1]);
    assert_int_equal(controller_end(c), 0);
}

static bool is_called(pid_t pid, const char *name) {
    char path[64], found[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%31s", found), 1);
    fclose(file);
    return strcmp(found, name) == 0;
}

/* Three runs, each of which finds that the zygote of the one before got the signal while it rested. */
static void expect_replaced(int number) {
    pid_t zygote[2], before = 0;
    struct controller *c = begin();
    for (int run = 0; run < 3; run++) {
        controller_launch(c, launch_of(2, "good", "nothing", "template"));
        HEAR_UNTIL(c, controller_all_gone(c, 2));
        for (int i = 0; i < 2; i++)
            assert_true(c->ranks[i].started && !c->ranks[i].failed && c->ranks[i].wait_status == 0);
        controller_rest(c);
        assert_int_equal(find_templates(c->agent, zygote, 2), 1);
        assert_int_not_equal(zygote[0], before);
        before = zygote[0];
        assert_int_equal(kill(before, number), 0);
        while (number == SIGUSR1 && !is_called(before, "deaf"))
            (void)usleep(1000);
        controller_start(c, -1);
    }
    assert_int_equal(controller_end(c), 0);
}

static void a_zygote_that_died_at_rest_is_replaced(void **state) {
    (void)state;
    expect_replaced(SIGKILL);
}

/* As one does that dies while the run begins: its end of the socket is closed before anybody can see that. */
static void a_zygote_that_went_deaf_at_rest_is_replaced(void **state) {
    (void)state;
    expect_replaced(SIGUSR1);
}

/* What came of a launch of two "rank-status" workers. */
struct outcome {
    const char *mode, *method, *text; /* of the log, or of the failed start */
    bool starts;
};

static void refusals_and_failures_are_told(void **state) {
    (void)state;
    static const struct outcome outcomes[] = {
        {"unsafe", "auto", "workers start as fresh processes, not forked from a template: a thread runs in it",
         true},
        {"error", "auto", "ModuleNotFoundError: No module named 'x'", true},
        {"run-unsafe", "auto", "a thread runs in it", true},
        {"run-error", "auto", "No module named 'x'", true},
        {"unsafe", "template",
         "workers cannot be forked from a template (start_method \"template\"): a thread runs", false},
        {"run-error", "template", "No module named 'x'", false},
        {"die", "auto", "the template was killed by signal 6 (SIGABRT): its last words", false},
        {"run-die", "template", "the template of the run was killed by signal 6 (SIGABRT): its last words",
         false},
        {"silent", "auto", "the template did not answer within 3 s (TRAINYARD_TEMPLATE_LIMIT)", false},
        {"run-silent", "auto", "the template of the run did not answer within 3 s", false},
        {"pid-unsafe", "auto", "a thread runs in it", true},
        {"pid-die", "auto", "the template was killed by signal 6 (SIGABRT): its last words", false},
        {"pid-silent", "auto", "the template did not answer within 3 s", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
        const struct outcome *outcome = &outcomes[i];
        struct controller *c = begin();
        struct launch_options options = launch_of(2, outcome->mode, "rank-status", outcome->method);
        options.environment = environment_of(outcome->mode);
        controller_launch(c, options);
        HEAR_UNTIL(c, controller_all_gone(c, 2));
        const char *told = outcome->starts ? c->log : c->ranks[1].text;
        if (strstr(told, outcome->text) == NULL)
            fail_msg("%s: \"%s\" is not in \"%s\"", outcome->mode, outcome->text, told);
        assert_true(c->ranks[0].started == outcome->starts && c->ranks[1].failed != outcome->starts);
        if (outcome->starts) assert_int_equal(WEXITSTATUS(c->ranks[1].wait_status), 1);
        assert_int_equal(controller_end(c), 0);
    }
}

static void a_template_that_fails_between_forks(void **state) {
    (void)state;
    static const char *const modes[][2] = {
        {"fork-die", "the template of the run was killed by signal 6 (SIGABRT): its last words"},
        {"fork-unsafe", "a thread runs in it"},
        {"fork-silent", "did not answer within 3 s"}};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        struct controller *c = begin();
        struct launch_options options = launch_of(2, modes[i][0], "nothing", "template");
        options.environment = environment_of(modes[i][0]);
        controller_launch(c, options);
        HEAR_UNTIL(c, controller_all_gone(c, 2));
        assert_true(c->ranks[0].started && c->ranks[0].wait_status == 0);
        assert_true(c->ranks[1].failed && !c->ranks[1].started);
        assert_non_null(strstr(c->ranks[1].text, modes[i][1]));
        assert_int_equal(controller_end(c), 0);
    }
}

static void a_killed_worker_is_reaped_and_forked_again(void **state) {
    (void)state;
    struct controller *c = begin();
    for (int attempt = 0; attempt < 3; attempt++) {
        controller_launch(c, launch_of(2, "good", "wait", "template"));
        HEAR_UNTIL(c, c->ranks[0].ready && c->ranks[1].ready);
        assert_int_equal(getpgid(c->ranks[0].pid), c->ranks[0].pid);
        kill(c->ranks[0].pid, SIGKILL);
        HEAR_UNTIL(c, c->ranks[0].gone);
        assert_int_equal(WTERMSIG(c->ranks[0].wait_status), SIGKILL);
        controller_stop(c, false);
        HEAR_UNTIL(c, c->ranks[1].gone);
    }
    assert_int_equal(controller_end(c), 0);
}

static void a_stopped_run_does_not_wait_for_its_template(void **state) {
    (void)state;
    static const char *const modes[] = {"silent", "run-silent", "fork-silent"};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        for (int kill = 0; kill < 2; kill++) {
            struct controller *c = begin();
            struct launch_options options = launch_of(2, modes[i], "wait", "auto");
            options.grace_ms = 100;
            controller_launch(c, options);
            if (i == 2) HEAR_UNTIL(c, c->ranks[0].ready);
            controller_stop(c, kill != 0);
            HEAR_UNTIL(c, controller_all_gone(c, 2));
            assert_true(c->ranks[1].failed && c->ranks[1].stopped);
            assert_string_equal(c->ranks[1].text, "stopped before it was started");
            assert_int_equal(controller_end(c), 0);
        }
}

static void descendants_are_swept_and_the_template_is_not(void **state) {
    (void)state;
    pid_t pids[2];
    struct controller *c = begin();
    struct launch_options options = launch_of(4, "good", "daemon", "template");
    options.grace_ms = 200;
    controller_launch(c, options);
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    controller_launch(c, launch_of(4, "good", "daemon", "template")); /* begins after the sweep */
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    controller_rest(c);
    assert_true(c->clean && c->leftovers >= 8);
    assert_int_equal(find_templates(c->agent, pids, 2), 1);
    assert_int_equal(controller_end(c), 0);
}

static void all_die_with_a_killed_agent(void **state) {
    (void)state;
    struct controller *c = begin();
    controller_launch(c, launch_of(4, "good", "wait", "template"));
    HEAR_UNTIL(c, c->ranks[0].ready && c->ranks[1].ready && c->ranks[2].ready && c->ranks[3].ready);
    kill(c->agent, SIGKILL);
    pid_t agent = c->agent;
    for (pid_t pid;
         (pid = waitpid(-1, NULL, 0)) > 0;) /* without a signal of ours: zygote, run's template, workers */
        assert_true(pid > 0);
    assert_int_equal(kill(agent, 0), -1);
    controller_vanish(c);
    c->agent = fork(); /* for controller_end to wait for */
    if (c->agent == 0) _exit(0);
    assert_int_equal(controller_end(c), 0);
}

static void a_lost_controller_ends_all(void **state) {
    (void)state;
    static const char *const modes[] = {"good", "silent", "run-silent"};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        struct controller *c = begin();
        controller_launch(c, launch_of(2, modes[i], "wait", "template"));
        if (i == 0) HEAR_UNTIL(c, c->ranks[1].ready);
        controller_vanish(c);
        assert_int_equal(controller_end(c), 1);
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return agent_worker_run(argv[2]);
    if (argc > 3 && strcmp(argv[1], "template") == 0) stand_in_template(argv[2], argv[3]);
    ssize_t n = readlink("/proc/self/exe", controller_worker, sizeof controller_worker - 1);
    if (n < 0) return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(workers_are_forked, end_what_is_left),
        cmocka_unit_test_teardown(forked_workers_are_set_up, end_what_is_left),
        cmocka_unit_test_teardown(the_zygote_outlives_a_run, end_what_is_left),
        cmocka_unit_test_teardown(a_zygote_that_died_at_rest_is_replaced, end_what_is_left),
        cmocka_unit_test_teardown(a_zygote_that_went_deaf_at_rest_is_replaced, end_what_is_left),
        cmocka_unit_test_teardown(refusals_and_failures_are_told, end_what_is_left),
        cmocka_unit_test_teardown(a_template_that_fails_between_forks, end_what_is_left),
        cmocka_unit_test_teardown(a_killed_worker_is_reaped_and_forked_again, end_what_is_left),
        cmocka_unit_test_teardown(a_stopped_run_does_not_wait_for_its_template, end_what_is_left),
        cmocka_unit_test_teardown(descendants_are_swept_and_the_template_is_not, end_what_is_left),
        cmocka_unit_test_teardown(all_die_with_a_killed_agent, end_what_is_left),
        cmocka_unit_test_teardown(a_lost_controller_ends_all, end_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
