/* `trainyard plan`: who would go where with which devices, or why not, on this machine, a cluster file, nodes
 * that join, or those that Slurm has. It starts no worker, takes no lease and leaves nothing behind; the
 * planning is that of `trainyard run` (placement/planner.h). */
#include "placement/plan.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cluster/cluster.h"
#include "cluster/lease.h"
#include "controller/prepare.h"

struct plan_command {
    struct scaling_options scaling;
    struct cluster_options cluster;
    struct join_options join;
    struct format_options format;
    bool environment; /* a framework was named */
};

static int set_framework(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct plan_command *command = target;
    command->environment = true;
    return setting_set_text(setting_find(option->name), &command->scaling.settings, value, err);
}

static const struct option_spec specs[] = {
    {"framework", 0, "NAME",
     "show each worker's whole environment as well, as `trainyard run` with this --framework sets it",
     set_framework, 0, NULL},
};
static const struct option_group environment_group = {"Environment", specs, ARRAY_SIZE(specs)};

/* What is shown, with where its nodes come from; both NULL: this machine, or a cluster file. */
struct planned {
    struct plan *plan; /* owned */
    struct cluster *cluster;
    const struct demand *demand;
    const struct slurm_view *slurm;
    const struct rendezvous *rendezvous;
};

static int network_json(const struct rendezvous *rendezvous, struct buffer *json, ty_error *err) {
    json_t *tree = json_loadb(json->data, json->size, 0, NULL), *tried = json_array();
    const char *used = rendezvous_network(rendezvous), *line = rendezvous_table(rendezvous);
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        (void)json_array_append_new(tried, json_stringn(line, (size_t)(end - line)));
    json_t *network = json_pack("{s:s?, s:o}", "used", *used != '\0' ? used : NULL, "tried", tried);
    if (json_object_set_new(tree, "network", network) < 0) json_decref(TAKE(tree));
    return cli_json_put(tree, json, err);
}

/* The exit status. */
static int show(const struct plan_command *command, const struct planned *planned, ty_error *err) {
    const struct plan *plan = planned->plan;
    const struct rendezvous *rendezvous = planned->rendezvous;
    /* The address of rank 0, for the others, is not known before the start of a run on Slurm. */
    const char *master = NULL;
    if (planned->slurm == NULL && plan->n_workers > 0)
        master = rendezvous == NULL
                     ? "127.0.0.1"
                     : rendezvous_address_of(rendezvous, planned->cluster->nodes[plan->workers[0].node].name);
    const struct plan_environment environment = {plan, planned->cluster, planned->demand,
                                                 &command->scaling.settings, master};
    bool with_environment = command->environment && plan->verdict == PLAN_FEASIBLE;
    int result = 0;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (command->format.format == FORMAT_JSON) {
        plan_format_json(plan, planned->cluster, planned->demand, &text);
        if (with_environment) result = plan_environment_json(&environment, &text, err);
        if (planned->slurm != NULL && result >= 0) result = slurm_view_json(planned->slurm, &text, err);
        if (rendezvous != NULL && result >= 0) result = network_json(rendezvous, &text, err);
        if (text.size > 0 && text.data[text.size - 1] != '\n') buffer_char(&text, '\n');
    } else {
        plan_format_text(plan, planned->cluster, planned->demand, terminal_colour(STDOUT_FILENO), &text);
        if (planned->slurm != NULL) slurm_view_text(planned->slurm, &text);
        const char *line = rendezvous != NULL ? rendezvous_table(rendezvous) : "";
        if (*line != '\0') buffer_text(&text, "\nThe network\n");
        for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
            buffer_printf(&text, "  %.*s\n", (int)(end - line), line);
        if (with_environment) result = plan_environment_text(&environment, &text, err);
    }
    if (result >= 0) result = cli_print(&text, err);
    if (result < 0) return result;
    return plan->verdict == PLAN_FEASIBLE ? 0 : ty_error_exit_status(TY_EINFEASIBLE);
}

/* On the nodes of a file, or this machine. What other runs hold of its devices is taken off, so that the plan
 * says when the run would have to wait. */
static int plan_for(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    const struct cluster_options *options = &command->cluster;
    struct planned planned = {.demand = demand};
    int result = options->cluster_file != NULL ? cluster_read(options->cluster_file, &planned.cluster, err)
                                               : cluster_probe(&options->overrides, &planned.cluster, err);
    if (result >= 0 && options->cluster_file == NULL && prepare_needs_devices(demand))
        result = lease_apply_all(planned.cluster, err);
    if (result >= 0) result = plan_make(planned.cluster, demand, &planned.plan, err);
    if (result >= 0) result = show(command, &planned, err);
    plan_destroy(planned.plan);
    cluster_destroy(planned.cluster);
    return result;
}

/* There is no run whose log it could be: what is logged on the way is a warning of the plan. */
static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)context, (void)level, (void)subsystem;
    terminal_warning("plan", text);
}

