/* Every input in every state of a run, and every two events: whatever they are, and however far the run
 * comes between them, the run goes on to an end, and neither its time limit nor an interrupt is lost. The
 * workers of these runs fail for ever, and may do so for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "run/internal.h"
#include "run_world.h"

enum { N_NODES = WORLD_NODES, STEPS_BETWEEN = 4, STEPS_MAX = 500, NO_RANK = -1 };

struct course {
    struct world world;
    bool deaf;        /* workers that are told to stop do not: their node is ended by force */
    bool out_of_time; /* the limit passed, and */
    bool interrupted; /* an interrupt came, before the run was over */
    char story[256];  /* for the message of a failure */
};

static const struct failure_policy FOR_EVER = {
    .max_failures = -1, .controller_failure_limit = -1, .max_preemption_failures = -1};

/* How often an entry of the table was looked up. */
static uint64_t visits[RUN_INPUTS][RUN_STATE_COUNT];

void __real_run_take(struct run *run, const struct run_input *input);
void __wrap_run_take(struct run *run, const struct run_input *input);

void __wrap_run_take(struct run *run, const struct run_input *input) {
    visits[input->kind][run->state]++;
    __real_run_take(run, input);
}

/* -- how the run comes into each state */

static void come_up(struct world *world) {
    for (uint32_t node = 0; node < N_NODES; node++)
        run_node_up(world->run, node, NULL);
}

static void run_workers(struct world *world) {
    run_start(world->run);
    come_up(world);
    start_workers(world);
}

/* The attempt of a controller before this one, whose workers had made two reports. */
static void adopt(struct run *run) {
    struct run_worker workers[WORLD_WORKERS];
    for (uint32_t rank = 0; rank < WORLD_WORKERS; rank++)
        workers[rank] = (struct run_worker){.state = WORKER_STARTED, .pid = 100, .reports = 2};
    run_adopt(run, &(struct run_adoption){.report_base = 0, .workers = workers});
}

static void run_adopted(struct world *world) {
    adopt(world->run);
}

static void fail_attempt(struct world *world) {
    int attempt = run_attempt(world->run);
    for (uint32_t rank = 0; rank < run_size(world->run) && run_attempt(world->run) == attempt; rank++)
        end_worker(world, rank, 1 << 8, false);
}

static void stay_idle(struct world *world) {
    (void)world;
}

static void begin(struct world *world) {
    run_start(world->run);
}

static void stop_after_a_failure(struct world *world) {
    run_workers(world);
    run_worker_exited(world->run, 1, &(struct run_exit){.wait_status = 1 << 8, .time = 1});
}

static void hang(struct world *world) {
    run_workers(world);
    run_worker_hung(world->run, 1, "silence", 1);
}

static void leave_node(struct world *world) {
    run_workers(world);
    run_node_leaving(world->run, 0, 15, 1);
}

static void begin_checkpoint(struct world *world) {
    world->publish_later = true;
    run_workers(world);
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        report(world, rank, rank == 0 ? REPORT_BEGIN : REPORT_METRICS, 1, NULL, 0);
    report(world, 0, REPORT_COMMIT, 1, "[]", 1);
}

static void await_commit(struct world *world) {
    begin_checkpoint(world);
    fail_attempt(world);
    assert_true(run_awaits_commit(world->run));
}

static void complete(struct world *world) {
    begin_checkpoint(world);
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        end_worker(world, rank, 0, false);
    assert_true(run_awaits_commit(world->run));
}

static void pause_after_failures(struct world *world) {
    run_workers(world);
    fail_attempt(world);
    come_up(world);
    start_workers(world);
    fail_attempt(world);
    assert_int_equal(run_state_of(world->run), RUN_PAUSING);
}

static void check_checkpoint(struct world *world) {
    world->checks = true;
    run_workers(world);
    fail_attempt(world);
    assert_true(run_checks(world->run));
}

static void check_in_a_pause(struct world *world) {
    world->checks = true;
    run_workers(world);
    fail_attempt(world);
    run_checked(world->run);
    come_up(world);
    start_workers(world);
    fail_attempt(world);
    assert_true(run_checks(world->run) && world->timers[TIMER_PAUSE] > 0);
}

static void stop_for_another_size(struct world *world) {
    run_workers(world);
    world->room[2] = 2;
    pass(world, TIMER_RESIZE);
    come_up(world);
    pass(world, TIMER_RESIZE);
    assert_int_equal(run_state_of(world->run), RUN_STOPPING);
}

