/* Elastic runs, driven by hand: nodes with room for a number of workers each, which comes and goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dice.h"
#include "run/run.h"
#include "run_world.h"

enum { NODES = WORLD_NODES };
static const nanoseconds INTERVAL = WORLD_INTERVAL;

/* What went on record since the last look says so. */
static void expect_reason(struct world *world, const char *part) {
    if (strstr(world->reasons.data, part) == NULL) fail_msg("no '%s' in %s", part, world->reasons.data);
    buffer_clear(&world->reasons);
}

/* A run whose first attempt has filled the nodes that have room. */
static void open_world(struct world *world, uint32_t a, uint32_t b, uint32_t c, int max_failures) {
    struct failure_policy failures = {.max_failures = max_failures,
                                      .controller_failure_limit = max_failures < 0 ? -1 : 1};
    world_init(world);
    assert_int_equal(world_open_elastic(world, (uint32_t[]){a, b, c}, &failures, NULL), 0);
    world->quiet = true;
    run_start(world->run);
    for (uint32_t node = 0; node < NODES; node++)
        run_node_up(world->run, node, NULL);
    start_workers(world);
    forget_log(world);
}

static void end_all(struct world *world, int wait_status, bool stopped) {
    int attempt = run_attempt(world->run);
    uint32_t n = run_size(world->run);
    for (uint32_t rank = 0; rank < n && run_attempt(world->run) == attempt; rank++)
        end_worker(world, rank, wait_status, stopped);
}

/* Every rank makes the report of this number, rank 0 with a checkpoint. */
static void report_all(struct world *world, uint64_t number, bool checkpoint) {
    uint32_t n = run_size(world->run);
    for (uint32_t rank = 0; rank < n; rank++)
        run_report(world->run,
                   &(struct run_report){.rank = rank,
                                        .kind = rank == 0 && checkpoint ? REPORT_BEGIN : REPORT_METRICS,
                                        .number = number});
    if (checkpoint)
        run_report(world->run,
                   &(struct run_report){.kind = REPORT_COMMIT, .number = number, .files = "[]", .size = 2});
}

static void close_world(struct world *world, int status) {
    end_all(world, 0, false);
    for (uint32_t node = 0; node < NODES; node++)
        run_node_bye(world->run, node, true, 0);
    assert_true(world->ended);
    assert_int_equal(run_exit_status(world->run), status);
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        assert_true(world->timers[timer] <= 0);
    world_done(world);
}

static void a_look_that_finds_the_same_changes_nothing(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 0, 0);
    assert_int_equal(world.timers[TIMER_RESIZE], INTERVAL);
    pass(&world, TIMER_RESIZE);
    assert_int_equal(world.timers[TIMER_RESIZE], INTERVAL);
    expect(&world, "");
    world.room[0] = world.room[1] = 0; /* below the least: what runs goes on */
    pass(&world, TIMER_RESIZE);
    expect(&world, "");
    close_world(&world, 0);
}

static void it_grows_at_the_next_checkpoint(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 0);
    report_all(&world, 1, true);
    world.room[0] = 4;
    pass(&world, TIMER_RESIZE);
    report_all(&world, 2, false);
    expect(&world, "");
    report_all(&world, 3, true);
    expect(&world, " stop0");
    end_all(&world, 15, true);
    expect(&world, " launch0.2");
    assert_int_equal(run_size(world.run), 4);
    assert_int_equal(run_attempt(world.run), 2);
    expect_reason(&world,
                  "\"resize: 2 -> 4 workers; 0.0 s of work and 0 reports since the last checkpoint are lost\", "
                  "\"lost_seconds\": 0.000, \"lost_reports\": 0");
    start_workers(&world);
    assert_int_equal(world.timers[TIMER_RESIZE], INTERVAL);
    close_world(&world, 0);
}

/* Also where no size changes: what is done once more behind the last checkpoint is on record. */
static void what_a_failure_loses_is_told(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 1);
    report_all(&world, 1, true);
    report_all(&world, 2, false);
    report_all(&world, 3, false);
    world.now += 30 * NS_PER_S;
    end_worker(&world, 0, 1 << 8, false);
    expect(&world, " stop0");
    end_worker(&world, 1, 15, true);
    expect_reason(&world, "\"lost_seconds\": 30.000, \"lost_reports\": 2");
    forget_log(&world);
    start_workers(&world);
    close_world(&world, 0);
}

