/* `trainyard simulate`: what is left of the time on a cluster whose nodes fail, and how often a checkpoint
 * pays. The run's own state machine on a virtual cluster; starts nothing. Nothing is measured: what things take
 * is what the options say. */
#include <stdint.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "engine/sim.h"

/* What a simulation may cost: memory, then time (an event touches each worker). */
enum { MOST_NODES = 1000000, MOST_WORKERS = 2000000, MOST_DAYS = 36500 };
static const double MOST_EVENTS = 1e7, MOST_WORK = 2e10, LONGEST_MTBF = MOST_DAYS * 86400e9;

struct simulate_options {
    uint32_t nodes, workers;
    nanoseconds mtbf, interval, cost, restart, length;
    int64_t seed;
};

static int set_count(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int64_t most = option->offset == offsetof(struct simulate_options, nodes) ? MOST_NODES : 1024, number = 0;
    int result = option_whole(value, 1, most, &number, err);
    if (result == 0) *(uint32_t *)((char *)target + option->offset) = (uint32_t)number;
    return result;
}

static int set_seed(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return option_whole(value, 0, INT64_MAX, &((struct simulate_options *)target)->seed, err);
}

static int set_days(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    double days = 0;
    if (!str_to_double(value, &days) || days <= 0 || days > MOST_DAYS)
        return ty_fail(err, TY_EUSAGE, "must be a number of days above 0, at most %d", MOST_DAYS);
    ((struct simulate_options *)target)->length = (nanoseconds)(days * 86400e9);
    if (((struct simulate_options *)target)->length < NS_PER_S)
        return ty_fail(err, TY_EUSAGE, "must be at least a second, which is 0.0000116 days");
    return 0;
}

/* Times that must not be 0. */
static int set_time(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int result = option_duration(option, target, value, err);
    if (result < 0) return result;
    if (*(nanoseconds *)(void *)((char *)target + option->offset) < NS_PER_S)
        return ty_fail(err, TY_EUSAGE, "must be at least a second");
    return 0;
}

#define AT(field) offsetof(struct simulate_options, field)

static const struct option_spec specs[] = {
    {"nodes", 0, "N", "how many nodes the training needs; it stops when one of them fails", set_count,
     AT(nodes), NULL},
    {"mtbf", 0, "DURATION",
     "mean time between failures of one node: 150d, 5000h; N nodes fail N times as often", set_time, AT(mtbf),
     NULL},
    {"checkpoint-every", 0, "DURATION", "how long they train between two checkpoints", set_time, AT(interval),
     NULL},
    {"checkpoint-cost", 0, "DURATION", "how long the training stands still for a checkpoint", option_duration,
     AT(cost), NULL},
    {"restart-cost", 0, "DURATION", "from a failure until they train again", option_duration, AT(restart),
     NULL},
    {"days", 0, "N", "how many days are simulated (default: 30)", set_days, 0, NULL},
    {"workers-per-node", 0, "N", "workers on each node (default: 1)", set_count, AT(workers), NULL},
    {"seed", 0, "N", "the same seed gives the same failures (default: 1)", set_seed, 0, NULL},
};
static const struct option_group simulate_group = {"Simulation", specs, ARRAY_SIZE(specs)};

/* Refuses what would take hours or all memory. */
static int check_size(const struct sim_training *training, ty_error *err) {
    double length = (double)training->length, workers = (double)training->n_nodes * training->workers_per_node;
    double failures = length / (double)training->mtbf * training->n_nodes;
    double checkpoints = length / (double)(training->interval + training->cost);
    if (workers > MOST_WORKERS)
        return ty_fail(err, TY_EUSAGE,
                       "--nodes %u with --workers-per-node %u: at most %d workers can be simulated",
                       training->n_nodes, training->workers_per_node, MOST_WORKERS);
    if (failures > MOST_EVENTS || failures * workers > MOST_WORK)
        return ty_fail(
            err, TY_EUSAGE,
            "--mtbf: %.3g failures are too many to simulate; a longer time, fewer nodes or fewer days "
            "are allowed",
            failures);
    if (checkpoints > MOST_EVENTS || checkpoints * workers > MOST_WORK)
        return ty_fail(
            err, TY_EUSAGE,
            "--checkpoint-every: %.3g checkpoints are too many to simulate; a longer interval, fewer "
            "nodes or fewer days are allowed",
            checkpoints);
    return 0;
}

/* The interval that was asked for and the one that arithmetic finds best, with a half and a double of it: all
 * with the same failures, and with enough of them for chance to even out. Only how many there are counts for
 * this, not of how many nodes. */