static void wait_for_room(struct world *world) {
    run_workers(world);
    memset(world->room, 0, sizeof world->room);
    fail_attempt(world);
    assert_int_equal(run_state_of(world->run), RUN_PAUSING);
}

static void finish(struct world *world) {
    run_workers(world);
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        end_worker(world, rank, 0, false);
}

static void end(struct world *world) {
    finish(world);
    for (uint32_t node = 0; node < N_NODES; node++)
        run_node_bye(world->run, node, true, 0);
}

static const struct start {
    const char *name;
    bool elastic;
    enum run_state state;
    void (*come)(struct world *world);
} starts[] = {
    {"idle", false, RUN_IDLE, stay_idle},
    {"starting", false, RUN_STARTING, begin},
    {"running", false, RUN_RUNNING, run_workers},
    {"adopted", false, RUN_RUNNING, run_adopted},
    {"adopted, elastic", true, RUN_RUNNING, run_adopted},
    {"hanging", false, RUN_HANGING, hang},
    {"with a checkpoint", false, RUN_RUNNING, begin_checkpoint},
    {"elastic", true, RUN_RUNNING, run_workers},
    {"stopping", false, RUN_STOPPING, stop_after_a_failure},
    {"leaving", false, RUN_STOPPING, leave_node},
    {"stopping for another size", true, RUN_STOPPING, stop_for_another_size},
    {"committing", false, RUN_COMMITTING, await_commit},
    {"completing", false, RUN_COMPLETING, complete},
    {"pausing", false, RUN_PAUSING, pause_after_failures},
    {"checking", false, RUN_CHECKING, check_checkpoint},
    {"resting", false, RUN_RESTING, check_in_a_pause},
    {"waiting for room", true, RUN_WAITING, wait_for_room},
    {"finishing", false, RUN_FINISHING, finish},
    {"ended", false, RUN_ENDED, end},
};

/* -- what may happen to it */

enum event {
    /* those of the run's timers come first: a timer that is not set does not fire */
    NODE_LOSS = RUN_TIMERS,
    NODE_LEAVES,
    WORKER_FAILS,
    WORKER_CRASHES,
    WORKER_SUCCEEDS,
    WORKER_HANGS,
    ROOM_COMES,
    COMMITTED,
    CHECKED,
    INTERRUPT,
    PREEMPT,
    EVENTS
};

static int find_worker(const struct world *world, bool started) {
    for (uint32_t rank = 0; rank < run_size(world->run); rank++) {
        enum worker_state state = run_worker(world->run, rank)->state;
        if (state == WORKER_STARTED || (!started && (state == WORKER_LAUNCHED || state == WORKER_EXITED)))
            return (int)rank;
    }
    return NO_RANK;
}

static void end_any(struct world *world, int wait_status) {
    int rank = find_worker(world, true);
    if (rank != NO_RANK) end_worker(world, (uint32_t)rank, wait_status, false);
}

static void happen(struct course *course, int event) {
    struct world *world = &course->world;
    struct run *run = world->run;
    bool over = run_state_of(run) >= RUN_FINISHING;
    size_t length = strlen(course->story);
    (void)snprintf(course->story + length, sizeof course->story - length, ", %d in %s", event,
                   run_state_name(run_state_of(run)));
    if (event < RUN_TIMERS && world->timers[event] < 0) return;
    course->out_of_time |= event == TIMER_LIMIT && !over;
    course->interrupted |= (event == INTERRUPT || event == PREEMPT) && !over;
    switch (event) {
    case NODE_LOSS:
        run_node_lost(run, 1, "gone");
        break;
    case NODE_LEAVES:
        run_node_leaving(run, 0, 15, 1);
        break;
    case WORKER_FAILS:
        end_any(world, 3 << 8);
        break;
    case WORKER_CRASHES:
        end_any(world, 11);
        break;
    case WORKER_SUCCEEDS:
        end_any(world, 0);
        break;
    case WORKER_HANGS:
        run_worker_hung(run, 0, "silence", 1);
        break;
    case ROOM_COMES:
        for (uint32_t node = 0; node < N_NODES; node++)
            world->room[node] = 2;
        run_room_changed(run);
        break;
    case COMMITTED:
        run_published(run, 1, NULL, "lost");
        break;
    case CHECKED:
        run_checked(run);
        break;
    case INTERRUPT:
        run_interrupt(run, 2);
        break;
    case PREEMPT:
        run_preempt(run, 15);
        break;
    default:
        pass(world, (enum run_timer)event);
    }
}

