/* The run's state machine, driven by hand: starts, ends, failures, restarts and limits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/idset.h"
#include "run/internal.h"
#include "run/run.h"
#include "run_world.h"

static void open_world_with(struct world *world, uint32_t n_workers, uint32_t n_nodes,
                            const struct failure_policy *failures) {
    world_init(world);
    assert_int_equal(world_open(world, n_workers, n_nodes, failures), 0);
}

static void open_world(struct world *world, uint32_t n_workers, uint32_t n_nodes, int max_failures) {
    open_world_with(world, n_workers, n_nodes, &(struct failure_policy){.max_failures = max_failures});
}

/* One node, all workers started. */
static void start_all(struct world *world, uint32_t n_workers) {
    run_start(world->run);
    run_node_up(world->run, 0, NULL);
    for (uint32_t i = 0; i < n_workers; i++)
        run_worker_started(world->run, i, 100 + (int)i, 1);
    forget_log(world);
}

static void fail_start(struct world *world, uint32_t rank, const char *why, bool stopped) {
    run_worker_start_failed(world->run, rank,
                            &(struct run_start_failure){.why = why, .stopped = stopped, .time = 1});
}

static void success_is_told_after_every_bye(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 4, 2, 0);
    run_start(world.run);
    expect(&world, " start0 start1");
    run_node_up(world.run, 1, NULL);
    expect(&world, "");
    run_node_up(world.run, 0, NULL);
    expect(&world, " launch0.1 launch1.1");
    assert_true(world.timers[TIMER_START] < 0);
    for (uint32_t i = 0; i < 4; i++)
        run_worker_started(world.run, i, 1, 1);
    for (uint32_t i = 0; i < 4; i++)
        end_worker(&world, i, 0, false);
    expect(&world, " finish0 finish1");
    run_node_bye(world.run, 0, true, 0);
    assert_false(world.ended);
    run_node_bye(world.run, 1, true, 2);
    assert_true(world.ended);
    uint32_t leftovers;
    assert_true(run_clean(world.run, &leftovers));
    assert_int_equal(leftovers, 2);
    assert_int_equal(run_outcome(world.run), OUTCOME_SUCCEEDED);
    assert_int_equal(run_exit_status(world.run), 0);
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        assert_true(world.timers[timer] < 0);
    world_done(&world);
}

static void the_first_failure_decides(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 1, 0);
    start_all(&world, 3);
    run_worker_exited(world.run, 1,
                      &(struct run_exit){.wait_status = 3 << 8, .tail = "boom\n", .tail_size = 5, .time = 7});
    expect(&world, " stop0");
    assert_int_equal(world.timers[TIMER_STOP], 10 * NS_PER_S);
    end_worker(&world, 0, 6, false); /* a signal that may be an echo */
    end_worker(&world, 2, 9, true);
    expect(&world, "");
    run_worker_gone(world.run, 1, 1);
    expect(&world, " finish0");
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 3);
    assert_int_equal(run_failure(world.run)->rank, 1);
    assert_string_equal(run_failure(world.run)->text, "rank 1 exited with code 3");
    assert_memory_equal(run_failure(world.run)->tail, "boom\n", 5);
    assert_true(run_worker(world.run, 2)->stopped);
    assert_false(run_worker(world.run, 2)->failed);
    world_done(&world);
}

static void of_failures_at_once_a_crash_is_the_cause(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 0);
    start_all(&world, 2);
    end_worker(&world, 0, 1 << 8, false);
    end_worker(&world, 1, 11, false);
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 128 + 11);
    assert_string_equal(run_failure(world.run)->text, "rank 1 was killed by signal 11 (SIGSEGV)");
    world_done(&world);
}

static void break_device(struct world *world, enum run_fault_weight weight, int rank) {
    CLEANUP(idset_done) struct idset ranks = {0};
    const struct event_hardware told = {.fault = "xid", .device = 1, .code = 79, .cause = "GPU 1 broke"};
    assert_int_equal(idset_add(&ranks, rank), 0);
    run_device_fault(world->run, &(struct run_fault){0, weight, &told, &ranks, 1});
}

