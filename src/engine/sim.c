/* The controller's side of the simulated engine: the ops that a run asks for, and what its agents say. It does
 * what the controller does with the run's state machine, without storage, sockets or processes; the other side,
 * nodes and workers, is in sim_agent.c. */
#include "engine/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "engine/sim_internal.h"

/* Wall time is the virtual time, a day after the epoch. */
static const nanoseconds EPOCH = 86400 * NS_PER_S;

static nanoseconds now(void *context) {
    return loop_now(((struct sim *)context)->loop);
}

static nanoseconds wall(void *context) {
    return EPOCH + now(context);
}

static uint64_t random_number(void *context) {
    struct sim *sim = context;
    return sim->hooks->random == NULL ? 0 : sim->hooks->random(sim->context);
}

static int start_node(void *context, uint32_t node, ty_error *err) {
    struct sim *sim = context;
    int result = sim_agent_start(&sim->agents[node]);
    return result < 0 ? ty_fail(err, result, "the agent of node %u cannot be started", node) : 0;
}

static void send_to(struct sim *sim, uint32_t node, struct sim_message message) {
    struct sim_agent *agent = &sim->agents[node];
    if (!agent->open) return;
    message.node = node;
    message.life = agent->life;
    sim_send(sim, &message);
}

static int launch(void *context, uint32_t node, int attempt, ty_error *err) {
    struct sim *sim = context;
    int result = sim->hooks->launch == NULL ? 0 : sim->hooks->launch(sim->context, node);
    if (result < 0) return ty_fail(err, result, "node %u takes no launch", node);
    if (sim->agents[node].n_alive > 0) sim->violation = "a launch where a worker of an earlier attempt lives";
    send_to(sim, node, (struct sim_message){.kind = SIM_LAUNCH, .attempt = attempt});
    return 0;
}

static void stop(void *context, uint32_t node, bool kill, const char *reason) {
    (void)reason;
    struct sim *sim = context;
    send_to(sim, node, (struct sim_message){.kind = SIM_STOP, .attempt = run_attempt(sim->run), .flag = kill});
}

static void save_stacks(void *context, uint32_t node) {
    send_to(context, node, (struct sim_message){.kind = SIM_SAVE_STACKS});
}

static void finish(void *context, uint32_t node) {
    send_to(context, node, (struct sim_message){.kind = SIM_FINISH});
}

static void close_channel(struct sim *sim, uint32_t node) {
    sim->agents[node].open = false;
    loop_timer_stop(sim->loop, &sim->agents[node].loss);
}

static void abandon(void *context, uint32_t node) {
    struct sim *sim = context;
    close_channel(sim, node);
    sim_agent_die(&sim->agents[node]);
}

static void set_timer(void *context, enum run_timer timer, nanoseconds delay) {
    struct sim *sim = context;
    if (delay < 0)
        loop_timer_stop(sim->loop, &sim->timers[timer].handle);
    else if (loop_timer_start(sim->loop, &sim->timers[timer].handle, delay) < 0)
        sim->out_of_memory = true;
}

/* The journal is synchronised before the controller goes on, so a slow disk is a busy controller: timers and
 * what the storage has done are put off until then. */
static void record(void *context, const struct run_event *event) {
    struct sim *sim = context;
    if (sim->hooks->record != NULL) sim->hooks->record(sim->context, event);
    nanoseconds synced = loop_now(sim->loop) + (sim->hooks->sync != NULL ? sim->hooks->sync(sim->context) : 0);
    if (synced > sim->busy_until) sim->busy_until = synced;
}

/* What was written is in its place, or fails there. */
static int place(struct sim *sim, uint64_t number, char **path, ty_error *err) {
    struct buffer name = {0};
    buffer_printf(&name, "checkpoint_%06llu", (unsigned long long)number);
    *path = buffer_take(&name);
    if (*path == NULL) return ty_fail_memory(err);
    if (sim->hooks->placed == NULL || sim->hooks->placed(sim->context, number)) return 0;
    free(*path);
    *path = NULL;
    return ty_fail(err, -EIO, "the simulated disk fails");
}

