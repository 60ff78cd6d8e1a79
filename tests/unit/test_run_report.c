/* Reports and checkpoints of the run's state machine, driven by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "run/run.h"
#include "run_world.h"

/* One node, all workers started. */
static void open_world(struct world *world, uint32_t n_workers, int max_failures) {
    struct failure_policy failures = {.max_failures = max_failures};
    world_init(world);
    assert_int_equal(world_open(world, n_workers, 1, &failures), 0);
    run_start(world->run);
    run_node_up(world->run, 0, NULL);
    start_workers(world);
    forget_log(world);
}

static void a_checkpoint_that_is_begun_after_a_rank_ended_fails(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0);
    report(&world, 1, REPORT_METRICS, 1, NULL, 0);
    end_worker(&world, 1, 0, false);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 7);
    report(&world, 0, REPORT_COMMIT, 1, "[]", 7);
    expect(&world, " publish1.1([]) ok7.1");
    report(&world, 0, REPORT_BEGIN, 2, NULL, 7);
    report(&world, 0, REPORT_COMMIT, 2, "[]", 7);
    expect(&world, " discard2.1 error7.2");
    end_worker(&world, 0, 0, false);
    expect(&world, " finish0");
    world_done(&world);
}

static void checkpoints_are_committed_in_order(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 0);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 0, REPORT_BEGIN, 2, NULL, 0);
    report(&world, 0, REPORT_BEGIN, 3, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 3, "[3]", 9);
    report(&world, 0, REPORT_COMMIT, 2, "[2]", 8);
    expect(&world, "");
    report(&world, 0, REPORT_COMMIT, 1, "[1]", 7);
    expect(&world, " publish1.1([1]) ok7.1 publish2.1([2]) ok8.2 publish3.1([3]) ok9.3");
    report(&world, 0, REPORT_COMMIT, 1, "[]", 7); /* twice */
    expect(&world, " error7.1");
    report(&world, 0, REPORT_BEGIN, 4, NULL, 0);
    report(&world, 0, REPORT_BEGIN, 5, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 5, "[5]", 8);
    report(&world, 0, REPORT_ABORT, 4, "disk full", 7); /* holds up nothing any more */
    expect(&world, " discard4.1 publish5.1([5]) ok8.5");
    world_done(&world);
}

/* Who waits for a checkpoint learns for whom, each minute. */
static void a_checkpoint_that_ranks_wait_for_is_told(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 4, 0);
    assert_true(world.timers[TIMER_REPORTS] <= 0);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 1, REPORT_BEGIN, 1, NULL, 0);
    assert_true(world.timers[TIMER_REPORTS] <= 0); /* nobody waits yet */
    report(&world, 0, REPORT_COMMIT, 1, "[0]", 7);
    assert_int_equal(world.timers[TIMER_REPORTS], 60 * NS_PER_S);
    buffer_clear(&world.reasons);
    pass(&world, TIMER_REPORTS);
    assert_string_equal(world.reasons.data,
                        "{\"number\": 1, \"seconds\": 60, \"ranks\": \"2-3\", \"what\": \"report\"} ");
    report(&world, 2, REPORT_METRICS, 1, NULL, 0);
    report(&world, 3, REPORT_METRICS, 1, NULL, 0);
    buffer_clear(&world.reasons);
    pass(&world, TIMER_REPORTS);
    assert_string_equal(world.reasons.data,
                        "{\"number\": 1, \"seconds\": 120, \"ranks\": \"1\", \"what\": \"files\"} ");
    report(&world, 1, REPORT_COMMIT, 1, "[1]", 8);
    expect(&world, " publish1.1([0],[1]) ok7.1 ok8.1");
    buffer_clear(&world.reasons);
    pass(&world, TIMER_REPORTS); /* nobody waits any more */
    assert_int_equal(world.reasons.size, 0);
    assert_true(world.timers[TIMER_REPORTS] < 0);
    world_done(&world);
}

