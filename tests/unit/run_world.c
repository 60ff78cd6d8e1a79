/* The ops of run_world.h and what workers and nodes say. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Room for every log, taken beforehand: the world itself is never short of memory. */
enum { LOG_ROOM = 1 << 16 };

static nanoseconds wall(void *context) {
    return 1000 + ((struct world *)context)->now;
}

static nanoseconds now(void *context) {
    return ((struct world *)context)->now;
}

static uint64_t random_number(void *context) {
    (void)context;
    return 0; /* whole pauses */
}

static int start_node(void *context, uint32_t node, ty_error *err) {
    struct world *world = context;
    buffer_printf(&world->log, " start%u", node);
    return (world->unstartable >> node & 1) != 0 ? ty_fail(err, world->start_code, "no agent here") : 0;
}

static int launch(void *context, uint32_t node, int attempt, ty_error *err) {
    struct world *world = context;
    buffer_printf(&world->log, " launch%u.%d", node, attempt);
    return (int)node == world->fail_launch ? ty_fail_memory(err) : 0;
}

static void stop(void *context, uint32_t node, bool kill, const char *reason) {
    assert_true(reason[0] != '\0');
    buffer_printf(&((struct world *)context)->log, " %s%u", kill ? "kill" : "stop", node);
}

static void stacks(void *context, uint32_t node) {
    buffer_printf(&((struct world *)context)->log, " stacks%u", node);
}

static void finish(void *context, uint32_t node) {
    buffer_printf(&((struct world *)context)->log, " finish%u", node);
}

static void abandon(void *context, uint32_t node) {
    buffer_printf(&((struct world *)context)->log, " abandon%u", node);
}

static void set_timer(void *context, enum run_timer timer, nanoseconds delay) {
    ((struct world *)context)->timers[timer] = delay;
}

static void record(void *context, const struct run_event *event) {
    struct world *world = context;
    assert_true(event->time > 0);
    bool tells = event->kind == EVENT_ATTEMPT || event->kind == EVENT_WAIT ||
                 event->kind == EVENT_ATTEMPT_END || event->kind == EVENT_CHECKPOINT_LATE;
    if (!tells) return;
    run_event_encode(event, &world->reasons);
    buffer_char(&world->reasons, ' ');
}

/* By vasprintf, which no test makes fail. */
static char *make_path(const char *format, ...) {
    char *path = NULL;
    va_list args;
    va_start(args, format);
    assert_true(vasprintf(&path, format, args) > 0);
    va_end(args);
    return path;
}

static void log_commit(struct world *world, const struct run_commit *commit) {
    buffer_printf(&world->log, " publish%llu.%d(", (unsigned long long)commit->number, commit->attempt);
    for (size_t i = 0; i < commit->n; i++)
        buffer_printf(&world->log, "%s%s", i > 0 ? "," : "", commit->files[i]);
    if (commit->name != NULL) buffer_printf(&world->log, " as %s", commit->name);
    buffer_text(&world->log, ")");
}

static int publish(void *context, const struct run_commit *commit, char **path, ty_error *err) {
    struct world *world = context;
    if (!world->quiet) log_commit(world, commit);
    if (world->publish_later) return 1;
    if (world->fail_publish) return ty_fail(err, -28, "disk full");
    *path = make_path("/run/checkpoint-%llu", (unsigned long long)commit->number);
    return 0;
}

static int settle(void *context, uint64_t number, char **path, ty_error *err) {
    struct world *world = context;
    if (!world->quiet) buffer_printf(&world->log, " settle%llu", (unsigned long long)number);
    if (world->fail_publish) return ty_fail(err, -110, "the storage hangs");
    *path = make_path("/run/checkpoint-%llu", (unsigned long long)number);
    return 0;
}

static bool check(void *context) {
    struct world *world = context;
    if (world->checks) buffer_text(&world->log, " check");
    return world->checks;
}

static void discard(void *context, uint64_t number, int attempt) {
    struct world *world = context;
    if (!world->quiet) buffer_printf(&world->log, " discard%llu.%d", (unsigned long long)number, attempt);
}

static void answer(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                   const char *error) {
    (void)node;
    struct world *world = context;
    assert_true((path == NULL) != (error == NULL));
    if (error != NULL) (void)snprintf(world->refusal, sizeof world->refusal, "%s", error);
    if (world->quiet) return;
    buffer_printf(&world->log, " %s%u.%llu", path != NULL ? "ok" : "error", channel,
                  (unsigned long long)number);
}

static void list(void *context, uint32_t node, uint32_t channel) {
    (void)node;
    struct world *world = context;
    if (!world->quiet) buffer_printf(&world->log, " list%u", channel);
}