/* The nodes come as to a run, and are let go. */
static int plan_for_nodes(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    const struct run_request request = {.engine = command->cluster.engine,
                                        .engine_options = &command->join.options,
                                        .overrides = &command->cluster.overrides};
    struct prepared nodes = {0};
    struct planned planned = {.demand = demand};
    log_set_sink(tell_log, NULL);
    int result = prepare_engine(&request, &nodes.engine, err);
    if (result >= 0) result = prepare_gather(&request, NULL, &nodes, err);
    if (result >= 0) result = rendezvous_cluster(nodes.rendezvous, &planned.cluster, err);
    if (result >= 0 && command->join.options.hosts == NULL && prepare_needs_devices(demand))
        result = lease_apply_all(planned.cluster, err); /* of the first node, which is this machine */
    if (result >= 0) result = plan_make(planned.cluster, demand, &planned.plan, err);
    planned.rendezvous = nodes.rendezvous;
    if (result >= 0) result = show(command, &planned, err);
    rendezvous_close(TAKE(nodes.rendezvous), result < 0 ? ty_error_exit_status(result) : result);
    prepare_done(&nodes);
    plan_destroy(planned.plan);
    cluster_destroy(planned.cluster);
    return result;
}

/* On Slurm's nodes; with the request, where there is no allocation yet and something can be asked for. A demand
 * that can never fit is shown with the planner's reason; slices are an exception, since switches are Slurm's to
 * know. */
static int plan_for_slurm(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    CLEANUP(slurm_view_done) struct slurm_view view = {0};
    struct planned planned = {.demand = demand, .slurm = &view};
    int result = slurm_view_look(&command->cluster, demand, &view, err);
    if (result >= 0) result = slurm_plan(&view.site, demand, &planned.plan, err);
    bool hopeless =
        result >= 0 && planned.plan->verdict == PLAN_INFEASIBLE && demand->tpu.workers_per_slice == 0;
    if (result >= 0 && !hopeless) result = slurm_view_ask(&command->cluster, demand, &view, err);
    planned.cluster = view.site.nodes;
    if (result >= 0) result = show(command, &planned, err);
    plan_destroy(planned.plan);
    return result;
}

static int plan(const struct plan_command *command, const struct demand *demand, ty_error *err) {
    const char *const lines[] = {demand->deprecation, demand->warning,
                                 demand_sharing_warning(demand, command->scaling.settings.backend)};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (lines[i] != NULL) terminal_warning("plan", lines[i]);
    if (command->join.options.max_nodes > 1 || command->join.options.hosts != NULL)
        return plan_for_nodes(command, demand, err);
    bool slurm = str_equal(command->cluster.engine, "slurm");
    return (slurm ? plan_for_slurm : plan_for)(command, demand, err);
}

static int plan_run(const struct arguments *arguments, ty_error *err) {
    struct plan_command command = {0};
    struct demand demand = {0};
    cluster_options_init(&command.cluster);
    join_options_init(&command.join);
    int result = scaling_options_init(&command.scaling, arguments, err);
    if (result < 0) return result;
    void *const targets[] = {&command.scaling, &command.cluster, &command.join, &command, &command.format};
    result = options_apply(arguments, targets, err);
    if (result >= 0) result = join_options_finish(&command.join, &command.cluster, err);
    if (result >= 0 && command.join.options.node_rank > 0) {
        result = join_options_serve(&command.join.options, NULL, "plan", &command.cluster.overrides);
    } else if (result >= 0) {
        result = cluster_options_check(&command.cluster, err);
        if (result >= 0) result = scaling_resolve(&command.scaling.scaling, scaling_train_v1(), &demand, err);
        if (result >= 0) result = plan(&command, &demand, err);
    }
    demand_done(&demand);
    key_forget(&command.join.options.key);
    hosts_done(&command.join.hosts);
    scaling_options_done(&command.scaling);
    cluster_options_done(&command.cluster);
    return result;
}

const struct command command_plan = {
    .name = "plan",
    .summary = "show which worker would go on which node with which devices, or why that is impossible",
    .usage = (const char *const[]){"[OPTION...]", NULL},
    .description = "Plans as `trainyard run` would with the same options, for this machine, the nodes of a "
                   "cluster file, hosts, or the nodes on which this command is started, and starts no worker. "
                   "Of several machines it also says which network connects them. When the request does not "
                   "fit, one sentence says what is short and the smallest change that would fit; the exit "
                   "status is then 3.",
    .examples = (const char *const[]){"trainyard plan -n 8 --use-gpu --cluster cluster.yaml",
                                      "eight workers with a GPU each on the nodes of a file",
                                      "trainyard plan -n 16 --hosts a,b:8",
                                      "sixteen workers on hosts that ssh reaches, and the network between them",
                                      "trainyard plan -n 4 --resources CPU=2 --format json",
                                      "the same facts for a program", NULL},
    .groups = (const struct option_group *const[]){&scaling_group, &cluster_group, &join_group,
                                                   &environment_group, &format_group, NULL},
    .run = plan_run,
};
