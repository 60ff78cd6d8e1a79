/* An agent and its workers, as agent/agent.c and agent/worker_process.c have them: a stop gives workers their
 * grace, and the agent's own end comes when all are gone. What fails, and how long things take, is asked of the
 * hooks. */
#include <errno.h>
#include <signal.h>

#include "engine/sim_internal.h"

static void tell(struct sim_agent *agent, struct sim_message message) {
    message.node = agent->node;
    message.life = agent->life;
    sim_send(agent->sim, &message);
}

static void tell_of(const struct sim_worker *worker, enum sim_message_kind kind, int status, bool flag) {
    struct sim *sim = worker->sim;
    struct sim_agent *agent = &sim->agents[sim->config.node_of[worker->rank]];
    tell(agent,
         (struct sim_message){
             .kind = kind, .rank = worker->rank, .attempt = worker->attempt, .status = status, .flag = flag});
}

/* What follows when no worker is left: an agent that is to end says so, and then closes its channel. To the
 * controller the second is SIM_LOST, as the death of an agent is: the bye before it makes the difference. */
static void go_on(struct sim_agent *agent) {
    if (agent->n_alive > 0 || !agent->alive) return;
    agent->attempt = 0;
    if (!agent->ending) return;
    tell(agent, (struct sim_message){.kind = SIM_BYE});
    agent->alive = false;
    loop_timer_stop(agent->sim->loop, &agent->fence);
    tell(agent, (struct sim_message){.kind = SIM_LOST});
}

static void remove_worker(struct sim_worker *worker) {
    struct sim *sim = worker->sim;
    loop_timer_stop(sim->loop, &worker->timer);
    worker->stage = SIM_ABSENT;
    worker->attempt = 0;
    sim->agents[sim->config.node_of[worker->rank]].n_alive--;
    if (sim->hooks->gone != NULL) sim->hooks->gone(sim->context, worker->rank);
}

static void end_worker(struct sim_worker *worker, int wait_status) {
    struct sim_agent *agent = &worker->sim->agents[worker->sim->config.node_of[worker->rank]];
    tell_of(worker, SIM_EXITED, wait_status, worker->stage == SIM_STOPPING);
    tell_of(worker, SIM_GONE, 0, false);
    remove_worker(worker);
    go_on(agent);
}

static void fail_start(struct sim_worker *worker, int code, bool stopped) {
    struct sim_agent *agent = &worker->sim->agents[worker->sim->config.node_of[worker->rank]];
    tell_of(worker, SIM_START_FAILED, code, stopped);
    remove_worker(worker);
    go_on(agent);
}

static void begin_worker(struct sim_worker *worker) {
    struct sim *sim = worker->sim;
    worker->stage = SIM_RUNNING;
    tell_of(worker, SIM_STARTED, 0, false);
    if (sim->hooks->began != NULL) sim->hooks->began(sim->context, worker->rank);
}

static void on_worker_timer(void *context) {
    struct sim_worker *worker = context;
    if (worker->stage == SIM_PLANNED) {
        begin_worker(worker);
    } else if (worker->stuck) {
        /* Not even SIGKILL ends it: it is told to be gone, and left behind. */
        struct sim_agent *agent = &worker->sim->agents[worker->sim->config.node_of[worker->rank]];
        tell_of(worker, SIM_GONE, 0, false);
        remove_worker(worker);
        go_on(agent);
    } else {
        end_worker(worker, worker->end);
    }
}

static void start_worker(struct sim_worker *worker, int attempt) {
    struct sim *sim = worker->sim;
    const struct sim_hooks *hooks = sim->hooks;
    if (worker->stage != SIM_ABSENT) sim->violation = "a worker was started beside its forerunner";
    worker->stage = SIM_PLANNED;
    worker->attempt = attempt;
    worker->stuck = false;
    worker->timer = (struct loop_timer){.callback = on_worker_timer, .context = worker};
    nanoseconds takes = hooks->start_worker == NULL ? 0 : hooks->start_worker(sim->context, worker->rank);
    if (takes < 0)
        fail_start(worker, (int)takes, false);
    else if (takes == 0)
        begin_worker(worker);
    else if (loop_timer_start(sim->loop, &worker->timer, takes) < 0)
        sim->out_of_memory = true;
}

/* A worker that is still being started has never run: its stop is a start that failed, as no exit can be told
 * of it. The grace runs from the first stop; a second one does not lengthen it, and a kill ends it. */
