/* `trainyard agent`: the process that an engine starts for each node, on this machine with the channel as a
 * descriptor, elsewhere with the address of the controller. Not for people, and on the way of every start: its
 * few words are read by hand. */
#include "agent/agent.h"

#include <limits.h>
#include <stdint.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "agent/stacks.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "cluster/hosts.h"
#include "engine/branches.h"
#include "engine/join_node.h"
#include "engine/rendezvous.h"
#include "usage/usage.h"

static int fail(const ty_error *err) {
    terminal_error("agent", err->message);
    return ty_error_exit_status(err->code);
}

/* --rendezvous LIST --node-rank I [--node-name NAME] [--run NAME] [--key none] [--slots N] [--num-gpus N]
 * [--ends-with input|early-input] [--awaits another]: the key is in the environment, or the first line of
 * standard input, with whose end the agent may be told to end (early: until it has begun a run); where the
 * controller died it may be told to wait for another one. */
static int join(int argc, char **argv) {
    struct join_node node = {.command = "agent"};
    ty_error err = {0};
    int64_t rank = -1, slots = 0, gpus = -1;
    bool keyless = false;
    struct cluster_overrides overrides = {.num_cpus = -1, .num_gpus = -1};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (str_equal(argv[i], "--rendezvous"))
            node.rendezvous = argv[i + 1];
        else if (str_equal(argv[i], "--node-name"))
            node.node_name = argv[i + 1];
        else if (str_equal(argv[i], "--num-gpus") && str_to_int64(argv[i + 1], 0, NODE_MAX_DEVICES, &gpus))
            overrides.num_gpus = (double)gpus;
        else if (str_equal(argv[i], "--run"))
            node.run = argv[i + 1];
        else if (str_equal(argv[i], "--key"))
            keyless = str_equal(argv[i + 1], "none");
        else if (str_equal(argv[i], "--ends-with"))
            node.ends_with_input = str_equal(argv[i + 1], "input") ||
                                   (node.outlives_input = str_equal(argv[i + 1], "early-input"));
        else if (str_equal(argv[i], "--awaits"))
            node.awaits_another = str_equal(argv[i + 1], "another");
        else if (str_equal(argv[i], "--slots") && str_to_int64(argv[i + 1], 1, HOST_SLOTS_MAX, &slots))
            overrides.num_cpus = (double)slots;
        else if (!str_equal(argv[i], "--node-rank") ||
                 !str_to_int64(argv[i + 1], 0, RENDEZVOUS_NODES_MAX - 1, &rank))
            rank = -1;
    }
    if (argc % 2 == 0 || node.rendezvous == NULL || rank < 0) {
        terminal_error("agent", "--rendezvous HOST:PORT[,HOST:PORT...] --node-rank I [--node-name NAME] "
                                "[--num-gpus N] [--key none]");
        return ty_error_exit_status(TY_EUSAGE);
    }
    node.node_rank = (uint32_t)rank;
    node.overrides = &overrides;
    if (key_take_variable(&node.key, &err) < 0) return fail(&err);
    /* Whoever starts an agent by ssh writes the key to its standard input: its command line would be seen by
     * all users of the host, and sshd takes few variables along. */
    bool asks = node.key.text[0] == '\0' && !keyless;
    if (asks && key_read_line(&node.key, STDIN_FILENO, &err) < 0) return fail(&err);
    return join_node_serve(&node);
}

int command_agent_main(int argc, char **argv) {
    int64_t channel = -1;
    int64_t copy = 0;
    /* First the one that every start of a node takes, then those that are asked for seldom. */
    bool plain =
        argc == 3 || (argc == 5 && str_equal(argv[3], "--copy") && str_to_int64(argv[4], 1, INT_MAX, &copy));
    if (plain && str_equal(argv[1], "--channel-fd") && str_to_int64(argv[2], 0, INT_MAX, &channel))
        return agent_main((int)channel, (pid_t)copy);
    if (argc > 1 && str_equal(argv[1], "--stacks")) return stack_save_main(argc - 1, argv + 1);
    if (argc > 1 && str_equal(argv[1], "--looks")) return looks_main(argc - 1, argv + 1);
    if (argc > 1 && str_equal(argv[1], "--sample")) return usage_sampler_main(argc - 1, argv + 1);
    if (argc > 1 && str_equal(argv[1], "--metrics-file")) return metrics_file_main(argc - 1, argv + 1);
    if (argc > 1 && str_equal(argv[1], "--rendezvous")) return join(argc, argv);
    if (argc > 2 && str_equal(argv[1], "--branches")) return branches_main(argc - 2, argv + 2);
    terminal_error("agent", "this is started by `trainyard run`: --channel-fd N, or --rendezvous HOST:PORT");
    return ty_error_exit_status(TY_EUSAGE);
}
