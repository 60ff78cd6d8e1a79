/* `trainyard plan`: who would go where with which devices, or why not. Starts nothing. */
#include "placement/plan.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/scaling_options.h"
#include "cli/slurm_view.h"
#include "cli/terminal.h"
#include "cluster/cluster.h"
#include "cluster/lease.h"
#include "controller/prepare.h"

struct plan_command {
    struct scaling_options scaling;
    struct cluster_options cluster;
    struct format_options format;
    bool environment; /* a framework was named */
};

static int set_framework(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct plan_command *command = target;
    command->environment = true;
    return setting_set_text(setting_find(NULL, option->name), &command->scaling.settings, value, err);
}

static const struct option_spec specs[] = {
    {"framework", 0, "NAME",
     "show each worker's whole environment as well, as `trainyard run` with this --framework sets it",
     set_framework, 0, NULL},
};
static const struct option_group environment_group = {"Environment", specs, ARRAY_SIZE(specs)};

/* Takes off what other runs on this machine hold, so that the plan says when it would have to wait. */
static int apply_leases(struct cluster *cluster, ty_error *err) {
    struct lease_holder *holders = NULL;
    size_t n = 0;
    int result = lease_holders(NULL, &holders, &n, err);
    if (result >= 0) result = lease_apply(holders, n, cluster, err);
    lease_holders_free(holders, n);
    return result;
}

static int find_cluster(const struct cluster_options *options, const struct demand *demand,
                        struct cluster **cluster, ty_error *err) {
    if (options->cluster_file != NULL) return cluster_read(options->cluster_file, cluster, err);
    struct cluster *machine = NULL;
    int result = cluster_probe(&options->overrides, &machine, err);
    if (result >= 0 && prepare_needs_devices(demand)) result = apply_leases(machine, err);
    if (result < 0) {
        cluster_destroy(machine);
        return result;
    }
    *cluster = machine;
    return 0;
}

/* `slurm` may be NULL: then the nodes are not Slurm's. */
static int show(const struct plan_command *command, const struct plan *plan, const struct cluster *cluster,
                const struct demand *demand, const struct slurm_view *slurm, ty_error *err) {
    const struct plan_environment environment = {plan, cluster, demand, &command->scaling.settings};
    bool with_environment = command->environment && plan->verdict == PLAN_FEASIBLE;
    int result = 0;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (command->format.format == FORMAT_JSON) {
        plan_format_json(plan, cluster, demand, &text);
        if (with_environment) result = plan_environment_json(&environment, &text, err);
        if (slurm != NULL && result >= 0) result = slurm_view_json(slurm, &text, err);
        if (text.size > 0 && text.data[text.size - 1] != '\n') buffer_char(&text, '\n');
    } else {
        plan_format_text(plan, cluster, demand, terminal_colour(STDOUT_FILENO), &text);
        if (slurm != NULL) slurm_view_text(slurm, &text);
        if (with_environment) result = plan_environment_text(&environment, &text, err);
    }
    if (result >= 0) result = cli_print(&text, err);
    if (result < 0) return result;
    return plan->verdict == PLAN_FEASIBLE ? 0 : ty_error_exit_status(TY_EINFEASIBLE);
}

static int plan_for(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    struct cluster *cluster = NULL;
    int result = find_cluster(&command->cluster, demand, &cluster, err);
    if (result < 0) return result;
    struct plan *plan = NULL;
    result = plan_make(cluster, demand, &plan, err);
    if (result >= 0) result = show(command, plan, cluster, demand, NULL, err);
    plan_destroy(plan);
    cluster_destroy(cluster);
    return result;
}

/* On Slurm's nodes; with the request, where there is no allocation yet and something can be asked for. */
static int plan_for_slurm(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    CLEANUP(slurm_view_done) struct slurm_view view = {0};
    struct plan *plan = NULL;
    int result = slurm_view_look(&command->cluster, demand, &view, err);
    if (result >= 0) result = slurm_plan(&view.site, demand, &plan, err);
    bool hopeless = result >= 0 && plan->verdict == PLAN_INFEASIBLE && demand->tpu.workers_per_slice == 0;
    if (result >= 0 && !hopeless) result = slurm_view_ask(&command->cluster, demand, &view, err);
    if (result >= 0) result = show(command, plan, view.site.nodes, demand, &view, err);
    plan_destroy(plan);
    return result;
}

static int resolve_and_plan(const struct plan_command *command, ty_error *err) {
    int result = cluster_options_check(&command->cluster, err);
    if (result < 0) return result;
    struct demand demand = {0};
    result = scaling_resolve(&command->scaling.scaling, scaling_train_v1(), &demand, err);
    if (result < 0) return result;
    const char *const lines[] = {demand.deprecation, demand.warning,
                                 demand_sharing_warning(&demand, command->scaling.settings.backend)};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (lines[i] != NULL) terminal_warning("plan", lines[i]);
    bool slurm = str_equal(command->cluster.engine, "slurm");
    result = slurm ? plan_for_slurm(command, &demand, err) : plan_for(command, &demand, err);
    demand_done(&demand);
    return result;
}

static int plan_run(const struct arguments *arguments, ty_error *err) {
    struct plan_command command = {0};
    cluster_options_init(&command.cluster);
    int result = scaling_options_init(&command.scaling, arguments, err);
    if (result < 0) return result;
    void *const targets[] = {&command.scaling, &command.cluster, &command, &command.format};
    result = options_apply(arguments, targets, err);
    if (result >= 0) result = resolve_and_plan(&command, err);
    scaling_options_done(&command.scaling);
    cluster_options_done(&command.cluster);
    return result;
}

const struct command command_plan = {
    .name = "plan",
    .summary = "show which worker would go on which node with which devices, or why that is impossible",
    .usage = (const char *const[]){"[OPTION...]", NULL},
    .description = "Plans as `trainyard run` would with the same options, for this machine or the nodes of a "
                   "cluster file, and starts nothing. When the request does not fit, one sentence says what is "
                   "short and the smallest change that would fit; the exit status is then 3.",
    .examples = (const char *const[]){"trainyard plan -n 8 --use-gpu --cluster cluster.yaml",
                                      "eight workers with a GPU each on the nodes of a file",
                                      "trainyard plan -n 4 --resources CPU=2 --format json",
                                      "the same facts for a program", NULL},
    .groups = (const struct option_group *const[]){&scaling_group, &cluster_group, &environment_group,
                                                   &format_group, NULL},
    .run = plan_run,
};