static void without_a_checkpoint_it_waits_one_interval(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 0);
    world.room[0] = 3;
    pass(&world, TIMER_RESIZE);
    report_all(&world, 1, false);
    expect(&world, "");
    pass(&world, TIMER_RESIZE);
    expect(&world, " stop0");
    end_all(&world, 15, true);
    expect(&world, " launch0.2");
    expect_reason(&world, "\"lost_seconds\": 120.000, \"lost_reports\": 1");
    assert_int_equal(run_size(world.run), 3);
    close_world(&world, 0);
}

static void it_shrinks_when_room_goes(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 2, 0, 0);
    world.room[1] = 0;
    pass(&world, TIMER_RESIZE);
    pass(&world, TIMER_RESIZE);
    expect(&world, " stop0 stop1");
    end_all(&world, 15, true);
    expect(&world, " launch0.2"); /* the agent of node 1 stays, without workers */
    assert_int_equal(run_size(world.run), 2);
    run_node_lost(world.run, 1, "its agent ended"); /* which is nobody's failure */
    expect(&world, "");
    assert_int_equal(run_state_of(world.run), RUN_RUNNING);
    close_world(&world, 0);
}

static void what_went_again_is_no_reason_to_stop(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 0);
    world.room[0] = 4;
    pass(&world, TIMER_RESIZE);
    world.room[0] = 2;
    report_all(&world, 1, true);
    expect(&world, "");
    assert_int_equal(world.timers[TIMER_RESIZE], INTERVAL);
    close_world(&world, 0);
}

static void a_lost_node_is_done_without_and_comes_back(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 2, 0, 1);
    run_node_lost(world.run, 1, "the agent was killed");
    expect(&world, " stop0");
    for (uint32_t rank = 0; rank < 2; rank++)
        end_worker(&world, rank, 15, true);
    expect(&world, " launch0.2");
    assert_int_equal(run_size(world.run), 2);
    expect_reason(&world, "\"reason\": \"the agent was killed; resize: 4 -> 2 workers\"");
    start_workers(&world);
    world.unstartable = 1u << 1; /* still away: nobody is stopped for it */
    pass(&world, TIMER_RESIZE);
    expect(&world, " start1");
    assert_int_equal(world.timers[TIMER_RESIZE], INTERVAL);
    world.unstartable = 0;
    pass(&world, TIMER_RESIZE);
    expect(&world, " start1");
    pass(&world, TIMER_START); /* it does not say hello */
    expect(&world, " abandon1");
    assert_int_equal(run_state_of(world.run), RUN_RUNNING);
    pass(&world, TIMER_RESIZE);
    expect(&world, " start1");
    run_node_up(world.run, 1, NULL);
    assert_true(world.timers[TIMER_START] < 0);
    report_all(&world, 1, true);
    expect(&world, " stop0");
    end_all(&world, 0, true);
    expect(&world, " launch0.3 launch1.3");
    assert_int_equal(run_size(world.run), 4);
    close_world(&world, 0);
}

static void a_new_node_is_started_before_anybody_is_stopped(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1, 0, 0);
    world.room[2] = 2;
    pass(&world, TIMER_RESIZE);
    expect(&world, " start2");
    run_node_up(world.run, 2, NULL);
    report_all(&world, 1, true);
    expect(&world, " stop0 stop1");
    end_all(&world, 15, true);
    expect(&world, " launch0.2 launch1.2 launch2.2");
    assert_int_equal(run_size(world.run), 5);
    close_world(&world, 0);
}

static void the_next_attempt_is_not_late_for_the_stop_of_the_last(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 2, 0, 1);
    end_worker(&world, 2, 1 << 8, false);
    end_worker(&world, 3, 15, true);
    expect(&world, " stop0 stop1");
    pass(&world, TIMER_STOP);
    expect(&world, " abandon0 launch1.2"); /* at once, on the node that is left */
    assert_int_equal(run_node_state(world.run, 1), NODE_LAUNCHED);
    assert_int_equal(run_size(world.run), 2);
    close_world(&world, 0);
}