/* Fills the nodes one after the other. */
static void layout(void *context, unsigned flags, struct run_layout *layout) {
    struct world *world = context;
    bool claim = (flags & LAYOUT_CLAIM) != 0;
    uint32_t *node_of = world->layouts[claim], n = 0;
    for (uint32_t node = 0; node < WORLD_NODES; node++) {
        if ((flags & LAYOUT_LOST_TOO) == 0 && run_node_state(world->run, node) == NODE_LOST) continue;
        for (uint32_t i = 0; i < world->room[node] && n < WORLD_MOST; i++)
            node_of[n++] = node;
    }
    *layout =
        (struct run_layout){.n_workers = n < WORLD_LEAST ? 0 : n, .n_nodes = WORLD_NODES, .node_of = node_of};
    if (n < WORLD_LEAST) (void)snprintf(layout->why, sizeof layout->why, "room for %u", n);
}

static void ended(void *context) {
    struct world *world = context;
    assert_false(world->ended);
    world->ended = true;
}

static const struct run_ops ops = {.wall = wall,
                                   .now = now,
                                   .random = random_number,
                                   .start_node = start_node,
                                   .launch = launch,
                                   .stop = stop,
                                   .stacks = stacks,
                                   .finish = finish,
                                   .abandon = abandon,
                                   .set_timer = set_timer,
                                   .record = record,
                                   .publish = publish,
                                   .settle = settle,
                                   .discard = discard,
                                   .check = check,
                                   .answer = answer,
                                   .list = list,
                                   .layout = layout,
                                   .ended = ended};

void world_init(struct world *world) {
    *world = (struct world){.start_code = TY_ESTART, .fail_launch = -1};
    assert_non_null(buffer_reserve(&world->log, LOG_ROOM));
    assert_non_null(buffer_reserve(&world->reasons, LOG_ROOM));
}

int world_open(struct world *world, uint32_t n_workers, uint32_t n_nodes,
               const struct failure_policy *failures) {
    for (uint32_t i = 0; i < n_workers; i++)
        world->node_of[i] = i * n_nodes / n_workers;
    struct run_config config = {.n_workers = n_workers,
                                .n_nodes = n_nodes,
                                .node_of = world->node_of,
                                .failures = *failures,
                                .first_attempt = 1,
                                .time_limit = 60 * NS_PER_S,
                                .grace = WORLD_GRACE,
                                .start_limit = 30 * NS_PER_S};
    return run_create(&config, &ops, world, &world->run, NULL);
}

int world_open_elastic(struct world *world, const uint32_t room[WORLD_NODES],
                       const struct failure_policy *failures, const char *checkpoint) {
    uint32_t n_workers = 0, n_nodes = 0;
    memcpy(world->room, room, sizeof world->room);
    for (uint32_t node = 0; node < WORLD_NODES; node++) {
        for (uint32_t i = 0; i < room[node]; i++)
            world->node_of[n_workers++] = node;
        n_nodes += room[node] > 0;
    }
    struct run_config config = {.n_workers = n_workers,
                                .n_nodes = n_nodes,
                                .node_of = world->node_of,
                                .max_workers = WORLD_MOST,
                                .max_nodes = WORLD_NODES,
                                .resize_interval = WORLD_INTERVAL,
                                .failures = *failures,
                                .first_attempt = 1,
                                .time_limit = 3600 * NS_PER_S,
                                .grace = WORLD_GRACE,
                                .start_limit = 30 * NS_PER_S,
                                .checkpoint = checkpoint};
    return run_create(&config, &ops, world, &world->run, NULL);
}

void world_done(struct world *world) {
    run_destroy(world->run);
    buffer_done(&world->log);
    buffer_done(&world->reasons);
}

void expect(struct world *world, const char *log) {
    assert_string_equal(world->log.data, log);
    buffer_clear(&world->log);
}

void forget_log(struct world *world) {
    buffer_clear(&world->log);
}

void start_workers(struct world *world) {
    for (uint32_t rank = 0; rank < run_size(world->run); rank++)
        run_worker_started(world->run, rank, 100 + (int)rank, 1);
}

void end_worker(struct world *world, uint32_t rank, int wait_status, bool stopped) {
    run_worker_exited(world->run, rank,
                      &(struct run_exit){.wait_status = wait_status, .stopped = stopped, .time = 1});
    run_worker_gone(world->run, rank, 1);
}

void report(struct world *world, uint32_t rank, enum report_kind kind, uint64_t number, const char *files,
            uint32_t channel) {
    run_report(world->run, &(struct run_report){.rank = rank,
                                                .kind = kind,
                                                .number = number,
                                                .files = files,
                                                .size = files == NULL ? 0 : strlen(files),
                                                .channel = channel});
}

void pass(struct world *world, enum run_timer timer) {
    assert_true(world->timers[timer] >= 0);
    world->now += world->timers[timer];
    world->timers[timer] = -1;
    run_timer_fired(world->run, timer);
}
