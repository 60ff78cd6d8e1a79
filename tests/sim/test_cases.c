/* The simulated engine itself, fault by fault, and the small worlds in which something once went wrong. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "engine/sim.h"

enum { WORKERS = 4, NODES = 2 };

/* Two nodes of two workers each; what is asked of the hooks is set by each test. */
struct case_cluster {
    struct sim *sim;
    nanoseconds start_agent[NODES], start_worker, stop_worker, latency, storage;
    int refusals; /* starts of the last node's agent that fail first */
    int began, published;
    nanoseconds first_began;
    struct buffer course; /* of recorded events */
};

static const uint32_t node_of[WORKERS] = {0, 0, 1, 1};

static nanoseconds start_agent(void *context, uint32_t node) {
    struct case_cluster *cluster = context;
    if (node == NODES - 1 && cluster->refusals-- > 0) return -EAGAIN;
    return cluster->start_agent[node];
}

static nanoseconds start_worker(void *context, uint32_t rank) {
    (void)rank;
    return ((struct case_cluster *)context)->start_worker;
}

static nanoseconds stop_worker(void *context, uint32_t rank) {
    return rank == 0 ? ((struct case_cluster *)context)->stop_worker : 0;
}

static nanoseconds message(void *context, uint32_t node, bool to_agent) {
    (void)node, (void)to_agent;
    return ((struct case_cluster *)context)->latency;
}

static nanoseconds publish(void *context, const struct run_commit *commit) {
    struct case_cluster *cluster = context;
    assert_true(commit->n > 0);
    cluster->published++;
    return cluster->storage;
}

static void began(void *context, uint32_t rank) {
    (void)rank;
    struct case_cluster *cluster = context;
    if (cluster->began++ == 0) cluster->first_began = loop_now(sim_loop(cluster->sim));
}

static void record(void *context, const struct run_event *event) {
    struct case_cluster *cluster = context;
    buffer_printf(&cluster->course, "%lld %s %d %d\n", (long long)event->time, run_event_name(event->kind),
                  event->rank, event->node);
}

static const struct sim_hooks hooks = {.start_agent = start_agent,
                                       .start_worker = start_worker,
                                       .stop_worker = stop_worker,
                                       .message = message,
                                       .publish = publish,
                                       .record = record,
                                       .began = began};

static struct run *open_cluster(struct case_cluster *cluster, struct failure_policy failures) {
    struct run_config config = {.n_workers = WORKERS,
                                .n_nodes = NODES,
                                .node_of = node_of,
                                .failures = failures,
                                .first_attempt = 1,
                                .grace = 5 * NS_PER_S,
                                .start_limit = 60 * NS_PER_S};
    if (cluster->latency == 0) cluster->latency = NS_PER_MS;
    assert_int_equal(sim_create(&config, &hooks, cluster, &cluster->sim, NULL), 0);
    run_start(sim_run(cluster->sim));
    return sim_run(cluster->sim);
}

static void close_cluster(struct case_cluster *cluster) {
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        if (run_state_of(sim_run(cluster->sim)) == RUN_ENDED)
            assert_int_equal(sim_worker_attempt(cluster->sim, rank), 0);
    assert_null(sim_violation(cluster->sim));
    sim_destroy(cluster->sim);
    buffer_done(&cluster->course);
}

static void end_all(struct case_cluster *cluster) {
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        sim_worker_exit(cluster->sim, rank, 0);
    assert_true(sim_step_until(cluster->sim, loop_now(sim_loop(cluster->sim)) + 60 * NS_PER_S));
    assert_int_equal(run_outcome(sim_run(cluster->sim)), OUTCOME_SUCCEEDED);
}

static const struct failure_policy no_retry = {0, 0, 0}, retries = {1, 1, 1};

static void a_run_runs(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, no_retry);
    assert_false(sim_step_until(cluster.sim, NS_PER_S));
    assert_int_equal(cluster.began, WORKERS);
    assert_true(loop_now(sim_loop(cluster.sim)) == NS_PER_S);
    assert_int_equal(run_worker(run, 3)->state, WORKER_STARTED);
    end_all(&cluster);
    close_cluster(&cluster);
}

static void the_same_world_takes_the_same_course(void **state) {
    (void)state;
    struct case_cluster clusters[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        clusters[i].start_worker = 3 * NS_PER_MS;
        (void)open_cluster(&clusters[i], retries);
        (void)sim_step_until(clusters[i].sim, NS_PER_S);
        sim_kill_node(clusters[i].sim, 1, NS_PER_S);
        (void)sim_step_until(clusters[i].sim, 10 * NS_PER_S);
        end_all(&clusters[i]);
    }
    assert_string_equal(clusters[0].course.data, clusters[1].course.data);
    close_cluster(&clusters[0]);
    close_cluster(&clusters[1]);
}