enum { TRIAL_NODES = 16, TRIAL_FAILURES = 2000, TRIAL_CHECKPOINTS = 500000 };
#define TRIALS(X)                                \
    X(TRIAL_ASKED, "asked for", asked->interval) \
    X(TRIAL_HALF, "", best / 2)                  \
    X(TRIAL_BEST, "best by arithmetic", best)    \
    X(TRIAL_DOUBLE, "", best * 2)

enum {
#define X(name, note, interval) name,
    TRIALS(X)
#undef X
        TRIAL_COUNT
};

struct trial {
    nanoseconds interval;
    double goodput, expected;
};

/* The trials have fewer nodes with an MTBF that is shorter in the same measure: failures come as often, and
 * each costs a simulation of 16 workers instead of all. */
static int try_intervals(const struct sim_training *asked, struct trial trials[TRIAL_COUNT], ty_error *err) {
    nanoseconds best = sim_training_best_interval(asked);
    const nanoseconds intervals[] = {
#define X(name, note, interval) interval,
        TRIALS(X)
#undef X
    };
    double apart = (double)asked->mtbf / asked->n_nodes;
    struct sim_training training = *asked;
    training.n_nodes = apart * TRIAL_NODES < LONGEST_MTBF ? TRIAL_NODES : 1;
    training.workers_per_node = 1;
    training.mtbf = (nanoseconds)(apart * training.n_nodes);
    for (int i = 0; i < TRIAL_COUNT; i++) {
        struct sim_training_result result;
        training.interval = intervals[i] > NS_PER_S ? intervals[i] : NS_PER_S;
        /* Long enough, or as long as takes no time worth mentioning. */
        double wanted = apart * TRIAL_FAILURES, longest = MOST_DAYS * 86400e9,
               most = (double)(training.interval + training.cost) * TRIAL_CHECKPOINTS;
        if (wanted > most) wanted = most;
        training.length = (nanoseconds)(wanted < longest ? wanted : longest);
        int code = sim_training_run(&training, &result, err);
        if (code < 0) return code;
        trials[i] =
            (struct trial){training.interval, sim_training_goodput(&result), sim_training_expected(&training)};
    }
    return 0;
}

static void format_json(const struct sim_training *training, const struct sim_training_result *result,
                        const struct trial trials[TRIAL_COUNT], struct buffer *out) {
    buffer_printf(out, "{\"nodes\": %u, \"workers_per_node\": %u, \"seed\": %llu, ", training->n_nodes,
                  training->workers_per_node, (unsigned long long)training->seed);
    buffer_printf(out, "\"mtbf_s\": %.9g, \"checkpoint_every_s\": %.9g, ", duration_seconds(training->mtbf),
                  duration_seconds(training->interval));
    buffer_printf(out, "\"checkpoint_cost_s\": %.9g, \"restart_cost_s\": %.9g, \"length_s\": %.9g,\n ",
                  duration_seconds(training->cost), duration_seconds(training->restart),
                  duration_seconds(training->length));
    buffer_printf(out, "\"goodput\": %.6f, \"expected\": %.6f, \"attempts\": %d, \"failures\": %llu, ",
                  sim_training_goodput(result), sim_training_expected(training), result->attempts,
                  (unsigned long long)result->failures);
    buffer_printf(out, "\"checkpoints\": %llu,\n ", (unsigned long long)result->checkpoints);
    buffer_printf(out,
                  "\"useful_s\": %.3f, \"lost_s\": %.3f, \"checkpointing_s\": %.3f, \"restarting_s\": %.3f,\n ",
                  duration_seconds(result->useful), duration_seconds(result->lost),
                  duration_seconds(result->checkpointing), duration_seconds(result->restarting));
    buffer_printf(out, "\"best_checkpoint_every_s\": %.3f, \"trials\": [",
                  duration_seconds(trials[TRIAL_BEST].interval));
    for (int i = 0; i < TRIAL_COUNT; i++)
        buffer_printf(out, "%s{\"checkpoint_every_s\": %.3f, \"goodput\": %.6f, \"expected\": %.6f}",
                      i > 0 ? ", " : "", duration_seconds(trials[i].interval), trials[i].goodput,
                      trials[i].expected);
    buffer_text(out, "]}\n");
}

static void add_share(struct buffer *out, const char *what, nanoseconds part, nanoseconds whole) {
    buffer_printf(out, "  %-14s%6.2f %%  ", what, 100 * (double)part / (double)whole);
    duration_format(part, out);
    buffer_char(out, '\n');
}

