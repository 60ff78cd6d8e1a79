/* The gang in lock-step: one timer for all workers, one for the next failure of any node, so that a month of
 * ten thousand nodes is a few thousand events and what the run does for each of them. The workers of other
 * simulations are told by their tests what to do (sim.h). */
#include <math.h>
#include <stdlib.h>

#include "base/dice.h"
#include "engine/sim.h"

/* X(name, what the time is spent on) */
#define TRAINING_PHASES(X)                                      \
    X(PHASE_RESTARTING, "workers are not all there, or set up") \
    X(PHASE_TRAINING, "they train")                             \
    X(PHASE_WRITING, "they write a checkpoint")

enum phase {
#define X(name, meaning) name,
    TRAINING_PHASES(X)
#undef X
};

struct trained_gang {
    const struct sim_training *config;
    struct sim_training_result *result;
    struct sim *sim;
    struct dice dice;
    uint32_t n_workers, n_running;
    enum phase phase;
    nanoseconds since;       /* of the phase */
    nanoseconds failed;      /* the last failure; before the start: the start */
    nanoseconds uncommitted; /* training since the last checkpoint */
    uint64_t number;         /* of the last report */
    struct loop_timer step, failure;
};

static nanoseconds now(const struct trained_gang *gang) {
    return loop_now(sim_loop(gang->sim));
}

static void enter(struct trained_gang *gang, enum phase phase, nanoseconds length) {
    gang->phase = phase;
    gang->since = now(gang);
    (void)loop_timer_start(sim_loop(gang->sim), &gang->step, length);
}

static void on_step(void *context) {
    struct trained_gang *gang = context;
    if (gang->phase == PHASE_TRAINING) {
        /* The end of an interval: one rank writes for all, the others' report of that number is without
         * files. */
        gang->uncommitted = now(gang) - gang->since;
        gang->number++;
        sim_worker_report(gang->sim, 0, REPORT_BEGIN, gang->number);
        for (uint32_t rank = 1; rank < gang->n_workers; rank++)
            sim_worker_report(gang->sim, rank, REPORT_METRICS, gang->number);
        enter(gang, PHASE_WRITING, gang->config->cost);
    } else if (gang->phase == PHASE_WRITING) {
        sim_worker_report(gang->sim, 0, REPORT_COMMIT, gang->number); /* answered() goes on */
    } else {
        gang->result->restarting += now(gang) - gang->since;
        gang->number = run_report_base(sim_run(gang->sim));
        enter(gang, PHASE_TRAINING, gang->config->interval);
    }
}

static void answered(void *context, uint32_t rank, uint64_t number, bool committed) {
    struct trained_gang *gang = context;
    (void)rank, (void)number;
    if (gang->phase != PHASE_WRITING || !committed) return;
    gang->result->useful += gang->uncommitted;
    gang->result->checkpointing += now(gang) - gang->since;
    gang->result->checkpoints++;
    gang->uncommitted = 0;
    enter(gang, PHASE_TRAINING, gang->config->interval);
}

static void began(void *context, uint32_t rank) {
    (void)rank;
    struct trained_gang *gang = context;
    if (++gang->n_running < gang->n_workers) return;
    nanoseconds left = gang->failed + gang->config->restart - now(gang);
    if (gang->result->failures == 0) left = 0;
    (void)loop_timer_start(sim_loop(gang->sim), &gang->step, left);
}

static void gone(void *context, uint32_t rank) {
    (void)rank;
    ((struct trained_gang *)context)->n_running--;
}

static void draw_failure(struct trained_gang *gang) {
    double mean = (double)gang->config->mtbf / gang->config->n_nodes;
    (void)loop_timer_start(sim_loop(gang->sim), &gang->failure, dice_exponential(&gang->dice, mean));
}

/* The first of many memoryless failures is memoryless too, and any node is as likely as another. */
static void on_failure(void *context) {
    struct trained_gang *gang = context;
    gang->result->failures++;
    gang->failed = now(gang);
    /* What the gang did since its last checkpoint is void; from here on it restarts. */
    nanoseconds spent = now(gang) - gang->since;
    if (gang->phase == PHASE_RESTARTING)
        gang->result->restarting += spent;
    else
        gang->result->lost += gang->uncommitted + spent;
    gang->uncommitted = 0;
    gang->phase = PHASE_RESTARTING;
    gang->since = now(gang);
    loop_timer_stop(sim_loop(gang->sim), &gang->step);
    sim_kill_node(gang->sim, (uint32_t)dice_below(&gang->dice, gang->config->n_nodes), 0);
    draw_failure(gang);
}