static int publish(void *context, const struct run_commit *commit, char **path, ty_error *err) {
    struct sim *sim = context;
    nanoseconds takes = sim->hooks->publish == NULL ? 0 : sim->hooks->publish(sim->context, commit);
    if (takes < 0) return ty_fail(err, -ENOSPC, "no space left on the simulated disk");
    if (takes == 0) return place(sim, commit->number, path, err);
    if (sim->publishing != 0) sim->violation = "a checkpoint is put into its place beside another one";
    sim->publishing = commit->number;
    if (loop_timer_start(sim->loop, &sim->published, takes) < 0) sim->out_of_memory = true;
    return 1;
}

/* The storage has not done it, and it is waited for no longer. */
static int settle(void *context, uint64_t number, char **path, ty_error *err) {
    struct sim *sim = context;
    (void)number, (void)path;
    sim->publishing = 0;
    loop_timer_stop(sim->loop, &sim->published);
    return ty_fail(err, -ETIMEDOUT, "the simulated disk hangs");
}

static bool check(void *context) {
    struct sim *sim = context;
    nanoseconds takes = sim->hooks->check == NULL ? 0 : sim->hooks->check(sim->context);
    if (takes > 0 && loop_timer_start(sim->loop, &sim->checked, takes) < 0) sim->out_of_memory = true;
    return takes > 0;
}

static void discard(void *context, uint64_t number, int attempt) {
    (void)context, (void)number, (void)attempt;
}

static void answer(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                   const char *error) {
    (void)error;
    send_to(
        context, node,
        (struct sim_message){.kind = SIM_COMMITTED, .rank = channel, .number = number, .flag = path != NULL});
}

static void list(void *context, uint32_t node, uint32_t channel) {
    send_to(context, node, (struct sim_message){.kind = SIM_LISTED, .rank = channel});
}

/* Gathers the ranks of each node. */
static void sort_ranks(struct sim *sim) {
    const struct run_config *config = &sim->config;
    memset(sim->first_of, 0, (config->n_nodes + 1) * sizeof *sim->first_of);
    for (uint32_t rank = 0; rank < config->n_workers; rank++)
        sim->first_of[config->node_of[rank] + 1]++;
    for (uint32_t node = 0; node < config->n_nodes; node++)
        sim->first_of[node + 1] += sim->first_of[node];
    for (uint32_t rank = 0; rank < config->n_workers; rank++) {
        /* A counter until the end of this function. */
        uint32_t *at = &sim->agents[config->node_of[rank]].n_alive;
        sim->ranks[sim->first_of[config->node_of[rank]] + (*at)++] = rank;
    }
    for (uint32_t node = 0; node < config->n_nodes; node++)
        sim->agents[node].n_alive = 0;
}

static void layout(void *context, unsigned flags, struct run_layout *layout) {
    struct sim *sim = context;
    *layout = (struct run_layout){.n_nodes = sim->config.n_nodes};
    layout->n_workers = sim->hooks->layout(sim->context, flags, &layout->node_of);
    if (layout->n_workers == 0) (void)snprintf(layout->why, sizeof layout->why, "too few fit");
    if (layout->n_workers == 0 || (flags & LAYOUT_CLAIM) == 0) return;
    for (uint32_t node = 0; node < sim->config.n_nodes; node++)
        if (sim->agents[node].n_alive > 0)
            sim->violation = "another size while a worker of an earlier attempt lives";
    sim->config.n_workers = layout->n_workers;
    sim->config.node_of = layout->node_of;
    sort_ranks(sim);
}

static void ended(void *context) {
    struct sim *sim = context;
    for (uint32_t node = 0; node < sim->config.n_nodes; node++)
        if (sim->agents[node].alive) sim->violation = "the run has ended, and an agent of it lives";
}

static const struct run_ops sim_ops = {
    .wall = wall,
    .now = now,
    .random = random_number,
    .start_node = start_node,
    .launch = launch,
    .stop = stop,
    .stacks = save_stacks,
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
    .ended = ended,
};

/* A controller that is busy hears of it later. */
static bool put_off(struct sim *sim, struct loop_timer *timer) {
    nanoseconds busy = sim->busy_until - loop_now(sim->loop);
    if (busy > 0 && loop_timer_start(sim->loop, timer, busy) < 0) sim->out_of_memory = true;
    return busy > 0;
}