/* A commit that takes its time holds up the answers and those behind it, nothing else. */
static void a_commit_may_end_later(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0);
    world.publish_later = true;
    for (uint64_t number = 1; number <= 3; number++) {
        report(&world, 0, REPORT_BEGIN, number, NULL, 0);
        report(&world, 1, REPORT_METRICS, number, NULL, 0);
    }
    report(&world, 0, REPORT_COMMIT, 1, "[1]", 7);
    report(&world, 0, REPORT_COMMIT, 2, "[2]", 8);
    report(&world, 1, REPORT_LIST, 2, NULL, 5);
    expect(&world, " publish1.1([1])");
    run_published(world.run, 2, strdup("/run/b"), NULL); /* not its turn */
    assert_null(run_checkpoint(world.run));
    run_published(world.run, 1, strdup("/run/a"), NULL);
    assert_string_equal(run_checkpoint(world.run), "/run/a");
    expect(&world, " ok7.1 publish2.1([2])");
    run_published(world.run, 1, strdup("/run/a"), NULL); /* twice */
    run_published(world.run, 2, NULL, "disk full");
    assert_string_equal(run_checkpoint(world.run), "/run/a");
    expect(&world, " discard2.1 error8.2 list5");
    report(&world, 0, REPORT_COMMIT, 3, "[3]", 9);
    expect(&world, " publish3.1([3])");
    end_worker(&world, 1, 0, false); /* every rank has made that report */
    run_published(world.run, 3, strdup("/run/c"), NULL);
    expect(&world, " ok9.3");
    world_done(&world);
}

/* Those that become whole at once go one after the other, too. */
static void commits_that_take_their_time_go_one_by_one(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 0);
    world.publish_later = true;
    for (uint64_t number = 1; number <= 3; number++)
        report(&world, 0, REPORT_BEGIN, number, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 2, "[2]", 8);
    report(&world, 0, REPORT_COMMIT, 3, "[3]", 9);
    report(&world, 0, REPORT_COMMIT, 1, "[1]", 7);
    expect(&world, " publish1.1([1])");
    run_published(world.run, 1, strdup("/run/a"), NULL);
    expect(&world, " ok7.1 publish2.1([2])");
    run_published(world.run, 2, strdup("/run/b"), NULL);
    expect(&world, " ok8.2 publish3.1([3])");
    run_published(world.run, 3, strdup("/run/c"), NULL);
    expect(&world, " ok9.3");
    world_done(&world);
}

/* One worker of one node; its first checkpoint is on its way into its place, the second behind it, when it
 * ends. */
static void open_with_commit_under_way(struct world *world, int wait_status) {
    open_world(world, 1, 0);
    world->publish_later = true;
    report(world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(world, 0, REPORT_BEGIN, 2, NULL, 0);
    report(world, 0, REPORT_COMMIT, 1, "[1]", 7);
    report(world, 0, REPORT_COMMIT, 2, "[2]", 8);
    expect(world, " publish1.1([1])");
    end_worker(world, 0, wait_status, false);
}

/* The end of an attempt waits for it, and for one that is whole behind it. */
static void the_end_waits_for_commits_under_way(void **state) {
    (void)state;
    struct world world;
    open_with_commit_under_way(&world, 0);
    expect(&world, "");
    assert_int_equal(world.timers[TIMER_STORAGE], 30 * NS_PER_S);
    assert_int_equal(run_state_of(world.run), RUN_RUNNING);
    run_published(world.run, 1, strdup("/run/a"), NULL);
    expect(&world, " ok7.1 publish2.1([2])");
    run_published(world.run, 2, strdup("/run/b"), NULL);
    expect(&world, " ok8.2 finish0");
    assert_true(world.timers[TIMER_STORAGE] < 0);
    assert_int_equal(run_outcome(world.run), OUTCOME_SUCCEEDED);
    assert_string_equal(run_checkpoint(world.run), "/run/b");
    world_done(&world);
}

/* Nobody waits for storage for ever: what has come meanwhile counts. */
static void a_commit_that_takes_too_long_is_settled(void **state) {
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct world world;
        open_with_commit_under_way(&world, 9);
        expect(&world, " stop0");
        world.fail_publish = fails != 0;
        run_timer_fired(world.run, TIMER_STORAGE);
        expect(&world, fails != 0 ? " settle1 discard1.1 error7.1 discard2.1 finish0"
                                  : " settle1 ok7.1 discard2.1 finish0");
        if (fails != 0)
            assert_null(run_checkpoint(world.run));
        else
            assert_string_equal(run_checkpoint(world.run), "/run/checkpoint-1");
        run_published(world.run, 1, strdup("/run/late"), NULL);
        run_timer_fired(world.run, TIMER_STORAGE); /* too late */
        expect(&world, "");
        world_done(&world);
    }
}