static void a_lost_node_is_noticed_when_it_is_told(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, retries);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_kill_node(cluster.sim, 1, 3 * NS_PER_S);
    assert_false(sim_worker_runs(cluster.sim, 2));
    (void)sim_step_until(cluster.sim, 3 * NS_PER_S);
    assert_int_equal(run_attempt(run), 1);
    (void)sim_step_until(cluster.sim, 5 * NS_PER_S);
    assert_int_equal(run_attempt(run), 2);
    assert_int_equal(cluster.began, 2 * WORKERS);
    end_all(&cluster);
    close_cluster(&cluster);
}

static void a_short_partition_changes_nothing(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_partition(cluster.sim, 1, SIM_CUT_BOTH);
    sim_worker_ready(cluster.sim, 2);
    (void)sim_step_until(cluster.sim, 9 * NS_PER_S);
    assert_int_equal(run_worker(run, 2)->state, WORKER_STARTED);
    sim_partition(cluster.sim, 1, SIM_CUT_NONE);
    (void)sim_step_until(cluster.sim, 60 * NS_PER_S);
    assert_int_equal(run_worker(run, 2)->state, WORKER_READY);
    end_all(&cluster);
    close_cluster(&cluster);
}

/* A stop that does not arrive, a report that does; and the other way round. */
static void a_partition_may_be_one_way(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_partition(cluster.sim, 1, SIM_CUT_TO_AGENT);
    sim_worker_ready(cluster.sim, 2);
    run_interrupt(run, SIGINT);
    (void)sim_step_until(cluster.sim, 2 * NS_PER_S);
    assert_int_equal(run_worker(run, 2)->state, WORKER_READY);
    assert_true(sim_worker_runs(cluster.sim, 2));
    sim_partition(cluster.sim, 1, SIM_CUT_FROM_AGENT);
    (void)sim_step_until(cluster.sim, 3 * NS_PER_S);
    assert_false(sim_worker_runs(cluster.sim, 2));
    assert_int_equal(run_worker(run, 2)->state, WORKER_READY);
    sim_partition(cluster.sim, 1, SIM_CUT_NONE);
    assert_true(sim_step_until(cluster.sim, 20 * NS_PER_S));
    assert_int_equal(run_exit_status(run), 130);
    close_cluster(&cluster);
}

/* The agent gives up before the controller does, and a message of it that comes after that is nobody's. */
static void both_sides_of_a_long_partition_never_work(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, retries);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_partition(cluster.sim, 1, SIM_CUT_BOTH);
    sim_worker_exit(cluster.sim, 3, SIGKILL);
    (void)sim_step_until(cluster.sim, NS_PER_S + SIM_AGENT_PATIENCE + NS_PER_MS);
    assert_false(sim_worker_runs(cluster.sim, 2));
    assert_int_equal(run_attempt(run), 1);
    (void)sim_step_until(cluster.sim, NS_PER_S + SIM_CONTROLLER_PATIENCE + NS_PER_S);
    assert_int_equal(run_node_state(run, 1), NODE_CONNECTING);
    sim_partition(cluster.sim, 1, SIM_CUT_NONE);
    (void)sim_step_until(cluster.sim, 20 * NS_PER_S);
    assert_int_equal(run_attempt(run), 2);
    assert_int_equal(run_worker(run, 3)->state, WORKER_STARTED);
    end_all(&cluster);
    close_cluster(&cluster);
}

static void whoever_disobeys_is_killed_after_the_grace(void **state) {
    (void)state;
    struct case_cluster cluster = {.stop_worker = SIM_DISOBEYS};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    run_interrupt(run, SIGINT);
    assert_false(sim_step_until(cluster.sim, 5 * NS_PER_S));
    assert_true(sim_step_until(cluster.sim, 7 * NS_PER_S));
    assert_int_equal(run_worker_exit(run, 0), 128 + SIGKILL);
    assert_int_equal(run_worker_exit(run, 1), 128 + SIGTERM);
    assert_int_equal(run_exit_status(run), 130);
    close_cluster(&cluster);
}

static void what_cannot_be_killed_goes_with_its_node(void **state) {
    (void)state;
    struct case_cluster cluster = {.stop_worker = SIM_STUCK};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_worker_exit(cluster.sim, 3, SIGSEGV);
    assert_true(sim_step_until(cluster.sim, 60 * NS_PER_S));
    assert_int_equal(run_outcome(run), OUTCOME_FAILED);
    assert_int_equal(run_failure(run)->rank, 3);
    close_cluster(&cluster);
}

/* Nobody takes it for lost while all goes well; no end waits for it. */
static void an_agent_that_stands_still_holds_up_no_end(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_freeze(cluster.sim, 1, true);
    sim_worker_exit(cluster.sim, 2, 0);
    assert_false(sim_step_until(cluster.sim, 600 * NS_PER_S));
    assert_int_equal(run_worker(run, 2)->state, WORKER_STARTED);
    sim_worker_exit(cluster.sim, 0, SIGKILL);
    assert_true(sim_step_until(cluster.sim, 630 * NS_PER_S));
    assert_int_equal(run_outcome(run), OUTCOME_FAILED);
    assert_int_equal(run_failure(run)->rank, 0);
    close_cluster(&cluster);
}