/* The end of rank 0, `passed` after a fault of the device of a rank (below 0: before it). */
static void expect_cause(enum run_fault_weight weight, int of_rank, nanoseconds passed, const char *cause) {
    struct world world;
    open_world(&world, 2, 1, 0);
    start_all(&world, 2);
    if (passed >= 0) break_device(&world, weight, of_rank);
    world.now += passed >= 0 ? passed : 0;
    end_worker(&world, 0, 3 << 8, false);
    world.now -= passed < 0 ? passed : 0;
    if (passed < 0) break_device(&world, weight, of_rank);
    end_worker(&world, 1, 15, true);
    break_device(&world, RUN_FAULT_OF_HARDWARE, 0); /* behind the end of the attempt */
    run_node_bye(world.run, 0, true, 0);
    assert_string_equal(run_failure(world.run)->text, cause);
    assert_int_equal(run_exit_status(world.run), 3);
    world_done(&world);
}

static void a_device_that_broke_is_the_first_cause(void **state) {
    (void)state;
    const char *explained = "GPU 1 broke; then rank 0 exited with code 3", *bare = "rank 0 exited with code 3";
    expect_cause(RUN_FAULT_OF_HARDWARE, 0, NS_PER_S, explained);
    expect_cause(RUN_FAULT_OF_HARDWARE, 1, 600 * NS_PER_S, explained); /* who waited for it */
    expect_cause(RUN_FAULT_OF_HARDWARE, 1, 2000 * NS_PER_S, bare);
    expect_cause(RUN_FAULT_OF_HARDWARE, 1, -2 * NS_PER_S, explained);
    expect_cause(RUN_FAULT_OF_PROGRAM, 0, 50 * NS_PER_S, explained);
    expect_cause(RUN_FAULT_OF_PROGRAM, 0, 70 * NS_PER_S, bare);
    expect_cause(RUN_FAULT_OF_PROGRAM, 0, -NS_PER_S, explained);
    expect_cause(RUN_FAULT_OF_PROGRAM, 0, -2 * NS_PER_S, bare); /* of its being ended */
    expect_cause(RUN_FAULT_OF_PROGRAM, 1, NS_PER_S, bare);
    expect_cause(RUN_FAULT_NOTED, 0, NS_PER_S, bare);
}

static void a_failed_attempt_is_followed_by_another(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 1);
    start_all(&world, 2);
    end_worker(&world, 0, 1 << 8, false);
    expect(&world, " stop0");
    end_worker(&world, 1, 15, true);
    expect(&world, " launch0.2");
    assert_int_equal(run_attempt(world.run), 2);
    run_worker_started(world.run, 0, 1, 1);
    run_worker_started(world.run, 1, 1, 1);
    end_worker(&world, 1, 2 << 8, false);
    end_worker(&world, 0, 15, true);
    expect(&world, " stop0 finish0");
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 2);
    world_done(&world);
}

/* All are ended before the next attempt, which asks them anew, begins. */
static void agents_that_are_late_together_fail_one_attempt(void **state) {
    (void)state;
    struct world world;
    open_world_with(&world, 3, 3, &(struct failure_policy){.controller_failure_limit = 1});
    run_start(world.run);
    run_node_up(world.run, 1, NULL);
    expect(&world, " start0 start1 start2");
    pass(&world, TIMER_START);
    expect(&world, " abandon0 abandon2 start0 start2");
    assert_int_equal(run_attempt(world.run), 2);
    run_node_up(world.run, 0, NULL);
    run_node_up(world.run, 2, NULL);
    expect(&world, " launch0.2 launch1.2 launch2.2");
    world_done(&world);
}

static void what_cannot_be_started_is_not_tried_again(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, -1);
    run_start(world.run);
    run_node_up(world.run, 0, NULL);
    fail_start(&world, 0, "no such file", false);
    fail_start(&world, 1, "stopped before it was started", true);
    run_node_bye(world.run, 0, true, 0);
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 4);
    assert_string_equal(run_failure(world.run)->text, "rank 0 could not be started: no such file");
    assert_true(run_worker(world.run, 0)->failed);
    assert_true(run_worker(world.run, 1)->stopped);
    assert_false(run_worker(world.run, 1)->failed);
    world_done(&world);
}