/* An agent that was told to end while only a commit was to come, and does not end: the next attempt gets
 * another one. */
static void an_agent_that_leaves_does_not_outlive_the_wait_for_a_commit(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 1, 3);
    world.publish_later = true;
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 1, "[1]", 7);
    end_worker(&world, 0, 9, false);
    run_node_leaving(world.run, 0, 15, 1);
    expect(&world, " publish1.1([1]) stop0");
    run_timer_fired(world.run, TIMER_STORAGE);
    expect(&world, " abandon0 settle1 ok7.1 start0");
    run_node_up(world.run, 0, NULL);
    start_workers(&world);
    end_worker(&world, 0, 0, false);
    expect(&world, " launch0.2 finish0");
    world_done(&world);
}

/* Ctrl-C is heard while the end waits, and shortens it: to the grace, then to nothing. */
static void an_interrupt_shortens_the_wait_for_a_commit(void **state) {
    (void)state;
    struct world world;
    open_with_commit_under_way(&world, 0);
    run_interrupt(world.run, 2);
    assert_int_equal(world.timers[TIMER_STORAGE], WORLD_GRACE);
    run_interrupt(world.run, 2);
    assert_int_equal(world.timers[TIMER_STORAGE], 0);
    expect(&world, "");
    world.fail_publish = true;
    run_timer_fired(world.run, TIMER_STORAGE);
    expect(&world, " settle1 discard1.1 error7.1 discard2.1 finish0");
    assert_int_equal(run_outcome(world.run), OUTCOME_INTERRUPTED);
    world_done(&world);
}

/* The next attempt waits for the look at the latest checkpoint, but not for ever. */
static void an_attempt_waits_for_the_look_at_its_checkpoint(void **state) {
    (void)state;
    for (int late = 0; late < 3; late++) {
        struct world world;
        open_world(&world, 1, 3);
        world.checks = true;
        end_worker(&world, 0, 9, false);
        expect(&world, " stop0 check");
        assert_int_equal(run_state_of(world.run), RUN_PAUSING);
        assert_true(run_checks(world.run));
        assert_int_equal(world.timers[TIMER_STORAGE], 30 * NS_PER_S);
        if (late == 0) {
            assert_int_equal(run_begin_from(world.run, "/run/before"), 0);
            run_checked(world.run);
        } else if (late == 1) {
            run_timer_fired(world.run, TIMER_STORAGE);
            run_checked(world.run); /* nobody waits for it any more */
        } else {
            run_interrupt(world.run, 2);
            run_checked(world.run);
        }
        expect(&world, late == 2 ? " finish0" : " launch0.2");
        assert_int_equal(run_attempt(world.run), late == 2 ? 1 : 2);
        assert_false(run_checks(world.run));
        assert_true(late == 1 || world.timers[TIMER_STORAGE] < 0);
        world_done(&world);
    }
}

/* Both the pause and the look must be over. */
static void a_look_within_a_pause(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct world world;
        open_world(&world, 1, 3);
        end_worker(&world, 0, 9, false);
        expect(&world, " stop0 launch0.2");
        start_workers(&world);
        world.checks = true;
        end_worker(&world, 0, 9, false); /* the second failure in a row costs a pause */
        expect(&world, " stop0 check");
        assert_true(world.timers[TIMER_PAUSE] > 0);
        if (first == 0)
            run_checked(world.run);
        else
            run_timer_fired(world.run, TIMER_PAUSE);
        expect(&world, "");
        if (first == 0)
            run_timer_fired(world.run, TIMER_PAUSE);
        else
            run_checked(world.run);
        expect(&world, " launch0.3");
        world_done(&world);
    }
}

