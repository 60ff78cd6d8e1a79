/* The controller's side of engine ssh: a rendezvous (rendezvous.h) whose agents are started by branches
 * (branches.h). Options: --hosts and --hostfile say which hosts, --copy that they are brought the command,
 * --nnodes MIN:MAX with how many of them the run may begin. This machine, where it is one of them, needs no
 * ssh. */
#include "engine/join.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "engine/branches.h"

/* ssh to a machine that has lost its power waits for it till the end of the run: it has nothing to send. The
 * keeper of an agent that died is back sooner than this. */
#define PATIENCE (5 * NS_PER_S)

struct starting {
    struct branch_node *nodes; /* by rank; the hosts are borrowed from the options */
    const char **names;
    size_t n;
    bool copy;
    struct branches *branches; /* NULL until the first is started */
};

int ssh_check(const struct engine_options *options, ty_error *err) {
    if (options->rendezvous != NULL || options->node_rank >= 0)
        return ty_fail(
            err, TY_EUSAGE,
            "--hosts starts the agents itself, and --%s is for a command that is started on each node: give "
            "one of the two",
            options->rendezvous != NULL ? "rendezvous" : "node-rank");
    if (options->max_nodes > options->hosts->n)
        return ty_fail(err, TY_EUSAGE, "--nnodes %u, more than the %zu hosts", options->max_nodes,
                       options->hosts->n);
    return 0;
}

static void tell_note(void *context, uint32_t rank, const char *text) {
    rendezvous_note(context, rank, text);
}

static void tell_lost(void *context, uint32_t rank, const char *why) {
    rendezvous_give_up(context, rank, why);
}

static int start(void *context, struct rendezvous *rendezvous, uint32_t first, uint32_t n, ty_error *err) {
    struct starting *starting = context;
    if (starting->branches == NULL) {
        struct branches_config config = {
            .loop = rendezvous_loop(rendezvous),
            .rendezvous = rendezvous_addresses(rendezvous),
            .key = rendezvous_key(rendezvous),
            .copy = starting->copy,
            .outlive = rendezvous_outlives(rendezvous),
            .note = tell_note,
            .lost = tell_lost,
            .context = rendezvous,
        };
        starting->branches = branches_create(&config, err);
        if (starting->branches == NULL) return err->code;
    }
    return branches_start(starting->branches, starting->nodes + first, n, err);
}

static void stop(void *context) {
    struct starting *starting = context;
    branches_destroy(starting->branches);
    free(starting->nodes);
    free(starting->names);
    free(starting);
}

static int fill(struct starting *starting, const struct engine_options *options, ty_error *err) {
    const struct hosts *hosts = options->hosts;
    starting->n = hosts->n;
    starting->copy = options->copy;
    starting->nodes = calloc(hosts->n, sizeof *starting->nodes);
    starting->names = calloc(hosts->n, sizeof *starting->names);
    if (starting->nodes == NULL || starting->names == NULL) return ty_fail_memory(err);
    for (uint32_t rank = 0; rank < hosts->n; rank++) {
        const struct host *host = &hosts->items[rank];
        starting->names[rank] = host->name;
        starting->nodes[rank] = (struct branch_node){
            .rank = rank, .slots = host->slots, .host = host->name, .here = branches_is_here(host->name)};
    }
    return 0;
}

static int prepare(const struct engine_options *options, struct rendezvous_config *config, ty_error *err) {
    int result = ssh_check(options, err);
    if (result < 0) return result;
    struct starting *starting = calloc(1, sizeof *starting);
    if (starting == NULL) return ty_fail_memory(err);
    result = fill(starting, options, err);
    if (result < 0) {
        stop(starting);
        return result;
    }
    config->key = &options->key; /* nobody need give one: agents get it through ssh */
    config->max_nodes = options->max_nodes > 0 ? options->max_nodes : (uint32_t)starting->n;
    config->min_nodes = options->max_nodes > 0 ? options->min_nodes : config->max_nodes;
    config->names = starting->names;
    config->limit = options->join_limit;
    config->starter =
        (struct rendezvous_starter){.start = start, .stop = stop, .patience = PATIENCE, .context = starting};
    return 0;
}

const struct engine engine_ssh = {
    .name = "ssh", .adopts = true, .prepare = prepare, .start_agent = join_start_agent};