static void an_agent_that_cannot_be_started_ends_the_run(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 2, 0);
    world.unstartable = 1u << 1;
    run_start(world.run);
    expect(&world, " start0 start1 abandon0");
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 4);
    world_done(&world);
}

static void a_launch_that_cannot_be_sent_ends_the_run(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 3, 2);
    world.fail_launch = 1;
    run_start(world.run);
    for (uint32_t node = 0; node < 3; node++)
        run_node_up(world.run, node, NULL);
    expect(&world, " start0 start1 start2 launch0.1 launch1.1 stop0");
    run_worker_started(world.run, 0, 1, 1);
    end_worker(&world, 0, 15, true);
    expect(&world, " finish0 finish1 finish2");
    for (uint32_t node = 0; node < 3; node++)
        run_node_bye(world.run, node, true, 0);
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 4);
    assert_string_equal(run_failure(world.run)->text, "the launch could not be sent: out of memory");
    world_done(&world);
}

static void a_lost_node_takes_its_workers_along(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 4, 2, 0);
    run_start(world.run);
    run_node_up(world.run, 0, NULL);
    run_node_up(world.run, 1, NULL);
    for (uint32_t i = 0; i < 4; i++)
        run_worker_started(world.run, i, 1, 1);
    expect(&world, " start0 start1 launch0.1 launch1.1");
    run_node_lost(world.run, 1, "killed");
    expect(&world, " stop0");
    end_worker(&world, 0, 15, true);
    end_worker(&world, 1, 15, true);
    expect(&world, " finish0");
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 5);
    world_done(&world);
}

static void a_lost_node_is_started_again_for_the_next_attempt(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 1);
    start_all(&world, 2);
    run_node_lost(world.run, 0, "killed");
    expect(&world, " start0");
    run_node_up(world.run, 0, NULL);
    expect(&world, " launch0.2");
    world_done(&world);
}

static void interrupts_stop_then_kill(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, 3);
    start_all(&world, 1);
    run_interrupt(world.run, 2);
    expect(&world, " stop0");
    run_interrupt(world.run, 2);
    expect(&world, " kill0");
    end_worker(&world, 0, 9, true);
    expect(&world, " finish0");
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 130);
    assert_int_equal(run_outcome(world.run), OUTCOME_INTERRUPTED);
    world_done(&world);
}

static void a_second_interrupt_hurries_what_workers_left_behind(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, 0);
    start_all(&world, 1);
    end_worker(&world, 0, 0, false);
    expect(&world, " finish0");
    assert_int_equal(world.timers[TIMER_FINISH], 15 * NS_PER_S); /* the grace is theirs too */
    run_interrupt(world.run, 2);
    expect(&world, "");
    run_interrupt(world.run, 2);
    expect(&world, " kill0");
    run_node_bye(world.run, 0, true, 1);
    assert_int_equal(run_exit_status(world.run), 0);
    world_done(&world);
}

static void what_the_agent_knows_stands_behind_the_signal(void **state) {
    (void)state;
    static const struct {
        int wait_status;
        const char *cause, *text;
    } cases[] = {
        {9, "out of memory: limit 64 MiB, peak 63 MiB",
         "rank 0 was killed by signal 9 (SIGKILL), out of memory: limit 64 MiB, peak 63 MiB"},
        {11 | 0x80, "core dumped", "rank 0 was killed by signal 11 (SIGSEGV), core dumped"},
        {6 | 0x80, NULL, "rank 0 was killed by signal 6 (SIGABRT), core dumped"},
        {40, "", "rank 0 was killed by signal 40"}, /* a real-time signal has no name */
        {3 << 8, "why", "rank 0 exited with code 3, why"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world world;
        open_world(&world, 1, 1, 0);
        start_all(&world, 1);
        run_worker_exited(
            world.run, 0,
            &(struct run_exit){.wait_status = cases[i].wait_status, .cause = cases[i].cause, .time = 1});
        assert_string_equal(run_failure(world.run)->text, cases[i].text);
        world_done(&world);
    }
}

static void an_interrupt_before_the_launch_starts_nothing(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 2, 0);
    run_start(world.run);
    run_node_up(world.run, 0, NULL);
    run_interrupt(world.run, 15);
    expect(&world, " start0 start1 finish0 abandon1");
    run_node_bye(world.run, 0, true, 0);
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 143);
    world_done(&world);
}