/* Who waits for a checkpoint, and that a rank which trains on meanwhile says so. */
static void who_waits_is_listed(void **state) {
    (void)state;
    struct world world;
    struct buffer text = {0};
    struct idset ranks = {0};
    uint64_t words, more;
    open_world(&world, 3, 0);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 2, REPORT_BEGIN, 1, NULL, 0);
    run_list_waiting(world.run, &ranks, &words, &text);
    assert_int_equal(idset_count(&ranks), 0); /* they still write */
    assert_int_equal(text.size, 0);
    report(&world, 0, REPORT_COMMIT, 1, "[]", 7);
    report(&world, 2, REPORT_COMMIT, 1, "[]", 8);
    report(&world, 1, REPORT_LIST, 1, NULL, 9);
    run_list_waiting(world.run, &ranks, &words, &text);
    assert_string_equal(text.data,
                        ", ranks 0,2 wait for checkpoint 1, rank 1 waits for the checkpoints up to 1");
    assert_int_equal(idset_count(&ranks), 3);
    report(&world, 2, REPORT_ALIVE, 1, NULL, 0);
    run_list_waiting(world.run, &ranks, &more, &text);
    assert_true(more != words);
    idset_done(&ranks);
    buffer_done(&text);
    forget_log(&world);
    world_done(&world);
}

static void the_name_is_that_of_rank_0(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 0);
    run_report(world.run, &(struct run_report){.rank = 0, .kind = REPORT_METRICS, .number = 1, .name = "best"});
    run_report(world.run, &(struct run_report){.rank = 1, .kind = REPORT_BEGIN, .number = 1, .name = "other"});
    report(&world, 1, REPORT_COMMIT, 1, "[]", 7);
    expect(&world, " publish1.1([] as best) ok7.1");
    run_report(world.run, &(struct run_report){.rank = 1, .kind = REPORT_BEGIN, .number = 2, .name = "other"});
    report(&world, 1, REPORT_COMMIT, 2, "[]", 7);
    report(&world, 0, REPORT_METRICS, 2, NULL, 0);
    expect(&world, " publish2.1([]) ok7.2");
    run_report(world.run, &(struct run_report){.rank = 0, .kind = REPORT_METRICS, .number = 3, .name = "x"});
    report(&world, 1, REPORT_METRICS, 3, NULL, 0);
    expect(&world, ""); /* a name without files is no checkpoint */
    world_done(&world);
}

static void one_report_of_all_ranks_is_one_checkpoint(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 8, 0);
    for (uint32_t rank = 0; rank < 8; rank++)
        report(&world, rank, REPORT_METRICS, 1, NULL, 0);
    expect(&world, "");
    report(&world, 3, REPORT_BEGIN, 2, NULL, 0);
    report(&world, 3, REPORT_COMMIT, 2, "[]", 1);
    for (uint32_t rank = 0; rank < 7; rank++)
        if (rank != 3) report(&world, rank, REPORT_METRICS, 2, NULL, 0);
    expect(&world, ""); /* rank 7 is silent yet */
    report(&world, 7, REPORT_METRICS, 2, NULL, 0);
    expect(&world, " publish2.1([]) ok1.2");
    world_done(&world);
}

static void a_list_waits_for_what_was_reported(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 0);
    report(&world, 0, REPORT_LIST, 0, NULL, 1);
    expect(&world, " list1"); /* nothing was reported */
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 0, REPORT_LIST, 1, NULL, 2);
    report(&world, 1, REPORT_METRICS, 1, NULL, 0);
    report(&world, 2, REPORT_METRICS, 1, NULL, 0);
    expect(&world, "");
    report(&world, 0, REPORT_COMMIT, 1, "[]", 3);
    expect(&world, " publish1.1([]) ok3.1 list2");
    report(&world, 1, REPORT_METRICS, 2, NULL, 0);
    report(&world, 1, REPORT_LIST, 2, NULL, 4);
    report(&world, 0, REPORT_METRICS, 2, NULL, 0);
    expect(&world, "");
    end_worker(&world, 2, 0, false); /* will not report any more */
    expect(&world, " list4");
    report(&world, 1, REPORT_METRICS, 3, NULL, 0);
    report(&world, 1, REPORT_LIST, 3, NULL, 5);
    end_worker(&world, 0, 9, false);
    expect(&world, " stop0 list5");
    world_done(&world);
}