static void on_timer(void *context) {
    struct run_timer_slot *slot = context;
    if (!put_off(slot->sim, &slot->handle)) run_timer_fired(slot->sim->run, slot->timer);
}

static void on_published(void *context) {
    struct sim *sim = context;
    if (put_off(sim, &sim->published)) return;
    ty_error err = {0};
    char *path = NULL;
    uint64_t number = sim->publishing;
    sim->publishing = 0;
    (void)place(sim, number, &path, &err);
    run_published(sim->run, number, path, err.message);
}

static void on_checked(void *context) {
    struct sim *sim = context;
    if (!put_off(sim, &sim->checked)) run_checked(sim->run);
}

static void hear_report(struct sim *sim, const struct sim_message *message) {
    char files[16];
    bool has_files = message->status == REPORT_COMMIT || message->status == REPORT_ABORT;
    int size = has_files ? snprintf(files, sizeof files, "[%u]", message->rank) : 0;
    run_report(sim->run, &(struct run_report){.rank = message->rank,
                                              .kind = (enum report_kind)message->status,
                                              .number = message->number,
                                              .files = files,
                                              .size = (size_t)size,
                                              .channel = message->rank});
}

/* Whoever reads a stream never sees words of an attempt behind the launch of the next: a worker's late or
 * doubled ones end here. Those of reports are known by their numbers. */
void sim_controller_hear(struct sim *sim, const struct sim_message *message) {
    const struct sim_agent *agent = &sim->agents[message->node];
    nanoseconds time = wall(sim);
    if (!agent->open || agent->life != message->life) return;
    bool of_worker = message->kind >= SIM_STARTED && message->kind <= SIM_GONE;
    if (of_worker && message->attempt != run_attempt(sim->run)) return;
    switch (message->kind) {
    case SIM_HELLO:
        run_node_up(sim->run, message->node, NULL);
        break;
    case SIM_STARTED:
        run_worker_started(sim->run, message->rank, (int)message->rank + 1, time);
        break;
    case SIM_READY:
        run_worker_ready(sim->run, message->rank, time);
        break;
    case SIM_HUNG:
        run_worker_hung(sim->run, message->rank, "no word of it", time);
        break;
    case SIM_START_FAILED:
        run_worker_start_failed(sim->run, message->rank,
                                &(struct run_start_failure){.why = "it cannot be executed",
                                                            .stopped = message->flag,
                                                            .transient = error_may_pass(message->status),
                                                            .time = time});
        break;
    case SIM_EXITED:
        run_worker_exited(
            sim->run, message->rank,
            &(struct run_exit){.wait_status = message->status, .stopped = message->flag, .time = time});
        break;
    case SIM_GONE:
        run_worker_gone(sim->run, message->rank, time);
        break;
    case SIM_REPORT:
        hear_report(sim, message);
        break;
    case SIM_STACKS:
        run_node_stacks(sim->run, message->node, "frames\n", 7);
        break;
    case SIM_LEAVING:
        run_node_leaving(sim->run, message->node, message->status, time);
        break;
    case SIM_BYE:
        run_node_bye(sim->run, message->node, true, 0);
        break;
    default:
        close_channel(sim, message->node);
        run_node_lost(sim->run, message->node, "its agent is gone");
    }
}

/* The most workers that an elastic run may ever have are there from the beginning, so that no timer moves. */
static void take_config(struct sim *sim, const struct run_config *config) {
    sim->config = *config;
    if (sim->config.max_workers < config->n_workers) sim->config.max_workers = config->n_workers;
}

