/* A run whose memory runs short: every allocation of a whole life, with a failure, a hang, a resize and
 * checkpoints, fails once, and once from there on. The course of things is the same; a checkpoint is whole
 * or is told to have failed. Linked with --wrap for the allocating functions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "failing_memory.h"
#include "run/run.h"
#include "run_world.h"

enum { LISTENER = 99 };

static int open_world(struct world *world) {
    struct failure_policy failures = {.max_failures = 5};
    return world_open_elastic(world, (uint32_t[]){2, 2, 0}, &failures, "/run/old");
}

static void make_ready(struct world *world) {
    start_workers(world);
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        run_worker_ready(world->run, rank, 1);
}

static void stop_all(struct world *world) {
    int attempt = run_attempt(world->run);
    uint32_t n = run_size(world->run);
    for (uint32_t rank = 0; rank < n && run_attempt(world->run) == attempt; rank++)
        end_worker(world, rank, 15, true);
}

/* Ranks 0 and 2 write, and all report; rank 0 asks what there is. */
static void save(struct world *world, uint64_t number) {
    struct run_report begin = {.kind = REPORT_BEGIN, .number = number, .name = "best"};
    for (uint32_t rank = 0; rank < run_size(world->run); rank++) {
        begin.rank = rank;
        if (rank == 0 || rank == 2)
            run_report(world->run, &begin);
        else
            report(world, rank, REPORT_METRICS, number, NULL, 0);
    }
    report(world, 0, REPORT_LIST, number, NULL, LISTENER);
    report(world, 0, REPORT_COMMIT, number, "[0]", 10);
    report(world, 2, REPORT_COMMIT, number, "[2]", 12);
}

/* Four attempts: a crash, then more room, then a hang, then the end. */
static void live(struct world *world) {
    run_start(world->run);
    for (uint32_t node = 0; node < 2; node++)
        run_node_up(world->run, node, NULL);
    make_ready(world);
    save(world, 1);
    run_worker_exited(world->run, 1,
                      &(struct run_exit){.wait_status = 9, .tail = "last words", .tail_size = 10, .time = 1});
    run_worker_gone(world->run, 1, 1);
    stop_all(world);
    make_ready(world);
    world->room[2] = 2;
    pass(world, TIMER_RESIZE);
    run_node_up(world->run, 2, NULL);
    save(world, 2);
    if (run_state_of(world->run) == RUN_RUNNING) pass(world, TIMER_RESIZE); /* its checkpoint failed */
    stop_all(world);
    make_ready(world);
    run_worker_hung(world->run, 0, "nothing for 1 min", 1);
    for (uint32_t node = 0; node < 3; node++)
        run_node_stacks(world->run, node, "frames", 6);
    stop_all(world);
    pass(world, TIMER_PAUSE); /* the second failure within a short time */
    make_ready(world);
    save(world, 3);
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        end_worker(world, rank, 0, false);
    for (uint32_t node = 0; node < 3; node++)
        run_node_bye(world->run, node, true, 0);
}

/* Words of the log that tell of checkpoints. */
static bool is_of_checkpoints(const char *word) {
    static const char *const verbs[] = {"publish", "discard", "ok", "error", "list"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        found |= strncmp(word, verbs[i], strlen(verbs[i])) == 0;
    return found;
}

static void expect_same_course(const char *log) {
    static const char course[] =
        " start0 start1 launch0.1 launch1.1 stop0 stop1 launch0.2 launch1.2 start2 stop0 stop1"
        " launch0.3 launch1.3 launch2.3 stacks0 stacks1 stacks2 stop0 stop1 stop2"
        " launch0.4 launch1.4 launch2.4 finish0 finish1 finish2";
    char words[4096], kept[4096] = "", *rest = words;
    (void)snprintf(words, sizeof words, "%s", log);
    strsep(&rest, " ");
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        if (strcmp(word, "as") == 0)
            strsep(&rest, " "); /* "publish1.1([0] as best)" */
        else if (!is_of_checkpoints(word))
            (void)snprintf(kept + strlen(kept), sizeof kept - strlen(kept), " %s", word);
    }
    assert_string_equal(kept, course);
}

static bool has(const struct world *world, const char *verb, unsigned number, const char *rest) {
    char word[64];
    (void)snprintf(word, sizeof word, " %s%u%s", verb, number, rest);
    return strstr(world->log.data, word) != NULL;
}

/* Published with the files of both and its name, and both were told so; or not at all, and both were told
 * that. */
static void expect_whole_or_told(const struct world *world, unsigned number) {
    char attempt[32];
    (void)snprintf(attempt, sizeof attempt, ".%u([0],[2] as best)", number == 3 ? 4 : number);
    if (has(world, "publish", number, ".")) {
        assert_true(has(world, "publish", number, attempt));
        assert_true(has(world, "ok10.", number, " ok12."));
    } else {
        assert_true(has(world, "error10.", number, ""));
        assert_true(has(world, "error12.", number, ""));
        assert_true(has(world, "discard", number, "."));
        assert_non_null(strstr(world->refusal, "out of memory"));
    }
}

static void expect_checkpoint(const struct world *world) {
    char path[64] = "/run/old";
    for (unsigned number = 1; number <= 3; number++)
        if (has(world, "publish", number, ".")) (void)snprintf(path, sizeof path, "/run/checkpoint-%u", number);
    assert_string_equal(run_checkpoint(world->run), path);
}

static void check(const struct world *world) {
    if (!world->ended) fail_msg("not ended:%s", world->log.data);
    assert_int_equal(run_exit_status(world->run), 0);
    assert_int_equal(run_attempt(world->run), 4);
    expect_same_course(world->log.data);
    unsigned answered = 0;
    for (unsigned number = 1; number <= 3; number++) {
        expect_whole_or_told(world, number);
        answered += has(world, "error99.", number, "");
    }
    for (const char *at = world->log.data; (at = strstr(at, " list99")) != NULL; at++)
        answered++;
    assert_int_equal(answered, 3);
    expect_checkpoint(world);
}

/* False when fewer than k + 1 allocations were made. */
static bool live_with_failure(long k, bool for_good) {
    struct world world;
    world_init(&world);
    (void)memory_fails_after(k, for_good);
    int result = open_world(&world);
    if (result == 0) live(&world);
    bool failed = memory_fails_after(-1, false) <= (for_good ? 0 : -1);
    if (result == 0)
        check(&world);
    else
        assert_int_equal(result, -ENOMEM);
    world_done(&world);
    return failed;
}

static void a_whole_life(void **state) {
    (void)state;
    assert_false(live_with_failure(100000, false));
    for (int for_good = 0; for_good < 2; for_good++) {
        long k = 0;
        while (live_with_failure(k, for_good))
            k++;
        assert_in_range(k, 20, 10000);
    }
}

static void where_to_begin_from_is_known_or_told(void **state) {
    (void)state;
    struct world world;
    world_init(&world);
    assert_int_equal(open_world(&world), 0);
    (void)memory_fails_after(0, false);
    assert_int_equal(run_begin_from(world.run, "/run/older"), -ENOMEM);
    assert_string_equal(run_checkpoint(world.run), "/run/old");
    assert_int_equal(run_begin_from(world.run, "/run/older"), 0);
    assert_string_equal(run_checkpoint(world.run), "/run/older");
    assert_int_equal(run_begin_from(world.run, NULL), 0);
    assert_null(run_checkpoint(world.run));
    world_done(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_life),
                                       cmocka_unit_test(where_to_begin_from_is_known_or_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