static uint64_t random_number(void *context) {
    return dice_next(&((struct trained_gang *)context)->dice);
}

static const struct sim_hooks hooks = {
    .random = random_number, .began = began, .gone = gone, .answered = answered};

static int drive(struct trained_gang *gang, ty_error *err) {
    struct loop *loop = sim_loop(gang->sim);
    run_start(sim_run(gang->sim));
    draw_failure(gang);
    bool ended = sim_step_until(gang->sim, gang->config->length);
    if (ended) return ty_fail(err, TY_EFAULT, "the simulated run ended before its time");
    if (loop_now(loop) < gang->config->length) return ty_fail_memory(err);
    /* The time is over: what is under way counts, as it would go on. */
    nanoseconds spent = gang->config->length - gang->since;
    if (gang->phase == PHASE_TRAINING) gang->result->useful += spent;
    if (gang->phase == PHASE_WRITING) {
        gang->result->useful += gang->uncommitted;
        gang->result->checkpointing += spent;
    }
    if (gang->phase == PHASE_RESTARTING) gang->result->restarting += spent;
    gang->result->attempts = run_attempt(sim_run(gang->sim));
    loop_timer_stop(loop, &gang->step);
    loop_timer_stop(loop, &gang->failure);
    return 0;
}

int sim_training_run(const struct sim_training *training, struct sim_training_result *result, ty_error *err) {
    struct trained_gang gang = {.config = training,
                                .result = result,
                                .n_workers = training->n_nodes * training->workers_per_node,
                                .step = {.callback = on_step, .context = &gang},
                                .failure = {.callback = on_failure, .context = &gang}};
    uint32_t *node_of = calloc(gang.n_workers, sizeof *node_of);
    if (node_of == NULL) return ty_fail_memory(err);
    for (uint32_t rank = 0; rank < gang.n_workers; rank++)
        node_of[rank] = rank / training->workers_per_node;
    struct run_settings settings;
    settings_init(&settings);
    struct run_config config = {.n_workers = gang.n_workers,
                                .n_nodes = training->n_nodes,
                                .node_of = node_of,
                                .failures = {-1, -1, -1},
                                .first_attempt = 1,
                                .grace = settings.grace,
                                .start_limit = 60 * NS_PER_S};
    *result = (struct sim_training_result){0};
    dice_seed(&gang.dice, training->seed);
    int code = sim_create(&config, &hooks, &gang, &gang.sim, err);
    if (code >= 0) code = drive(&gang, err);
    sim_destroy(gang.sim);
    free(node_of);
    return code;
}

double sim_training_goodput(const struct sim_training_result *result) {
    nanoseconds all = result->useful + result->lost + result->checkpointing + result->restarting;
    return all > 0 ? (double)result->useful / (double)all : 0;
}

double sim_training_expected(const struct sim_training *training) {
    double failures = training->n_nodes / (double)training->mtbf; /* a nanosecond */
    double interval = (double)training->interval;
    return (1 - failures * ((double)training->restart + interval / 2)) /
           (1 + (double)training->cost / interval);
}

/* Of memoryless failures, each of which costs what is left of an interval d and its write w, the part f d /
 * (e^(f (d + w)) - 1) of the time between restarts counts. It is greatest where f d = 1 - e^(-f (d + w)),
 * whatever a restart costs: between 0 and 1 / f. */
nanoseconds sim_training_best_interval(const struct sim_training *training) {
    double apart = (double)training->mtbf / training->n_nodes, least = 0, most = 1;
    for (int i = 0; i < 64; i++) {
        double middle = (least + most) / 2;
        bool below = middle < -expm1(-(middle + (double)training->cost / apart));
        *(below ? &least : &most) = middle;
    }
    double best = least * apart;
    return best > (double)NS_PER_S ? (nanoseconds)best : NS_PER_S;
}