static void below_the_least_a_lost_node_is_tried_again(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 1, 0, 2);
    run_node_lost(world.run, 1, "the agent was killed");
    end_worker(&world, 0, 15, true);
    expect(&world, " stop0 start1"); /* nothing else can show that it is back */
    run_node_up(world.run, 1, NULL);
    expect(&world, " launch0.2 launch1.2");
    assert_int_equal(run_size(world.run), 2);
    close_world(&world, 0);
}

static void below_the_least_it_waits_and_tells_it_once(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 0, 0, 1);
    end_worker(&world, 0, 9, false);
    world.room[0] = 1;
    end_worker(&world, 1, 15, true);
    end_worker(&world, 2, 15, true);
    expect(&world, " stop0");
    expect_reason(&world, "room for 1");
    assert_int_equal(run_state_of(world.run), RUN_PAUSING);
    assert_int_equal(world.timers[TIMER_PAUSE], INTERVAL);
    pass(&world, TIMER_PAUSE);
    run_room_changed(world.run);
    assert_int_equal(world.reasons.size, 0);
    world.room[0] = 2;
    run_room_changed(world.run);
    expect(&world, " launch0.2");
    assert_int_equal(run_size(world.run), 2);
    close_world(&world, 0);
}

static void a_wait_ends_with_an_interrupt(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 1);
    world.room[0] = 0;
    end_worker(&world, 0, 9, false);
    end_worker(&world, 1, 15, true);
    assert_int_equal(run_state_of(world.run), RUN_PAUSING);
    run_interrupt(world.run, 2);
    expect(&world, " stop0 finish0");
    close_world(&world, 130);
}

static void a_resize_is_no_failure_but_a_crash_in_it_is(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 1);
    for (int i = 0; i < 5; i++) {
        world.room[0] = i % 2 == 0 ? 4 : 2;
        pass(&world, TIMER_RESIZE);
        pass(&world, TIMER_RESIZE);
        end_all(&world, 15, true);
        start_workers(&world);
    }
    assert_int_equal(run_attempt(world.run), 6);
    world.room[0] = 2;
    pass(&world, TIMER_RESIZE);
    pass(&world, TIMER_RESIZE);
    end_all(&world, 11, false); /* before they heard of it */
    assert_int_equal(run_attempt(world.run), 7);
    start_workers(&world);
    end_all(&world, 11, false);
    assert_int_equal(run_attempt(world.run), 7); /* the second failure is one too many */
    close_world(&world, 128 + 11);
}

static void who_had_finished_is_not_started_again(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 0);
    world.room[0] = 4;
    pass(&world, TIMER_RESIZE);
    pass(&world, TIMER_RESIZE);
    end_all(&world, 0, false);
    expect(&world, " stop0 finish0");
    close_world(&world, 0);
}

static void an_interrupt_wins_over_a_resize(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0, 0, 0);
    world.room[0] = 4;
    pass(&world, TIMER_RESIZE);
    pass(&world, TIMER_RESIZE);
    run_interrupt(world.run, 15);
    end_all(&world, 15, true);
    expect(&world, " stop0 finish0");
    close_world(&world, 143);
}

/* -- whatever comes */

static void check(struct world *world) {
    uint32_t counts[WORKER_STATE_COUNT], total = 0, size = run_size(world->run);
    run_count(world->run, counts);
    for (int i = 0; i < WORKER_STATE_COUNT; i++)
        total += counts[i];
    assert_int_equal(total, size);
    assert_in_range(size, WORLD_LEAST, WORLD_MOST);
    bool between = run_state_of(world->run) == RUN_PAUSING || run_state_of(world->run) == RUN_STARTING;
    assert_false(between && world->timers[TIMER_RESIZE] > 0);
}

static uint32_t node_of(const struct world *world, uint32_t rank) {
    return run_attempt(world->run) == 1 ? world->node_of[rank] : world->layouts[1][rank];
}

/* The rooms as they were when the attempt began are those that it fills. */
static void check_launch(const struct world *world) {
    uint32_t used[NODES] = {0};
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        used[node_of(world, rank)]++;
    for (uint32_t node = 0; node < NODES; node++)
        assert_int_equal(run_node_state(world->run, node) == NODE_LAUNCHED, used[node] > 0);
}