static void limits_end_what_does_not_answer(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, 0);
    run_start(world.run);
    run_timer_fired(world.run, TIMER_START);
    expect(&world, " start0 abandon0");
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 4);
    world_done(&world);

    open_world(&world, 1, 1, 2);
    start_all(&world, 1);
    run_timer_fired(world.run, TIMER_LIMIT);
    expect(&world, " stop0");
    run_timer_fired(world.run, TIMER_STOP);
    expect(&world, " abandon0");
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 124);
    assert_string_equal(run_failure(world.run)->text, "the time limit of 1 min passed");
    world_done(&world);

    open_world(&world, 1, 1, 0);
    start_all(&world, 1);
    end_worker(&world, 0, 0, false);
    run_timer_fired(world.run, TIMER_FINISH);
    expect(&world, " finish0 abandon0");
    assert_true(world.ended);
    uint32_t leftovers;
    assert_false(run_clean(world.run, &leftovers));
    assert_int_equal(run_exit_status(world.run), 0);
    world_done(&world);
}

static void an_agent_that_is_told_to_end_is_a_lost_node(void **state) {
    (void)state;
    struct world world;
    open_world_with(&world, 2, 2, &(struct failure_policy){.max_preemption_failures = 1});
    run_start(world.run);
    run_node_up(world.run, 0, NULL);
    run_node_up(world.run, 1, NULL);
    for (uint32_t rank = 0; rank < 2; rank++)
        run_worker_started(world.run, rank, 100, 1);
    expect(&world, " start0 start1 launch0.1 launch1.1");
    end_worker(&world, 1, 0, true); /* nobody here told it to stop */
    expect(&world, " stop0 stop1");
    assert_string_equal(run_failure(world.run)->text, "the agent of rank 1 was told to end");
    assert_int_equal(run_failure(world.run)->node, 1);
    end_worker(&world, 0, 15, true);
    expect(&world, ""); /* the next attempt needs a new agent, when the old one is gone */
    run_node_bye(world.run, 1, true, 0);
    expect(&world, "");
    run_node_lost(world.run, 1, "ended");
    expect(&world, " start1");
    run_node_up(world.run, 1, NULL);
    expect(&world, " launch0.2 launch1.2");
    for (uint32_t rank = 0; rank < 2; rank++)
        run_worker_started(world.run, rank, 100, 1);
    end_worker(&world, 0, 0, true);
    expect(&world, " stop0 stop1");
    end_worker(&world, 1, 0, true);
    run_timer_fired(world.run, TIMER_STOP); /* it does not leave */
    expect(&world, " abandon0 finish1");
    run_node_bye(world.run, 1, true, 0);
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 5);
    world_done(&world);
}

/* Killed for the end of its agent, which could not say so, it is stuck in the kernel: that is no success. */
static void a_worker_whose_end_nobody_saw_is_of_a_lost_node(void **state) {
    (void)state;
    struct world world;
    open_world_with(&world, 2, 2, &(struct failure_policy){0});
    run_start(world.run);
    run_node_up(world.run, 0, NULL);
    run_node_up(world.run, 1, NULL);
    for (uint32_t rank = 0; rank < 2; rank++)
        run_worker_started(world.run, rank, 100, 1);
    end_worker(&world, 0, 0, false);
    expect(&world, " start0 start1 launch0.1 launch1.1");
    run_worker_gone(world.run, 1, 0);
    expect(&world, ""); /* the end of its agent is to come */
    assert_string_equal(run_failure(world.run)->text, "the agent of rank 1 was told to end");
    run_node_lost(world.run, 1, "ended");
    assert_int_equal(run_outcome(world.run), OUTCOME_NODE_LOST);
    world_done(&world);
}