static void stop_worker(struct sim_worker *worker, bool kill) {
    struct sim *sim = worker->sim;
    const struct sim_hooks *hooks = sim->hooks;
    if (worker->stage == SIM_PLANNED) {
        fail_start(worker, -ECANCELED, true);
        return;
    }
    if (worker->stage == SIM_ABSENT || worker->stuck) return;
    bool told = worker->stage == SIM_STOPPING;
    worker->stage = SIM_STOPPING;
    nanoseconds takes = hooks->stop_worker == NULL ? 0 : hooks->stop_worker(sim->context, worker->rank);
    worker->stuck = takes == SIM_STUCK;
    worker->end = takes == SIM_DISOBEYS ? SIGKILL : SIGTERM;
    if (takes == SIM_DISOBEYS) takes = sim->config.grace;
    if (worker->stuck) {
        bool ends = sim->agents[sim->config.node_of[worker->rank]].ending; /* nobody else waits under a limit */
        if (ends && loop_timer_start(sim->loop, &worker->timer, sim->config.grace + SIM_STUCK_AFTER) < 0)
            sim->out_of_memory = true;
        return;
    }
    if (kill || takes == 0)
        end_worker(worker, kill ? SIGKILL : SIGTERM);
    else if (!told && loop_timer_start(sim->loop, &worker->timer, takes) < 0)
        sim->out_of_memory = true;
}

static void stop_all(struct sim_agent *agent, bool kill) {
    struct sim *sim = agent->sim;
    loop_timer_stop(sim->loop, &agent->stacks);
    int attempt = agent->attempt; /* the end of its last worker clears it */
    for (uint32_t i = sim->first_of[agent->node]; i < sim->first_of[agent->node + 1]; i++)
        if (sim->workers[sim->ranks[i]].attempt == attempt) stop_worker(&sim->workers[sim->ranks[i]], kill);
}

static void end(struct sim_agent *agent) {
    agent->ending = true;
    stop_all(agent, false);
    go_on(agent);
}

/* n_alive counts all workers before the first is started: one that fails at once must not look like the last.
 * A hook may end the agent meanwhile, which clears the attempt. */
static void on_launch(struct sim_agent *agent, int attempt) {
    if (agent->ending || attempt <= agent->launched) return; /* the end is told, or the launch was doubled */
    agent->launched = attempt;
    struct sim *sim = agent->sim;
    agent->attempt = attempt;
    uint32_t first = sim->first_of[agent->node], end = sim->first_of[agent->node + 1];
    agent->n_alive = end - first;
    for (uint32_t i = first; i < end && agent->attempt == attempt; i++)
        start_worker(&sim->workers[sim->ranks[i]], attempt);
}

static void on_stacks(void *context) {
    tell(context, (struct sim_message){.kind = SIM_STACKS});
}

static void save_stacks(struct sim_agent *agent) {
    const struct sim *sim = agent->sim;
    nanoseconds takes =
        sim->hooks->save_stacks == NULL ? 0 : sim->hooks->save_stacks(sim->context, agent->node);
    if (takes >= 0) (void)loop_timer_start(sim->loop, &agent->stacks, takes);
}

void sim_agent_hear(struct sim_agent *agent, const struct sim_message *message) {
    struct sim *sim = agent->sim;
    switch (message->kind) {
    case SIM_LAUNCH:
        on_launch(agent, message->attempt);
        break;
    case SIM_STOP:
        if (message->attempt == agent->attempt) stop_all(agent, message->flag);
        break;
    case SIM_FINISH:
        end(agent);
        break;
    case SIM_COMMITTED:
        if (sim->hooks->answered != NULL && sim_worker_runs(sim, message->rank))
            sim->hooks->answered(sim->context, message->rank, message->number, message->flag);
        break;
    case SIM_SAVE_STACKS:
        save_stacks(agent);
        break;
    case SIM_LISTED:
        if (sim->hooks->listed != NULL && sim_worker_runs(sim, message->rank))
            sim->hooks->listed(sim->context, message->rank);
        break;
    default:
        break;
    }
}

static void on_start(void *context) {
    struct sim_agent *agent = context;
    tell(agent, (struct sim_message){.kind = SIM_HELLO});
}

static void on_fence(void *context) {
    sim_agent_die(context);
}

static void on_loss(void *context) {
    struct sim_agent *agent = context;
    struct sim_message lost = {.kind = SIM_LOST, .node = agent->node, .life = agent->life};
    sim_controller_hear(agent->sim, &lost);
}

void sim_agent_init(struct sim_agent *agent, struct sim *sim, uint32_t node) {
    *agent = (struct sim_agent){.sim = sim, .node = node};
    agent->start = (struct loop_timer){.callback = on_start, .context = agent};
    agent->fence = (struct loop_timer){.callback = on_fence, .context = agent};
    agent->loss = (struct loop_timer){.callback = on_loss, .context = agent};
    agent->stacks = (struct loop_timer){.callback = on_stacks, .context = agent};
}

