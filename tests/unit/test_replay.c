/* The fold of a run's events: what whoever reads a journal, and whoever drives the run, finds of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "run/replay.h"

static struct run_replay replay;

static int begin(void **state) {
    (void)state;
    replay = (struct run_replay){0};
    return 0;
}

static int end(void **state) {
    (void)state;
    bool failed = replay.failed;
    replay_done(&replay);
    return failed;
}

/* As a journal has it; times are whole seconds. */
static void happen(enum run_event_kind kind, int time, int attempt, int rank, const char *data) {
    struct event_memory memory = {0};
    struct run_event event = {
        .time = time * NS_PER_S, .kind = kind, .attempt = attempt, .rank = rank, .node = -1};
    assert_int_equal(run_event_decode(&event, data, &memory), 0);
    replay_note(&replay, &event);
    event_memory_done(&memory);
}

static void expect_attempt(size_t i, const char *wanted) {
    char text[200];
    assert_true(i < replay.n_attempts);
    const struct ty_attempt_info *one = &replay.attempts[i];
    (void)snprintf(text, sizeof text, "%d: %d workers, %.0f-%.0f %s, rank %d on %s, %s, from %s", one->attempt,
                   one->num_workers, one->began, one->ended, one->outcome != NULL ? one->outcome : "-",
                   one->rank, one->node != NULL ? one->node : "-", one->cause != NULL ? one->cause : "-",
                   one->checkpoint != NULL ? one->checkpoint : "-");
    assert_string_equal(text, wanted);
}

static void a_run_that_dies_and_is_resumed(void **state) {
    (void)state;
    happen(EVENT_RUN, 1, 0, -1,
           "{\"id\": \"a\", \"host\": \"h\", \"argv\": [\"train\", \"x y\"], \"num_workers\": 4}");
    happen(EVENT_PLAN, 2, 0, -1, "{\"seconds\": 0.5, \"nodes\": [\"n1\", \"n2\"]}");
    happen(EVENT_ATTEMPT, 3, 1, -1, "{\"workers\": 4, \"nodes\": 2}");
    happen(EVENT_LAUNCHED, 4, 1, -1, NULL);
    happen(EVENT_ATTEMPT_END, 5, 1, -1,
           "{\"outcome\": \"failed\", \"rank\": 3, \"node\": 1, \"cause\": \"why\"}");
    happen(EVENT_ATTEMPT, 6, 2, -1, "{\"workers\": 4, \"checkpoint\": \"/c1\"}");
    happen(EVENT_LAUNCHED, 8, 2, -1, NULL);
    happen(EVENT_RUN, 60, 0, -1, "{\"id\": \"b\", \"host\": \"other\"}");
    happen(EVENT_PLAN, 61, 0, -1, "{\"nodes\": [\"n3\"]}");
    happen(EVENT_ATTEMPT, 62, 3, -1, "{\"workers\": 2}");
    happen(EVENT_ATTEMPT_END, 65, 3, -1,
           "{\"outcome\": \"resized\", \"node\": 9, \"resize\": \"2 -> 4\", \"cause\": \"x\"}");
    happen(EVENT_ATTEMPT, 66, 4, -1, "{\"workers\": 99999999999}");
    assert_int_equal(replay.n_attempts, 4);
    expect_attempt(0, "1: 4 workers, 3-5 failed, rank 3 on n2, why, from -");
    expect_attempt(1, "2: 4 workers, 6-8 died, rank -1 on -, its controller died, from /c1");
    expect_attempt(2, "3: 2 workers, 62-65 resized, rank -1 on -, 2 -> 4, from -");
    expect_attempt(3, "4: 0 workers, 66-0 -, rank -1 on -, -, from -");
    assert_string_equal(replay.id, "a");
    assert_string_equal(replay.run.event.of.run.host, "other");
    assert_int_equal(replay.attempt, 4);
    assert_int_equal(replay.n_workers, 4);
    assert_true(replay.first_start.planned && replay.first_start.plan_seconds == 0.5);
    assert_true(replay.first_start.began == 3 * NS_PER_S && replay.last_start.began == 66 * NS_PER_S);
    assert_true(replay.first_start.launched == 4 * NS_PER_S && replay.last_start.launched == 0);
    assert_false(replay.last_start.planned);
    replay_close(&replay);
    expect_attempt(3, "4: 0 workers, 66-66 died, rank -1 on -, its controller died, from -");
}