static void start_failures_have_a_limit_of_their_own(void **state) {
    (void)state;
    static const nanoseconds pauses[] = {
        0, 1 * NS_PER_S, 2 * NS_PER_S, 4 * NS_PER_S, 8 * NS_PER_S, 16 * NS_PER_S, 30 * NS_PER_S, 30 * NS_PER_S};
    struct world world;
    open_world_with(&world, 1, 1, &(struct failure_policy){.controller_failure_limit = 8});
    world.unstartable = 1u << 0;
    world.start_code = -EAGAIN;
    run_start(world.run);
    for (size_t i = 1; i < sizeof pauses / sizeof pauses[0]; i++) {
        assert_int_equal(run_state_of(world.run), RUN_PAUSING);
        assert_int_equal(world.timers[TIMER_PAUSE], pauses[i]);
        nanoseconds pause;
        assert_true(run_retries(world.run, &pause));
        assert_int_equal(pause, pauses[i]);
        world.now += pause;
        run_timer_fired(world.run, TIMER_PAUSE);
    }
    assert_true(world.ended); /* the first try and eight more */
    expect(&world, " start0 start0 start0 start0 start0 start0 start0 start0 start0");
    assert_int_equal(run_exit_status(world.run), 4);
    assert_int_equal(run_attempt(world.run), 9);
    world_done(&world);
}

static void only_starts_that_may_succeed_later_are_tried_again(void **state) {
    (void)state;
    struct failure_policy failures = {
        .max_failures = -1, .controller_failure_limit = -1, .max_preemption_failures = -1};
    struct world world;
    open_world_with(&world, 1, 1, &failures);
    world.unstartable = 1u << 0;
    world.start_code = TY_ESTART;
    run_start(world.run);
    assert_true(world.ended);
    world_done(&world);

    open_world_with(&world, 1, 1, &failures);
    run_start(world.run);
    run_node_refused(world.run, 0, "another version");
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 4);
    world_done(&world);

    open_world_with(&world, 1, 1, &failures);
    run_start(world.run);
    run_timer_fired(world.run, TIMER_START); /* an agent that is slow */
    expect(&world, " start0 abandon0 start0");
    run_node_up(world.run, 0, NULL);
    fail_start(&world, 0, "no such file", false);
    expect(&world, " launch0.2 finish0");
    world_done(&world);

    open_world_with(&world, 1, 1, &failures);
    start_all(&world, 0);
    run_worker_start_failed(
        world.run, 0, &(struct run_start_failure){.why = "no process left", .transient = true, .time = 1});
    expect(&world, " launch0.2");
    world_done(&world);
}

static void short_attempts_in_a_row_pause(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, -1);
    start_all(&world, 1);
    world.now += 1;
    end_worker(&world, 0, 9, false);
    expect(&world, " stop0 launch0.2"); /* the first time at once */
    run_worker_started(world.run, 0, 1, 1);
    world.now += 4 * NS_PER_S;
    end_worker(&world, 0, 9, false);
    assert_int_equal(world.timers[TIMER_PAUSE], 1 * NS_PER_S);
    expect(&world, " stop0");
    run_timer_fired(world.run, TIMER_PAUSE);
    expect(&world, " launch0.3");
    run_worker_started(world.run, 0, 1, 1);
    world.now += 5 * NS_PER_S; /* long enough to have been worth it */
    end_worker(&world, 0, 9, false);
    expect(&world, " stop0 launch0.4");
    world_done(&world);
}

static void a_node_that_is_lost_in_a_pause_is_started_again(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, -1);
    start_all(&world, 1);
    end_worker(&world, 0, 9, false);
    run_worker_started(world.run, 0, 1, 1);
    end_worker(&world, 0, 9, false);
    expect(&world, " stop0 launch0.2 stop0");
    run_node_lost(world.run, 0, "killed");
    assert_int_equal(run_state_of(world.run), RUN_PAUSING);
    run_timer_fired(world.run, TIMER_PAUSE);
    expect(&world, " start0");
    run_node_up(world.run, 0, NULL);
    expect(&world, " launch0.3");
    world_done(&world);
}

