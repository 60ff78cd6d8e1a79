/* An agent in want (agent_want.h), whose workers are forked from a stand-in for the template: its start, the
 * order to fork, a second attempt, its end, and a second run on the template that was kept. Each worker ends
 * well, be it forked or executed, or why it did not start is told. */
#include <string.h>

#include "agent_want.h"
#include "agent_worker.h"
#include "stand_in_template.h"

enum { WORKERS = 2, TEMPLATES = 2 };

static const char *method;

static void launch(struct controller *c) {
    static char words[][16] = {"template", "good", "nothing"};
    char *template_argv[] = {controller_worker, words[0], words[1], words[2], NULL};
    if (c->closed) return;
    controller_launch(c, (struct launch_options){.n = WORKERS,
                                                 .mode = "nothing",
                                                 .start_method = method,
                                                 .template_argv = template_argv,
                                                 .payload = "payload"});
    while (!c->closed && !controller_all_gone(c, WORKERS))
        controller_hear(c);
}

static bool all_started(const struct controller *c) {
    for (unsigned i = 0; i < WORKERS; i++)
        if (c->ranks[i].failed) return false;
    return true;
}

static void run_attempts(struct controller *c) {
    launch(c);
    if (all_started(c)) launch(c);
}

static void run_twice(struct controller *c) {
    launch(c);
    if (c->closed) return;
    controller_rest(c);
    if (c->closed) return;
    controller_start(c, -1);
    if (all_started(c)) launch(c);
}

static void expect_told(const struct controller *c, const struct want_lack *lack) {
    want_expect_told(c, lack, WORKERS);
}

/* Demanded, so that the reason why there is no template is why a worker did not start. */
static const struct want_trial two_attempts = {
    .n = WORKERS, .run = run_attempts, .expect = expect_told, .kept = TEMPLATES};
/* Chosen: workers are executed where there is no template. */
static const struct want_trial two_runs = {
    .n = WORKERS, .run = run_twice, .expect = expect_told, .kept = TEMPLATES};

static void try_all(const struct want_trial *trial, const char *start_method, enum want want) {
    method = start_method;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(want_count(trial, want, for_good), 20, 1000);
}

static void each_allocation_of_attempts_fails(void **state) {
    (void)state;
    try_all(&two_attempts, "template", WANT_MEMORY);
}

static void each_call_of_attempts_fails(void **state) {
    (void)state;
    try_all(&two_attempts, "template", WANT_CALLS);
}

static void each_allocation_of_two_runs_fails(void **state) {
    (void)state;
    try_all(&two_runs, "auto", WANT_MEMORY);
}

static void each_call_of_two_runs_fails(void **state) {
    (void)state;
    try_all(&two_runs, "auto", WANT_CALLS);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return agent_worker_run(argv[2]);
    if (argc > 3 && strcmp(argv[1], "template") == 0) stand_in_template(argv[2], argv[3]);
    if (want_init() < 0) return 1;
    const struct CMUnitTest tests[] = {
        WANT_TEST(each_allocation_of_attempts_fails),
        WANT_TEST(each_call_of_attempts_fails),
        WANT_TEST(each_allocation_of_two_runs_fails),
        WANT_TEST(each_call_of_two_runs_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