/* -- how it goes on by itself */

static bool nodes_answer(struct world *world) {
    for (uint32_t node = 0; node < N_NODES; node++) {
        enum node_state state = run_node_state(world->run, node);
        if (state == NODE_CONNECTING)
            run_node_up(world->run, node, NULL);
        else if (state == NODE_FINISHING)
            run_node_bye(world->run, node, true, 0);
        else
            continue;
        return true;
    }
    return false;
}

static bool workers_act(struct course *course) {
    struct world *world = &course->world;
    int rank = find_worker(world, false);
    bool stopping = run_state_of(world->run) == RUN_STOPPING;
    bool steady = course->out_of_time || course->interrupted; /* whoever is not told works for ever */
    if (rank == NO_RANK || (stopping ? course->deaf : steady)) return false;
    switch (run_worker(world->run, (uint32_t)rank)->state) {
    case WORKER_LAUNCHED:
        run_worker_started(world->run, (uint32_t)rank, 100, 1);
        break;
    case WORKER_EXITED:
        run_worker_gone(world->run, (uint32_t)rank, 1);
        break;
    default:
        end_worker(world, (uint32_t)rank, stopping ? 15 : 1 << 8, stopping);
    }
    return true;
}

/* Where nobody does anything, the timer that is due first fires; the limit when it is told to. */
static bool time_passes(struct world *world) {
    int next = -1;
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        if (timer != TIMER_LIMIT && world->timers[timer] >= 0 &&
            (next < 0 || world->timers[timer] < world->timers[next]))
            next = timer;
    if (next >= 0) pass(world, (enum run_timer)next);
    return next >= 0;
}

static void go_on(struct course *course, int steps) {
    struct world *world = &course->world;
    if (steps > 0) run_start(world->run);
    for (int i = 0; i < steps && !world->ended; i++) {
        bool moved = nodes_answer(world) || workers_act(course) || time_passes(world);
        forget_log(world);
        buffer_clear(&world->reasons);
        if (!moved && !world->ended) fail_msg("stands still:%s", course->story);
    }
}

static void open_course(struct course *course, const struct start *start, bool deaf) {
    *course = (struct course){.deaf = deaf};
    (void)snprintf(course->story, sizeof course->story, " %s%s", start->name, deaf ? ", deaf" : "");
    world_init(&course->world);
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        course->world.timers[timer] = -1;
    int result = start->elastic ? world_open_elastic(&course->world, (uint32_t[]){2, 2, 0}, &FOR_EVER, NULL)
                                : world_open(&course->world, 4, N_NODES, &FOR_EVER);
    assert_int_equal(result, 0);
    course->world.quiet = true;
    start->come(&course->world);
    assert_int_equal(course->world.run->state, start->state);
    forget_log(&course->world);
}

static void expect_end(const struct course *course) {
    enum run_outcome outcome = run_outcome(course->world.run);
    if (!course->world.ended) fail_msg("has no end:%s", course->story);
    bool interrupted = outcome == OUTCOME_INTERRUPTED || outcome == OUTCOME_PREEMPTED;
    if (course->interrupted ? !interrupted : course->out_of_time && outcome != OUTCOME_TIME_LIMIT)
        fail_msg("%s:%s", run_outcome_name(outcome), course->story);
}

static void take_course(const struct start *start, bool deaf, const int events[2], const int steps[2]) {
    struct course course;
    open_course(&course, start, deaf);
    for (int i = 0; i < 2; i++) {
        happen(&course, events[i]);
        go_on(&course, steps[i]);
    }
    run_start(course.world.run); /* one that is idle: others have begun */
    if (!course.interrupted && !course.out_of_time) happen(&course, TIMER_LIMIT);
    go_on(&course, STEPS_MAX);
    expect_end(&course);
    world_done(&course.world);
}

static void every_two_events_in_every_state_come_to_an_end(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
        for (int n = 0; n < EVENTS * EVENTS * STEPS_BETWEEN * STEPS_BETWEEN * 2; n++) {
            int rest = n / 2;
            int events[] = {rest % EVENTS, rest / EVENTS % EVENTS};
            rest /= EVENTS * EVENTS;
            int steps[] = {rest % STEPS_BETWEEN, rest / STEPS_BETWEEN};
            take_course(&starts[i], n % 2, events, steps);
        }
}