static void a_pause_ends_with_an_interrupt_or_the_time_limit(void **state) {
    (void)state;
    struct world world;
    for (int limit = 0; limit < 2; limit++) {
        open_world(&world, 1, 1, -1);
        start_all(&world, 1);
        end_worker(&world, 0, 9, false);
        run_worker_started(world.run, 0, 1, 1);
        end_worker(&world, 0, 9, false);
        assert_int_equal(run_state_of(world.run), RUN_PAUSING);
        expect(&world, " stop0 launch0.2 stop0");
        if (limit)
            run_timer_fired(world.run, TIMER_LIMIT);
        else
            run_interrupt(world.run, 2);
        expect(&world, " finish0");
        run_timer_fired(world.run, TIMER_PAUSE); /* too late */
        run_node_bye(world.run, 0, true, 0);
        assert_true(world.ended);
        assert_int_equal(run_exit_status(world.run), limit ? 124 : 130);
        assert_true(world.timers[TIMER_PAUSE] < 0);
        world_done(&world);
    }
}

/* The limit ends the run, and is told with the time at which it passed. */
static void a_limit_that_passes_while_an_attempt_is_stopped_is_told_as_of_then(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, -1);
    start_all(&world, 2);
    end_worker(&world, 0, 9, false);
    assert_int_equal(run_state_of(world.run), RUN_STOPPING);
    world.now = 5;
    run_timer_fired(world.run, TIMER_LIMIT);
    world.now = 12;
    end_worker(&world, 1, 15, true);
    run_node_bye(world.run, 0, true, 0);
    assert_true(world.ended);
    assert_int_equal(run_exit_status(world.run), 124);
    assert_int_equal(run_failure(world.run)->time, 1005);
    world_done(&world);
}

static void each_kind_of_failure_is_counted_apart(void **state) {
    (void)state;
    static const int limits[] = {0, 1, 10, -1};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (int kind = 0; kind < FAILURE_KINDS; kind++) {
            struct failure_policy policy = {0};
            int *of_kind[] = {&policy.max_failures, &policy.controller_failure_limit,
                              &policy.max_preemption_failures};
            *of_kind[kind] = limits[i];
            struct retry retry = {0};
            nanoseconds pause;
            int retries = 0;
            while (retries < 50 &&
                   retry_next(&retry, &policy, (enum failure_kind)kind, RETRY_SHORT, 7, &pause)) {
                assert_int_equal(pause, 0);
                retries++;
            }
            assert_int_equal(retries, limits[i] < 0 ? 50 : limits[i]);
            enum failure_kind other = (enum failure_kind)((kind + 1) % FAILURE_KINDS);
            assert_false(retry_next(&retry, &policy, other, RETRY_SHORT, 7, &pause));
        }
}

static void pauses_are_bounded_and_differ(void **state) {
    (void)state;
    struct failure_policy policy = {.max_failures = -1};
    struct retry retry = {0};
    nanoseconds pause = 0, least = RETRY_LONGEST_PAUSE;
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 1000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        assert_true(retry_next(&retry, &policy, FAILURE_TRAINING, 0, random, &pause));
        assert_true(pause >= 0 && pause <= RETRY_LONGEST_PAUSE);
        if (i > 10) {
            assert_true(pause >= RETRY_LONGEST_PAUSE / 2);
            if (pause < least) least = pause;
        }
    }
    assert_true(least < RETRY_LONGEST_PAUSE * 6 / 10);
}

static void an_attempt_of_another_controller_goes_on(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 2, 1);
    const struct run_worker workers[] = {{.state = WORKER_READY, .pid = 100, .reports = 7},
                                         {.state = WORKER_STARTED, .pid = 101, .reports = 5},
                                         {.state = WORKER_LAUNCHED, .reports = 5}};
    run_adopt(world.run, &(struct run_adoption){.report_base = 5, .workers = workers});
    expect(&world, ""); /* nothing is started, and nothing launched */
    assert_int_equal(run_state_of(world.run), RUN_RUNNING);
    assert_int_equal(run_attempt(world.run), 0);
    assert_int_equal(run_report_base(world.run), 5);
    assert_int_equal(run_node_state(world.run, 1), NODE_LAUNCHED);
    run_worker_started(world.run, 2, 102, 1);
    assert_int_equal(run_worker(world.run, 2)->pid, 102);
    /* What was on its way is told again: the checkpoint is whole with the last word of it. */
    report(&world, 1, REPORT_BEGIN, 6, NULL, 0);
    report(&world, 1, REPORT_COMMIT, 6, "[]", 21);
    expect(&world, "");
    report(&world, 2, REPORT_METRICS, 6, NULL, 0);
    expect(&world, " publish6.0([]) ok21.6");
    end_worker(&world, 0, 1 << 8, false);
    expect(&world, " stop0 stop1");
    end_worker(&world, 1, 15, true);
    end_worker(&world, 2, 15, true);
    expect(&world, " launch0.1 launch1.1");
    world_done(&world);
}