static void an_attempt_that_goes_on_behind_another_controller(void **state) {
    (void)state;
    happen(EVENT_RUN, 1, 0, -1, "{\"id\": \"a\"}");
    happen(EVENT_ATTEMPT, 3, 1, -1, "{\"workers\": 1}");
    happen(EVENT_STARTED, 4, 1, 0, "{\"pid\": 7}");
    happen(EVENT_RUN, 60, 0, -1, "{\"id\": \"a\"}");
    expect_attempt(0, "1: 1 workers, 3-4 died, rank -1 on -, its controller died, from -");
    happen(EVENT_ADOPTED, 61, 2, -1, NULL); /* none of that number is known */
    expect_attempt(0, "1: 1 workers, 3-4 died, rank -1 on -, its controller died, from -");
    happen(EVENT_ADOPTED, 61, 1, -1, NULL);
    expect_attempt(0, "1: 1 workers, 3-0 -, rank -1 on -, -, from -");
    assert_int_equal(replay.workers[0].state, WORKER_STARTED);
    happen(EVENT_ATTEMPT_END, 65, 1, -1, "{\"outcome\": \"succeeded\"}");
    expect_attempt(0, "1: 1 workers, 3-65 succeeded, rank -1 on -, -, from -");
    assert_int_equal(replay.n_attempts, 1);
}

static void workers_stand_as_they_were_told(void **state) {
    (void)state;
    happen(EVENT_STARTED, 1, 1, 0, "{\"pid\": 7}"); /* of no attempt that is known */
    happen(EVENT_ATTEMPT, 1, 1, -1, "{\"workers\": 5}");
    for (int rank = 0; rank < 4; rank++)
        happen(EVENT_STARTED, 2 + rank, 1, rank, "{\"pid\": 7}");
    happen(EVENT_READY, 9, 1, 1, NULL);
    happen(EVENT_RENDEZVOUS, 10, 1, 1, NULL);
    happen(EVENT_EXITED, 11, 1, 1, "{\"code\": 0}");
    happen(EVENT_GONE, 11, 1, 1, NULL);
    happen(EVENT_EXITED, 11, 1, 2, "{\"signal\": 15, \"stopped\": true}");
    happen(EVENT_EXITED, 11, 1, 3, "{\"signal\": 9}");
    happen(EVENT_START_FAILED, 11, 1, 4, "{\"cause\": \"no memory\"}");
    happen(EVENT_EXITED, 11, 1, 5, "{\"code\": 1}");
    happen(EVENT_EXITED, 11, 1, INT32_MIN, "{\"code\": 1}");
    static const struct {
        enum worker_state state;
        bool stopped, failed;
    } wanted[] = {{WORKER_STARTED, false, false},
                  {WORKER_GONE, false, false},
                  {WORKER_EXITED, true, false},
                  {WORKER_EXITED, false, true},
                  {WORKER_GONE, false, true}};
    for (int rank = 0; rank < 5; rank++) {
        assert_int_equal(replay.workers[rank].state, wanted[rank].state);
        assert_int_equal(replay.workers[rank].stopped, wanted[rank].stopped);
        assert_int_equal(replay.workers[rank].failed, wanted[rank].failed);
    }
    const struct worker_start *start = &replay.workers[1].start;
    assert_true(start->started == 3 * NS_PER_S && start->ready == 9 * NS_PER_S &&
                start->rendezvous == 10 * NS_PER_S);
    happen(EVENT_ATTEMPT, 20, 2, -1, "{\"workers\": 2}");
    happen(EVENT_STARTED, 21, 2, 1, "{\"pid\": 8}");
    assert_int_equal(replay.workers[0].state, WORKER_PLANNED);
    assert_int_equal(replay.workers[1].state, WORKER_STARTED);
    assert_int_equal(replay.workers[0].pid, 0); /* the one that it had is nobody's any more */
    assert_true(replay.workers[1].pid == 8 && start->started == 21 * NS_PER_S && start->ready == 0);
}

static void a_node_takes_its_workers_along(void **state) {
    (void)state;
    happen(EVENT_PLAN, 1, 0, -1, "{\"nodes\": [\"n1\", \"n2\"], \"ranks\": [0, 1, 1, 1, 1, 0]}");
    happen(EVENT_ATTEMPT, 2, 1, -1, "{\"workers\": 6}");
    happen(EVENT_LAUNCHED, 3, 1, -1, NULL);
    for (int rank = 0; rank < 4; rank++)
        happen(EVENT_STARTED, 4, 1, rank, "{\"pid\": 7}");
    happen(EVENT_READY, 5, 1, 2, NULL);
    happen(EVENT_EXITED, 5, 1, 3, "{\"code\": 0}");
    struct run_event lost = {.time = 6 * NS_PER_S, .kind = EVENT_NODE_LOST, .attempt = 1, .rank = -1};
    for (lost.node = -1; lost.node < 3; lost.node += 2) /* none, and the second */
        replay_note(&replay, &lost);
    happen(EVENT_STOP, 7, 1, -1, NULL);
    lost.node = 0;
    replay_note(&replay, &lost);
    static const struct {
        bool stopped, failed;
    } wanted[] = {{true, false}, {false, true}, {false, true}, {false, false}, {false, true}, {true, false}};
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(replay.workers[rank].state, WORKER_GONE);
        assert_int_equal(replay.workers[rank].stopped, wanted[rank].stopped);
        assert_int_equal(replay.workers[rank].failed, wanted[rank].failed);
    }
    assert_true(replay.lost_node);
}