static void something_ends(struct world *world, struct dice *dice, uint32_t rank) {
    uint32_t node = (uint32_t)dice_below(dice, NODES);
    if (dice_below(dice, 2) == 0)
        end_worker(world, rank, 9, false);
    else
        run_node_lost(world->run, node, "gone");
}

static void step(struct world *world, struct dice *dice, uint64_t *number) {
    uint32_t rank = (uint32_t)dice_below(dice, run_size(world->run)), node = (uint32_t)dice_below(dice, NODES);
    int attempt = run_attempt(world->run);
    if (dice_below(dice, 10) == 0) world->room[node] = (uint32_t)dice_below(dice, 4);
    switch (run_state_of(world->run)) {
    case RUN_STARTING:
        if (dice_below(dice, 4) > 0)
            run_node_up(world->run, node, NULL);
        else
            run_node_lost(world->run, node, "no agent");
        break;
    case RUN_RUNNING:
        start_workers(world);
        if (dice_below(dice, 8) == 0) run_node_up(world->run, node, NULL);
        if (dice_below(dice, 12) == 0) something_ends(world, dice, rank);
        if (dice_below(dice, 3) == 0 && world->timers[TIMER_RESIZE] > 0) pass(world, TIMER_RESIZE);
        if (dice_below(dice, 30) == 0 && world->timers[TIMER_START] > 0) pass(world, TIMER_START);
        if (run_attempt(world->run) == attempt && run_state_of(world->run) == RUN_RUNNING)
            report_all(world, ++*number, dice_below(dice, 2) == 0);
        break;
    case RUN_STOPPING:
        end_worker(world, rank, 15, true);
        if (dice_below(dice, 20) == 0) run_node_lost(world->run, node, "gone");
        break;
    case RUN_PAUSING:
        if (dice_below(dice, 4) == 0) pass(world, TIMER_PAUSE);
        if (dice_below(dice, 4) == 0) run_room_changed(world->run);
        break;
    default:
        fail_msg("%s", run_state_name(run_state_of(world->run)));
    }
}

static void whatever_comes_it_goes_on(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct world world;
        struct dice dice;
        uint64_t number = 0;
        int launched = 1;
        dice_seed(&dice, seed);
        open_world(&world, 2, 2, 1, -1);
        for (int i = 0; i < 500; i++) {
            step(&world, &dice, &number);
            check(&world);
            if (run_state_of(world.run) == RUN_RUNNING && run_attempt(world.run) > launched) {
                launched = run_attempt(world.run);
                check_launch(&world);
            }
            buffer_clear(&world.log);
            buffer_clear(&world.reasons);
        }
        assert_true(launched > 5);
        run_interrupt(world.run, 2);
        for (uint32_t node = 0; run_state_of(world.run) == RUN_STOPPING && node < NODES; node++)
            run_node_lost(world.run, node, "gone");
        close_world(&world, 130);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_that_finds_the_same_changes_nothing),
        cmocka_unit_test(it_grows_at_the_next_checkpoint),
        cmocka_unit_test(what_a_failure_loses_is_told),
        cmocka_unit_test(without_a_checkpoint_it_waits_one_interval),
        cmocka_unit_test(it_shrinks_when_room_goes),
        cmocka_unit_test(what_went_again_is_no_reason_to_stop),
        cmocka_unit_test(a_lost_node_is_done_without_and_comes_back),
        cmocka_unit_test(a_new_node_is_started_before_anybody_is_stopped),
        cmocka_unit_test(the_next_attempt_is_not_late_for_the_stop_of_the_last),
        cmocka_unit_test(below_the_least_a_lost_node_is_tried_again),
        cmocka_unit_test(below_the_least_it_waits_and_tells_it_once),
        cmocka_unit_test(a_wait_ends_with_an_interrupt),
        cmocka_unit_test(a_resize_is_no_failure_but_a_crash_in_it_is),
        cmocka_unit_test(who_had_finished_is_not_started_again),
        cmocka_unit_test(an_interrupt_wins_over_a_resize),
        cmocka_unit_test(whatever_comes_it_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