/* -- every input */

static void break_device(struct run *run, uint32_t node) {
    const struct idset nobody = {0};
    const struct event_hardware told = {.fault = "xid", .device = 0, .code = 79, .cause = "Xid 79"};
    run_device_fault(run, &(struct run_fault){node, RUN_FAULT_OF_HARDWARE, &told, &nobody, 1});
}

/* From outside, whether the run can have expected it or not: timers that are not set, nodes that are not
 * there. `which`: of a node or a rank. */
static void put_in(struct run *run, enum run_input_kind kind, uint32_t which) {
    switch (kind) {
    case INPUT_START:
        run_start(run);
        break;
    case INPUT_ADOPT:
        adopt(run);
        break;
    case INPUT_NODE_UP:
        run_node_up(run, which, NULL);
        break;
    case INPUT_NODE_LOST:
        run_node_lost(run, which, "gone");
        break;
    case INPUT_LEAVING:
        run_node_leaving(run, which, 15, 1);
        break;
    case INPUT_BYE:
        run_node_bye(run, which, true, 0);
        break;
    case INPUT_UNCLEAN:
        run_node_unclean(run, which);
        break;
    case INPUT_STARTED:
        run_worker_started(run, which, 100, 1);
        break;
    case INPUT_READY:
        run_worker_ready(run, which, 1);
        break;
    case INPUT_RENDEZVOUS:
        run_worker_rendezvous(run, which, 1);
        break;
    case INPUT_EXITED:
        run_worker_exited(run, which, &(struct run_exit){.wait_status = 3 << 8, .time = 1});
        break;
    case INPUT_NOT_STARTED:
        run_worker_start_failed(run, which,
                                &(struct run_start_failure){.why = "no memory", .transient = true, .time = 1});
        break;
    case INPUT_GONE:
        run_worker_gone(run, which, 1);
        break;
    case INPUT_HUNG:
        run_worker_hung(run, which, "silence", 1);
        break;
    case INPUT_STACKS:
        run_node_stacks(run, which, "main", 4);
        break;
    case INPUT_FAULT:
        break_device(run, which);
        break;
    case INPUT_REPORT:
        run_report(run, &(struct run_report){.rank = which, .kind = REPORT_METRICS, .number = 2});
        break;
    case INPUT_PUBLISHED:
        run_published(run, 1, strdup("/run/checkpoint-1"), NULL);
        break;
    case INPUT_CHECKED:
        run_checked(run);
        break;
    case INPUT_ROOM:
        run_room_changed(run);
        break;
    case INPUT_INTERRUPT:
        run_interrupt(run, 2);
        break;
    case INPUT_QUIT:
        run_quit(run, 3);
        break;
    default:
        run_timer_fired(run, (enum run_timer)kind);
    }
}

static void take_input(const struct start *start, bool deaf, enum run_input_kind kind, uint32_t which) {
    struct course course;
    open_course(&course, start, deaf);
    bool open = course.world.run->state < RUN_FINISHING;
    size_t length = strlen(course.story);
    (void)snprintf(course.story + length, sizeof course.story - length, ", input %d of %u", kind, which);
    course.interrupted = (kind == INPUT_INTERRUPT || kind == INPUT_QUIT) && open;
    course.out_of_time = kind == (enum run_input_kind)TIMER_LIMIT && open && start->state != RUN_IDLE;
    put_in(course.world.run, kind, which);
    run_start(course.world.run);
    if (!course.interrupted && !course.out_of_time) happen(&course, TIMER_LIMIT);
    go_on(&course, STEPS_MAX);
    expect_end(&course);
    world_done(&course.world);
}

static void every_input_in_every_state_comes_to_an_end(void **state) {
    (void)state;
    memset(visits, 0, sizeof visits);
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
        for (int n = 0; n < RUN_INPUTS * N_NODES * 2; n++)
            take_input(&starts[i], n % 2, (enum run_input_kind)(n / 2 % RUN_INPUTS), n / 2 / RUN_INPUTS);
    for (int input = 0; input < RUN_INPUTS; input++)
        for (int in = 0; in < RUN_STATE_COUNT; in++)
            if (visits[input][in] == 0)
                fail_msg("no input %d came while a run was %s", input, run_state_name((enum run_state)in));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_input_in_every_state_comes_to_an_end),
        cmocka_unit_test(every_two_events_in_every_state_come_to_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