static void an_interrupt_before_the_adoption_ends_what_goes_on(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, 0);
    const struct run_worker worker = {.state = WORKER_STARTED, .pid = 100};
    run_interrupt(world.run, 2);
    run_adopt(world.run, &(struct run_adoption){.workers = &worker});
    expect(&world, " stop0");
    end_worker(&world, 0, 15, true);
    run_node_bye(world.run, 0, true, 0);
    assert_int_equal(run_exit_status(world.run), 130);
    world_done(&world);
}

static void late_and_doubled_events_change_nothing(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 0);
    run_worker_started(world.run, 0, 1, 1);
    run_worker_exited(world.run, 7, &(struct run_exit){.time = 1});
    run_node_up(world.run, 5, NULL);
    run_node_bye(world.run, 0, true, 0);
    start_all(&world, 2);
    run_node_up(world.run, 0, NULL);
    run_worker_started(world.run, 0, 1, 1);
    run_node_bye(world.run, 0, true, 0);
    end_worker(&world, 0, 0, false);
    end_worker(&world, 0, 9, false);
    assert_int_equal(run_state_of(world.run), RUN_RUNNING);
    expect(&world, "");
    uint32_t counts[WORKER_STATE_COUNT];
    run_count(world.run, counts);
    assert_int_equal(counts[WORKER_GONE], 1);
    assert_int_equal(counts[WORKER_STARTED], 1);
    world_done(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_is_told_after_every_bye),
        cmocka_unit_test(the_first_failure_decides),
        cmocka_unit_test(of_failures_at_once_a_crash_is_the_cause),
        cmocka_unit_test(a_device_that_broke_is_the_first_cause),
        cmocka_unit_test(a_failed_attempt_is_followed_by_another),
        cmocka_unit_test(agents_that_are_late_together_fail_one_attempt),
        cmocka_unit_test(what_cannot_be_started_is_not_tried_again),
        cmocka_unit_test(an_agent_that_cannot_be_started_ends_the_run),
        cmocka_unit_test(a_launch_that_cannot_be_sent_ends_the_run),
        cmocka_unit_test(a_lost_node_takes_its_workers_along),
        cmocka_unit_test(a_lost_node_is_started_again_for_the_next_attempt),
        cmocka_unit_test(interrupts_stop_then_kill),
        cmocka_unit_test(a_second_interrupt_hurries_what_workers_left_behind),
        cmocka_unit_test(what_the_agent_knows_stands_behind_the_signal),
        cmocka_unit_test(an_interrupt_before_the_launch_starts_nothing),
        cmocka_unit_test(limits_end_what_does_not_answer),
        cmocka_unit_test(an_agent_that_is_told_to_end_is_a_lost_node),
        cmocka_unit_test(a_worker_whose_end_nobody_saw_is_of_a_lost_node),
        cmocka_unit_test(start_failures_have_a_limit_of_their_own),
        cmocka_unit_test(only_starts_that_may_succeed_later_are_tried_again),
        cmocka_unit_test(short_attempts_in_a_row_pause),
        cmocka_unit_test(a_node_that_is_lost_in_a_pause_is_started_again),
        cmocka_unit_test(a_pause_ends_with_an_interrupt_or_the_time_limit),
        cmocka_unit_test(a_limit_that_passes_while_an_attempt_is_stopped_is_told_as_of_then),
        cmocka_unit_test(each_kind_of_failure_is_counted_apart),
        cmocka_unit_test(pauses_are_bounded_and_differ),
        cmocka_unit_test(an_attempt_of_another_controller_goes_on),
        cmocka_unit_test(an_interrupt_before_the_adoption_ends_what_goes_on),
        cmocka_unit_test(late_and_doubled_events_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