int sim_create(const struct run_config *config, const struct sim_hooks *hooks, void *context, struct sim **out,
               ty_error *err) {
    struct sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL) return ty_fail_memory(err);
    *sim = (struct sim){.hooks = hooks, .context = context};
    take_config(sim, config);
    uint32_t n_nodes = config->n_nodes, max_workers = sim->config.max_workers;
    sim->loop = loop_create_sim(err);
    int result = sim->loop == NULL ? err->code : 0;
    sim->agents = calloc(n_nodes, sizeof *sim->agents);
    sim->workers = calloc(max_workers, sizeof *sim->workers);
    sim->first_of = calloc(n_nodes + 1, sizeof *sim->first_of);
    sim->ranks = calloc(max_workers, sizeof *sim->ranks);
    bool made = sim->agents != NULL && sim->workers != NULL && sim->first_of != NULL && sim->ranks != NULL;
    if (result == 0 && !made) result = ty_fail_memory(err);
    if (result < 0) {
        sim_destroy(sim);
        return result;
    }
    sort_ranks(sim);
    for (uint32_t node = 0; node < n_nodes; node++)
        sim_agent_init(&sim->agents[node], sim, node);
    for (uint32_t rank = 0; rank < max_workers; rank++)
        sim->workers[rank] = (struct sim_worker){.sim = sim, .rank = rank};
    for (int timer = 0; timer < RUN_TIMERS; timer++) {
        struct run_timer_slot *slot = &sim->timers[timer];
        *slot = (struct run_timer_slot){sim, (enum run_timer)timer, {.callback = on_timer, .context = slot}};
    }
    sim->published = (struct loop_timer){.callback = on_published, .context = sim};
    sim->checked = (struct loop_timer){.callback = on_checked, .context = sim};
    result = run_create(&sim->config, &sim_ops, sim, &sim->run, err);
    if (result < 0)
        sim_destroy(sim);
    else
        *out = sim;
    return result < 0 ? result : 0;
}

/* Nothing of the controller's own is on its way any more. */
static void stop_controller(struct sim *sim) {
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        loop_timer_stop(sim->loop, &sim->timers[timer].handle);
    loop_timer_stop(sim->loop, &sim->published);
    loop_timer_stop(sim->loop, &sim->checked);
    sim->publishing = 0;
    sim->busy_until = 0;
}

void sim_destroy(struct sim *sim) {
    if (sim == NULL) return;
    run_destroy(sim->run);
    if (sim->loop != NULL) {
        for (uint32_t node = 0; sim->agents != NULL && node < sim->config.n_nodes; node++) {
            loop_timer_stop(sim->loop, &sim->agents[node].start);
            loop_timer_stop(sim->loop, &sim->agents[node].fence);
            loop_timer_stop(sim->loop, &sim->agents[node].loss);
            loop_timer_stop(sim->loop, &sim->agents[node].stacks);
        }
        for (uint32_t rank = 0; sim->workers != NULL && rank < sim->config.max_workers; rank++)
            loop_timer_stop(sim->loop, &sim->workers[rank].timer);
        stop_controller(sim);
    }
    sim_network_done(sim);
    loop_destroy(sim->loop);
    free(sim->agents);
    free(sim->workers);
    free(sim->first_of);
    free(sim->ranks);
    free(sim);
}

struct run *sim_run(struct sim *sim) {
    return sim->run;
}

struct loop *sim_loop(struct sim *sim) {
    return sim->loop;
}

bool sim_step(struct sim *sim) {
    if (sim->out_of_memory) return false;
    return sim_deliver_next(sim) || loop_turn(sim->loop, true);
}

/* A controller that died and is started again: its agents end with their channels, and no word that was on its
 * way arrives. */
int sim_restart(struct sim *sim, const struct run_config *config, ty_error *err) {
    run_destroy(sim->run);
    sim->run = NULL;
    for (uint32_t node = 0; node < sim->config.n_nodes; node++)
        abandon(sim, node);
    stop_controller(sim);
    sim_network_drop(sim);
    take_config(sim, config);
    sort_ranks(sim);
    return run_create(config, &sim_ops, sim, &sim->run, err);
}

static void ring(void *context) {
    (void)context;
}

/* The clock jumps from timer to timer: one of our own makes it stop there. */
bool sim_step_until(struct sim *sim, nanoseconds time) {
    struct loop_timer alarm = {.callback = ring};
    nanoseconds left = time - loop_now(sim->loop);
    if (left <= 0 || loop_timer_start(sim->loop, &alarm, left) < 0) return run_state_of(sim->run) == RUN_ENDED;
    while (run_state_of(sim->run) != RUN_ENDED && loop_now(sim->loop) < time)
        if (!sim_step(sim)) break;
    loop_timer_stop(sim->loop, &alarm);
    return run_state_of(sim->run) == RUN_ENDED;
}

const char *sim_violation(const struct sim *sim) {
    return sim->violation;
}