static void nothing_is_left_on_a_node_that_said_so(void **state) {
    (void)state;
    happen(EVENT_PLAN, 1, 0, -1, "{\"nodes\": [\"n1\"], \"ranks\": [0]}");
    happen(EVENT_ATTEMPT, 2, 1, -1, "{\"workers\": 1}");
    happen(EVENT_STARTED, 3, 1, 0, "{\"pid\": 7}");
    struct run_event lost = {.time = 4 * NS_PER_S, .kind = EVENT_NODE_LOST, .attempt = 1, .rank = -1};
    lost.of.node_lost.swept = true;
    replay_note(&replay, &lost);
    assert_int_equal(replay.workers[0].state, WORKER_GONE);
    assert_false(replay.lost_node);
    lost.of.node_lost.swept = false;
    replay_note(&replay, &lost);
    assert_true(replay.lost_node);
}

static void a_wait_lasts_until_an_attempt_or_another_controller(void **state) {
    (void)state;
    happen(EVENT_WAIT, 1, 0, -1, "{\"reason\": \"busy\", \"holders\": [{\"run\": \"r\", \"pid\": 7}]}");
    happen(EVENT_WAIT, 3, 0, -1, "{\"reason\": \"still busy\"}");
    assert_string_equal(replay.wait.event.of.wait.reason, "still busy");
    assert_true(replay.waits_since == 1 * NS_PER_S);
    happen(EVENT_ATTEMPT, 4, 1, -1, "{\"workers\": 1}");
    assert_int_equal(replay.wait.event.time, 0);
    happen(EVENT_WAIT, 5, 1, -1, "{\"reason\": \"no room\"}");
    assert_true(replay.waits_since == 5 * NS_PER_S);
    happen(EVENT_RUN_END, 6, 1, -1, "{\"outcome\": \"interrupted\", \"status\": 130}");
    assert_int_equal(replay.end.event.of.run_end.status, 130);
    assert_true(replay.end.event.of.run_end.rank == EVENT_UNKNOWN);
    happen(EVENT_RUN, 7, 0, -1, "{}");
    assert_int_equal(replay.wait.event.time, 0);
    assert_int_equal(replay.end.event.time, 0);
    assert_null(replay.id);
}

/* Each event's values alone may be missing, or all of them be wrong. */
static void nothing_is_taken_for_granted(void **state) {
    (void)state;
    static const char *const data[] = {NULL, "", "{}", "[]",
                                       "{\"workers\": -1, \"node\": -9223372036854775808, \"rank\": "
                                       "9223372036854775807, \"seconds\": 1e300, \"nodes\": 7}"};
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        for (int kind = 0; kind < RUN_EVENT_KINDS; kind++)
            for (int rank = -1; rank < 2; rank++)
                happen((enum run_event_kind)kind, 1, 1, rank, data[i]);
    assert_int_equal(replay.n_workers, 0);
    assert_true(replay.n_attempts > 0);
}

static void a_cause_names_its_node_or_not(void **state) {
    (void)state;
    static const struct {
        const char *cause, *node;
        bool names;
    } cases[] = {
        {"node n2 was lost: no route to host", "n2", true},
        {"node n2, whose workers had gone on, is gone", "n2", true},
        {"node n2: no such program", "n2", true},
        {"node n2", "n2", true},
        {"the agent of node n2 was killed by signal 9 (SIGKILL)", "n2", true},
        {"the agent of node n2.rack.example ended with code 1 before its time", "n2", false},
        {"node n21 was lost: no route to host", "n2", false},
        {"rank 3 exited with code 1, node n2 is full", "n2", false},
        {"GPU 1 of node n2 (rank 17): Xid 79; then rank 4 exited with code 1", "n2", false},
        {"the agent was told to end", "n2", false},
        {"", "n2", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(replay_cause_names_node(cases[i].cause, cases[i].node), cases[i].names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_that_dies_and_is_resumed, begin, end),
        cmocka_unit_test_setup_teardown(an_attempt_that_goes_on_behind_another_controller, begin, end),
        cmocka_unit_test_setup_teardown(workers_stand_as_they_were_told, begin, end),
        cmocka_unit_test_setup_teardown(a_node_takes_its_workers_along, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_left_on_a_node_that_said_so, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_lasts_until_an_attempt_or_another_controller, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_taken_for_granted, begin, end),
        cmocka_unit_test(a_cause_names_its_node_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
