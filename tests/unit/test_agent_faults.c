/* An agent in want (agent_want.h): a launch of two workers, all that a worker may ask of its agent, stacks that
 * are saved, and a machine that is taken away. Each worker ends well, or why it did not start, or not get what
 * it asked for, is told. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_requests.h"
#include "agent_want.h"
#include "agent_worker.h"
#include "base/cleanup.h"

enum { WORKERS = 2 };

static void launch(struct controller *c) {
    controller_launch(c, (struct launch_options){.n = WORKERS, .mode = "nothing", .payload = "payload"});
    while (!c->closed && !controller_all_gone(c, WORKERS))
        controller_hear(c);
}

static void expect_told(const struct controller *c, const struct want_lack *lack) {
    want_expect_told(c, lack, WORKERS);
}

static const struct want_trial launching = {.n = WORKERS, .run = launch, .expect = expect_told};

static void each_allocation_of_a_launch_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(want_count(&launching, WANT_MEMORY, for_good), 20, 1000);
}

static void each_call_of_a_launch_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(want_count(&launching, WANT_CALLS, for_good), 10, 1000);
}

/* What may be read in what it wrote last, or was logged. */
static bool names_want(const char *text, size_t size, enum want want) {
    static const char *const causes[] = {"out of memory", "Too many open files", "No buffer space available",
                                         "No space left on device"};
    for (size_t i = want == WANT_MEMORY ? 0 : 1; i < (want == WANT_MEMORY ? 1 : ARRAY_SIZE(causes)); i++)
        if (memmem(text, size, causes[i], strlen(causes[i])) != NULL) return true;
    return false;
}

static void expect_requests_answered(const struct controller *c, const struct want_lack *lack) {
    const struct heard *heard = &c->ranks[0];
    if (heard->failed) return;
    assert_int_equal(c->n_begun, c->n_ended);
    switch (WEXITSTATUS(heard->wait_status)) {
    case REQUESTS_WELL:
        requests_expect_all(c);
        break;
    case REQUESTS_REFUSED:
        if (!names_want(heard->tail.data, heard->tail.size, lack->want))
            fail_msg("refused with \"%.*s\"", (int)heard->tail.size, heard->tail.data);
        break;
    case REQUESTS_CUT:
        if (!names_want(c->log, strlen(c->log), lack->want)) fail_msg("cut off, and told \"%s\"", c->log);
        break;
    default:
        fail_msg("status %d: \"%.*s\"", heard->wait_status, (int)heard->tail.size, heard->tail.data);
    }
}

static const struct want_trial requesting = {.n = 1, .run = requests_serve, .expect = expect_requests_answered};

static void each_allocation_of_requests_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(want_count(&requesting, WANT_MEMORY, for_good), 60, 2000);
}

static void each_call_of_requests_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(want_count(&requesting, WANT_CALLS, for_good), 30, 2000);
}

/* In a worker: stays until the store answers. */
static int stay(void) {
    static const char lines[] = "ready\nget go\n";
    char answer[64];
    if (write(3, lines, sizeof lines - 1) < 0) return REQUESTS_CUT;
    return read(3, answer, sizeof answer) > 0 ? REQUESTS_WELL : REQUESTS_CUT;
}

static void ask_for_stacks(struct controller *c) {
    Wire__Stacks body = WIRE__STACKS__INIT;
    controller_send(c, &WIRE_MESSAGE(STACKS, stacks, &body));
}

/* Whatever becomes of them, that they are saved is told while the worker stays. */
static void save_stacks(struct controller *c) {
    c->n_store = 0;
    c->stacks = false;
    controller_launch(c, (struct launch_options){.n = 1, .mode = "stay"});
    while (!c->closed && !c->ranks[0].gone && c->n_store == 0)
        controller_hear(c);
    if (c->closed || c->ranks[0].gone) return;
    ask_for_stacks(c);
    while (!c->closed && !c->stacks)
        controller_hear(c);
    if (!c->closed) controller_reply_store(c, c->store_channel, WIRE__ANSWER__STATUS__OK, "go");
    while (!c->closed && !c->ranks[0].gone)
        controller_hear(c);
}

static void expect_cause_logged(const struct controller *c, const struct want_lack *lack) {
    const struct heard *heard = &c->ranks[0];
    if (!heard->failed && heard->wait_status != 0)
        assert_true(names_want(c->log, strlen(c->log), lack->want));
    else
        want_expect_told(c, lack, 1);
}

static const struct want_trial stacking = {.n = 1, .run = save_stacks, .expect = expect_cause_logged};

/* In a worker: asks why, when it is told to end. */
static int leave(void) {
    sigset_t stop;
    int number;
    char answer[64];
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
    if (write(3, "ready\n", 6) < 0 || sigwait(&stop, &number) != 0) return REQUESTS_CUT;
    if (write(3, "preemption\n", 11) < 0) return REQUESTS_CUT;
    ssize_t n = read(3, answer, sizeof answer);
    if (n <= 0) return REQUESTS_CUT;
    return memcmp(answer, "none", 4) == 0 ? REQUESTS_REFUSED : REQUESTS_WELL;
}

static void preempt(struct controller *c) {
    controller_launch(c, (struct launch_options){.n = 1, .mode = "leave"});
    while (!c->closed && !c->ranks[0].gone && !c->ranks[0].ready)
        controller_hear(c);
    Wire__Stop body = WIRE__STOP__INIT;
    body.preemption = "{\"nodes\": [\"n1\"]}";
    if (!c->closed && !c->ranks[0].gone) controller_send(c, &WIRE_MESSAGE(STOP, stop, &body));
    while (!c->closed && !c->ranks[0].gone)
        controller_hear(c);
}

static const struct want_trial preempting = {.n = 1, .run = preempt, .expect = expect_cause_logged};

static void each_failure_of_a_preemption(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        assert_in_range(want_count(&preempting, WANT_MEMORY, for_good), 30, 1000);
        assert_in_range(want_count(&preempting, WANT_CALLS, for_good), 10, 1000);
    }
}

static void each_failure_of_saved_stacks(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        assert_in_range(want_count(&stacking, WANT_MEMORY, for_good), 30, 1000);
        assert_in_range(want_count(&stacking, WANT_CALLS, for_good), 10, 1000);
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "agent") == 0) return 0; /* saves a stack */
    if (argc > 2 && strcmp(argv[2], "requests") == 0) return requests_make();
    if (argc > 2 && strcmp(argv[2], "stay") == 0) return stay();
    if (argc > 2 && strcmp(argv[2], "leave") == 0) return leave();
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return agent_worker_run(argv[2]);
    if (want_init() < 0) return 1;
    const struct CMUnitTest tests[] = {
        WANT_TEST(each_call_of_a_launch_fails),  WANT_TEST(each_allocation_of_a_launch_fails),
        WANT_TEST(each_call_of_requests_fails),  WANT_TEST(each_allocation_of_requests_fails),
        WANT_TEST(each_failure_of_saved_stacks), WANT_TEST(each_failure_of_a_preemption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