int sim_agent_start(struct sim_agent *agent) {
    struct sim *sim = agent->sim;
    if (agent->alive) sim->violation = "a second agent was started beside the first";
    nanoseconds takes =
        sim->hooks->start_agent == NULL ? 0 : sim->hooks->start_agent(sim->context, agent->node);
    if (takes < 0) return (int)takes;
    agent->life++;
    agent->alive = agent->open = true;
    agent->ending = agent->frozen = false;
    agent->attempt = agent->launched = 0;
    if (takes == 0)
        on_start(agent);
    else if (loop_timer_start(sim->loop, &agent->start, takes) < 0)
        return -ENOMEM;
    return 0;
}

/* Nothing is told of the workers: nobody is left there who could. */
void sim_agent_die(struct sim_agent *agent) {
    struct sim *sim = agent->sim;
    loop_timer_stop(sim->loop, &agent->start);
    loop_timer_stop(sim->loop, &agent->fence);
    loop_timer_stop(sim->loop, &agent->stacks);
    agent->alive = false;
    agent->attempt = 0;
    for (uint32_t i = sim->first_of[agent->node]; i < sim->first_of[agent->node + 1]; i++)
        if (sim->workers[sim->ranks[i]].stage != SIM_ABSENT) remove_worker(&sim->workers[sim->ranks[i]]);
}

void sim_kill_node(struct sim *sim, uint32_t node, nanoseconds noticed) {
    struct sim_agent *agent = &sim->agents[node];
    if (!agent->alive) return;
    sim_agent_die(agent);
    if (noticed > 0)
        (void)loop_timer_start(sim->loop, &agent->loss, noticed);
    else
        tell(agent, (struct sim_message){.kind = SIM_LOST});
}

void sim_end_agent(struct sim *sim, uint32_t node, int preempted) {
    struct sim_agent *agent = &sim->agents[node];
    if (!agent->alive || agent->start.state != NULL || agent->ending) return;
    if (preempted >= 0) tell(agent, (struct sim_message){.kind = SIM_LEAVING, .status = preempted});
    end(agent);
}

void sim_partition(struct sim *sim, uint32_t node, enum sim_cut cut) {
    struct sim_agent *agent = &sim->agents[node];
    bool was_cut = agent->cut != SIM_CUT_NONE, is_cut = cut != SIM_CUT_NONE;
    agent->cut = cut;
    sim_network_heal(sim, node); /* what is still cut off waits again */
    if (!agent->alive || was_cut == is_cut) return;
    if (is_cut) {
        (void)loop_timer_start(sim->loop, &agent->fence, SIM_AGENT_PATIENCE);
        (void)loop_timer_start(sim->loop, &agent->loss, SIM_CONTROLLER_PATIENCE);
    } else {
        loop_timer_stop(sim->loop, &agent->fence);
        loop_timer_stop(sim->loop, &agent->loss);
    }
}

void sim_freeze(struct sim *sim, uint32_t node, bool frozen) {
    sim->agents[node].frozen = frozen && sim->agents[node].alive;
    sim_network_heal(sim, node);
}

bool sim_worker_runs(const struct sim *sim, uint32_t rank) {
    return sim->workers[rank].stage >= SIM_RUNNING;
}

int sim_worker_attempt(const struct sim *sim, uint32_t rank) {
    return sim->workers[rank].attempt;
}

void sim_worker_ready(struct sim *sim, uint32_t rank) {
    if (sim_worker_runs(sim, rank)) tell_of(&sim->workers[rank], SIM_READY, 0, false);
}

void sim_worker_hang(struct sim *sim, uint32_t rank) {
    if (sim_worker_runs(sim, rank)) tell_of(&sim->workers[rank], SIM_HUNG, 0, false);
}

void sim_worker_report(struct sim *sim, uint32_t rank, enum report_kind kind, uint64_t number) {
    if (!sim_worker_runs(sim, rank)) return;
    struct sim_agent *agent = &sim->agents[sim->config.node_of[rank]];
    tell(agent, (struct sim_message){.kind = SIM_REPORT,
                                     .rank = rank,
                                     .attempt = sim->workers[rank].attempt,
                                     .status = (int)kind,
                                     .number = number});
}

void sim_worker_exit(struct sim *sim, uint32_t rank, int wait_status) {
    if (sim_worker_runs(sim, rank) && !sim->workers[rank].stuck) end_worker(&sim->workers[rank], wait_status);
}
