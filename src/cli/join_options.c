/* The options of a run on several machines (--nnodes, --node-rank, --rendezvous, --key-file, and the hosts),
 * their variables, what they demand of each other, and the way of the nodes that serve another's controller.
 * How nodes find each other is the engine's (engine/rendezvous.h). */
#include "cli/run_options.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/join.h"
#include "engine/join_node.h"

int option_nodes(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    return join_parse_nodes(value, (void *)((char *)target + option->offset), err);
}

int option_node_rank(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    return join_parse_rank(value, (void *)((char *)target + option->offset), err);
}

/* The hosts are in the value of --hosts, or in the file that --hostfile names. */
static int set_hosts(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct join_options *join = target;
    struct hosts hosts = {0};
    int result =
        str_equal(option->name, "hosts") ? hosts_parse(value, &hosts, err) : hosts_read(value, &hosts, err);
    if (result < 0) return result;
    hosts_done(&join->hosts);
    join->hosts = hosts;
    join->options.hosts = &join->hosts;
    return 0;
}

static const struct option_spec join_specs[] = {
    {"nnodes", 0, "N|MIN:MAX",
     "how many nodes this command is started on, once on each; MIN:MAX begins with MIN, and others may come",
     option_nodes, offsetof(struct join_options, options), NULL},
    {"node-rank", 0, "I", "which of them this is, from 0; that of rank 0 has the controller", option_node_rank,
     offsetof(struct join_options, options), NULL},
    {"rendezvous", 0, "HOST:PORT", "where they meet: an address of the node of rank 0; the same on all",
     option_text, offsetof(struct join_options, options.rendezvous), NULL},
    {"hosts", 0, "HOST[:SLOTS][,...]",
     "start agents on these hosts by ssh: a,b:8,gpu[01-04]; SLOTS is how many CPUs are taken there (default: "
     "all)",
     set_hosts, 0, NULL},
    {"hostfile", 0, "FILE", "the same from a file, a line each: HOST, HOST:SLOTS, or HOST slots=N", set_hosts,
     0, NULL},
    {"copy", 0, NULL, "bring the trainyard command and its library to hosts of --hosts that do not have them",
     option_flag, offsetof(struct join_options, options.copy), NULL},
    {"key-file", 0, "FILE",
     "the key that all of them have, in a file that only you can read, instead of in TRAINYARD_RUN_KEY; "
     "`openssl rand -hex 32` makes one; without a key only loopback is served",
     option_text, offsetof(struct join_options, key_file), NULL},
};
const struct option_group join_group = {"Several machines", join_specs, ARRAY_SIZE(join_specs)};

void join_options_init(struct join_options *join) {
    *join = (struct join_options){.options = {.node_rank = -1}};
}

/* Whoever says where the run goes is not overruled by the environment. */
static int read_variables(struct join_options *join, const struct cluster_options *cluster, ty_error *err) {
    const struct engine_options *options = &join->options;
    bool said = options->max_nodes > 0 || options->node_rank >= 0 || options->rendezvous != NULL ||
                options->hosts != NULL || cluster->cluster_file != NULL ||
                (cluster->engine != NULL && !str_equal(cluster->engine, "auto"));
    return said ? 0 : join_read_variables(&join->options, &join->hosts, err);
}

int join_options_finish(struct join_options *join, const struct cluster_options *cluster, ty_error *err) {
    int result = read_variables(join, cluster, err);
    if (result < 0) return result;
    if (cluster->cluster_file != NULL && (join->options.hosts != NULL || join->options.max_nodes > 1))
        return ty_fail(err, TY_EUSAGE,
                       "--cluster %.200s: its nodes are all on this machine, those of --hosts and --nnodes are "
                       "others: give one of them",
                       cluster->cluster_file);
    result = key_take_variable(&join->options.key, err);
    if (result == 0 && join->key_file != NULL) result = key_read_file(&join->options.key, join->key_file, err);
    if (result < 0) return result;
    if (join->options.hosts != NULL) return ssh_check(&join->options, err);
    if (join->options.copy)
        return ty_fail(err, TY_EUSAGE, "--copy is for the hosts of --hosts or --hostfile, and there are none");
    return join_check(&join->options, err);
}

/* Such a node waits for another controller where its own died: whoever typed the command may resume the run
 * there. */
int join_options_serve(const struct engine_options *nodes, const char *run, const char *command,
                       const struct cluster_overrides *overrides) {
    const struct join_node node = {
        .command = command,
        .rendezvous = nodes->rendezvous,
        .node_rank = (uint32_t)nodes->node_rank,
        .run = run,
        .key = nodes->key,
        .overrides = overrides,
        .awaits_another = true,
        .limit = nodes->join_limit,
    };
    return join_node_serve(&node);
}