static void format_text(const struct sim_training *training, const struct sim_training_result *result,
                        const struct trial trials[TRIAL_COUNT], struct buffer *out) {
    nanoseconds all = training->length;
    buffer_printf(out, "%u node%s, of which one fails every ", training->n_nodes,
                  training->n_nodes == 1 ? "" : "s");
    duration_format(training->mtbf / training->n_nodes, out);
    buffer_text(out, " on average; ");
    duration_format(all, out);
    buffer_printf(out, " simulated, seed %llu\n", (unsigned long long)training->seed);
    add_share(out, "goodput", result->useful, all);
    add_share(out, "lost work", result->lost, all);
    add_share(out, "checkpoints", result->checkpointing, all);
    add_share(out, "restarts", result->restarting, all);
    buffer_printf(out, "  attempts: %d, failures: %llu, checkpoints: %llu\n\n", result->attempts,
                  (unsigned long long)result->failures, (unsigned long long)result->checkpoints);
    static const char *const notes[] = {
#define X(name, note, interval) note,
        TRIALS(X)
#undef X
    };
    CLEANUP(table_done) struct text_table table = {0};
    buffer_text(out, "in the long run:\n");
    TABLE_HEADS(&table, "", "checkpoint every", "goodput", "expected", "");
    for (int i = 0; i < TRIAL_COUNT; i++) {
        const struct trial *trial = &trials[i];
        CLEANUP(buffer_done) struct buffer cell = {0};
        table_cell(&table, "");
        duration_format(trial->interval, &cell);
        table_take(&table, &cell);
        buffer_printf(&cell, "%.2f %%", 100 * trial->goodput);
        table_take(&table, &cell);
        buffer_printf(&cell, trial->expected < 0 ? "-" : "%.2f %%", 100 * trial->expected);
        table_take(&table, &cell);
        table_cell(&table, notes[i]);
    }
    table_format(&table, out);
}

static int simulate_run(const struct arguments *arguments, ty_error *err) {
    static const char *const needed[] = {"nodes", "mtbf", "checkpoint-every", "checkpoint-cost",
                                         "restart-cost"};
    struct simulate_options options = {.workers = 1, .length = (nanoseconds)30 * 86400 * NS_PER_S, .seed = 1};
    struct format_options format = {0};
    int code = options_apply(arguments, (void *[]){&options, &format}, err);
    if (code < 0) return code;
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (options_value(arguments, needed[i]) == NULL)
            return ty_fail(err, TY_EUSAGE,
                           "option --%s is needed; `trainyard simulate --help` shows an example", needed[i]);
    const struct sim_training training = {.n_nodes = options.nodes,
                                          .workers_per_node = options.workers,
                                          .mtbf = options.mtbf,
                                          .interval = options.interval,
                                          .cost = options.cost,
                                          .restart = options.restart,
                                          .length = options.length,
                                          .seed = (uint64_t)options.seed};
    struct sim_training_result result;
    struct trial trials[TRIAL_COUNT];
    code = check_size(&training, err);
    if (code >= 0) code = sim_training_run(&training, &result, err);
    if (code >= 0) code = try_intervals(&training, trials, err);
    if (code < 0) return code;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (format.format == FORMAT_JSON)
        format_json(&training, &result, trials, &text);
    else
        format_text(&training, &result, trials, &text);
    return cli_print(&text, err);
}

const struct command command_simulate = {
    .name = "simulate",
    .summary = "show what failures of nodes leave of the time, and how often a checkpoint pays",
    .usage =
        (const char *const[]){"--nodes N --mtbf D --checkpoint-every D --checkpoint-cost D --restart-cost D "
                              "[OPTION...]",
                              NULL},
    .description =
        "Runs a training of many days on a virtual cluster, in seconds and with the code that decides in a "
        "real run, and starts "
        "nothing. Goodput is the training that counts, as a part of all the time; the rest goes into work "
        "since the "
        "last checkpoint that each failure undoes, into writing checkpoints, and into starting again. Beside "
        "it stands "
        "what arithmetic expects: (1 - f (u + d/2)) / (1 + w/d) for f failures of all nodes a unit of time, a "
        "restart of "
        "u, a checkpoint every d that costs w. The interval that is best, d where f d = 1 - e^(-f (d + w)), "
        "is simulated as well, with a half and a double of it.\n\n"
        "A failure takes one node; all workers stop and begin again from the last checkpoint, and the node "
        "comes back. "
        "Where attempts fail within seconds of their start, the pauses of a real run come in between.",
    .examples = (const char *const[]){"trainyard simulate --nodes 1000 --mtbf 150d --checkpoint-every 1h "
                                      "--checkpoint-cost 1m --restart-cost 5m",
                                      "a month of a thousand nodes", NULL},
    .groups = (const struct option_group *const[]){&simulate_group, &format_group, NULL},
    .run = simulate_run,
};