static void a_checkpoint_is_whole_when_all_ranks_reported(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 0);
    report(&world, 0, REPORT_METRICS, 1, NULL, 0);
    report(&world, 1, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 2, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 1, REPORT_COMMIT, 1, "[1]", 11);
    expect(&world, "");
    report(&world, 2, REPORT_COMMIT, 1, "[2]", 12);
    expect(&world, " publish1.1([1],[2]) ok11.1 ok12.1");
    assert_string_equal(run_checkpoint(world.run), "/run/checkpoint-1");
    report(&world, 0, REPORT_BEGIN, 2, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 2, "[]", 13);
    report(&world, 1, REPORT_METRICS, 2, NULL, 0);
    expect(&world, "");
    world.fail_publish = true;
    report(&world, 2, REPORT_METRICS, 2, NULL, 0);
    expect(&world, " publish2.1([]) discard2.1 error13.2");
    world_done(&world);
}

static void a_checkpoint_that_cannot_be_whole_is_told(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 3, 0);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 1, "[]", 5);
    end_worker(&world, 1, 0, false);
    expect(&world, " discard1.1 error5.1");
    report(&world, 2, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 2, REPORT_COMMIT, 1, "[]", 6);
    expect(&world, " discard1.1 error6.1");
    report(&world, 2, REPORT_COMMIT, 9, "[]", 7);
    expect(&world, " error7.9");
    world_done(&world);

    open_world(&world, 2, 0);
    report(&world, 0, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 1, REPORT_BEGIN, 1, NULL, 0);
    report(&world, 0, REPORT_ABORT, 1, "disk full", 1);
    report(&world, 1, REPORT_COMMIT, 1, "[]", 2);
    expect(&world, " discard1.1 error2.1");
    report(&world, 0, REPORT_BEGIN, 2, NULL, 0);
    report(&world, 1, REPORT_BEGIN, 2, NULL, 0);
    report(&world, 0, REPORT_COMMIT, 2, "[]", 3);
    end_worker(&world, 1, 9, false);
    expect(&world, " stop0 discard2.1 error3.2");
    world_done(&world);
}

static void numbers_go_on_in_the_next_attempt(void **state) {
    (void)state;
    struct world world;
    open_world(&world, 2, 1);
    report(&world, 0, REPORT_METRICS, 1, NULL, 0);
    report(&world, 0, REPORT_METRICS, 2, NULL, 0);
    report(&world, 1, REPORT_BEGIN, 1, NULL, 0);
    end_worker(&world, 0, 1 << 8, false);
    end_worker(&world, 1, 15, true);
    expect(&world, " stop0 discard1.1 launch0.2");
    assert_int_equal(run_report_base(world.run), 2);
    report(&world, 0, REPORT_BEGIN, 2, NULL, 0);
    expect(&world, "");
    world_done(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_that_is_begun_after_a_rank_ended_fails),
        cmocka_unit_test(checkpoints_are_committed_in_order),
        cmocka_unit_test(a_checkpoint_that_ranks_wait_for_is_told),
        cmocka_unit_test(a_commit_may_end_later),
        cmocka_unit_test(commits_that_take_their_time_go_one_by_one),
        cmocka_unit_test(who_waits_is_listed),
        cmocka_unit_test(the_end_waits_for_commits_under_way),
        cmocka_unit_test(a_commit_that_takes_too_long_is_settled),
        cmocka_unit_test(an_agent_that_leaves_does_not_outlive_the_wait_for_a_commit),
        cmocka_unit_test(an_interrupt_shortens_the_wait_for_a_commit),
        cmocka_unit_test(an_attempt_waits_for_the_look_at_its_checkpoint),
        cmocka_unit_test(a_look_within_a_pause),
        cmocka_unit_test(the_name_is_that_of_rank_0),
        cmocka_unit_test(one_report_of_all_ranks_is_one_checkpoint),
        cmocka_unit_test(a_list_waits_for_what_was_reported),
        cmocka_unit_test(a_checkpoint_is_whole_when_all_ranks_reported),
        cmocka_unit_test(a_checkpoint_that_cannot_be_whole_is_told),
        cmocka_unit_test(numbers_go_on_in_the_next_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