static void an_agent_that_stood_still_goes_on(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_freeze(cluster.sim, 1, true);
    sim_worker_ready(cluster.sim, 2);
    (void)sim_step_until(cluster.sim, 100 * NS_PER_S);
    sim_freeze(cluster.sim, 1, false);
    (void)sim_step_until(cluster.sim, 101 * NS_PER_S);
    assert_int_equal(run_worker(run, 2)->state, WORKER_READY);
    end_all(&cluster);
    close_cluster(&cluster);
}

/* The last checkpoint of a run that succeeds: what it takes until it is in its place. */
static const char *checkpoint_of(nanoseconds storage) {
    static char path[64];
    struct case_cluster cluster = {.storage = storage};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        sim_worker_report(cluster.sim, rank, REPORT_BEGIN, 1);
        sim_worker_report(cluster.sim, rank, REPORT_COMMIT, 1);
    }
    end_all(&cluster);
    assert_int_equal(cluster.published, 1);
    (void)snprintf(path, sizeof path, "%s", run_checkpoint(run) == NULL ? "none" : run_checkpoint(run));
    close_cluster(&cluster);
    return path;
}

static void the_end_waits_for_slow_storage_but_not_for_ever(void **state) {
    (void)state;
    assert_string_equal(checkpoint_of(0), "checkpoint_000001");
    assert_string_equal(checkpoint_of(20 * NS_PER_S), "checkpoint_000001");
    assert_string_equal(checkpoint_of(3600 * NS_PER_S), "none");
}

/* -- what simulation found */

static void no_launch_before_every_hello_of_a_retry(void **state) {
    (void)state;
    struct case_cluster cluster = {.start_agent = {NS_PER_S, 0}, .refusals = 1};
    struct run *run = open_cluster(&cluster, retries);
    (void)sim_step_until(cluster.sim, 10 * NS_PER_S);
    assert_int_equal(run_attempt(run), 2);
    assert_int_equal(cluster.began, WORKERS);
    assert_true(cluster.first_began > NS_PER_S);
    end_all(&cluster);
    close_cluster(&cluster);
}

static void an_agent_that_ends_before_its_workers_began_is_no_success(void **state) {
    (void)state;
    struct case_cluster cluster = {.start_worker = 2 * NS_PER_S};
    struct run *run = open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_end_agent(cluster.sim, 0, -1);
    sim_end_agent(cluster.sim, 1, -1);
    assert_true(sim_step_until(cluster.sim, 60 * NS_PER_S));
    assert_int_equal(cluster.began, 0);
    assert_int_equal(run_outcome(run), OUTCOME_NODE_LOST);
    close_cluster(&cluster);
}

static void a_doubled_report_counts_once(void **state) {
    (void)state;
    struct case_cluster cluster = {0};
    (void)open_cluster(&cluster, no_retry);
    (void)sim_step_until(cluster.sim, NS_PER_S);
    sim_worker_report(cluster.sim, 0, REPORT_BEGIN, 1);
    sim_worker_report(cluster.sim, 0, REPORT_COMMIT, 1);
    for (int i = 0; i < WORKERS; i++)
        sim_worker_report(cluster.sim, 1, REPORT_METRICS, 1);
    (void)sim_step_until(cluster.sim, 2 * NS_PER_S);
    assert_int_equal(cluster.published, 0);
    sim_worker_report(cluster.sim, 2, REPORT_METRICS, 1);
    sim_worker_report(cluster.sim, 3, REPORT_METRICS, 1);
    (void)sim_step_until(cluster.sim, 3 * NS_PER_S);
    assert_int_equal(cluster.published, 1);
    end_all(&cluster);
    close_cluster(&cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_runs),
        cmocka_unit_test(the_same_world_takes_the_same_course),
        cmocka_unit_test(a_lost_node_is_noticed_when_it_is_told),
        cmocka_unit_test(a_short_partition_changes_nothing),
        cmocka_unit_test(a_partition_may_be_one_way),
        cmocka_unit_test(both_sides_of_a_long_partition_never_work),
        cmocka_unit_test(whoever_disobeys_is_killed_after_the_grace),
        cmocka_unit_test(what_cannot_be_killed_goes_with_its_node),
        cmocka_unit_test(an_agent_that_stands_still_holds_up_no_end),
        cmocka_unit_test(an_agent_that_stood_still_goes_on),
        cmocka_unit_test(the_end_waits_for_slow_storage_but_not_for_ever),
        cmocka_unit_test(no_launch_before_every_hello_of_a_retry),
        cmocka_unit_test(an_agent_that_ends_before_its_workers_began_is_no_success),
        cmocka_unit_test(a_doubled_report_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
