/* The controller's side of engine join: what its options mean for the rendezvous, and how a node of the run is
 * given its agent, which has joined already. No options of its own but --nnodes, --node-rank, --rendezvous, and
 * the key. */
#include "engine/join.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/address.h"
#include "engine/local.h"
#include "wire/channel.h"

int join_parse_nodes(const char *value, struct engine_options *options, ty_error *err) {
    char least[16] = "";
    int64_t min, max;
    const char *colon = strchr(value, ':');
    if (colon != NULL && (size_t)(colon - value) < sizeof least) memcpy(least, value, (size_t)(colon - value));
    if (!str_to_int64(colon != NULL ? colon + 1 : value, 1, RENDEZVOUS_NODES_MAX, &max) ||
        !str_to_int64(colon != NULL ? least : value, 1, max, &min))
        return ty_fail(err, TY_EUSAGE, "\"%.40s\" is neither a number of nodes, 1 to %d, nor MIN:MAX", value,
                       RENDEZVOUS_NODES_MAX);
    options->min_nodes = (uint32_t)min;
    options->max_nodes = (uint32_t)max;
    return 0;
}

int join_parse_rank(const char *value, struct engine_options *options, ty_error *err) {
    if (str_to_int64(value, 0, RENDEZVOUS_NODES_MAX - 1, &options->node_rank)) return 0;
    return ty_fail(err, TY_EUSAGE, "\"%.40s\" is not the rank of a node, 0 to %d", value,
                   RENDEZVOUS_NODES_MAX - 1);
}

int join_read_variables(struct engine_options *options, struct hosts *hosts, ty_error *err) {
    static const struct {
        const char *name;
        int (*parse)(const char *value, struct engine_options *options, ty_error *err);
    } numbers[] = {{JOIN_NODES_VARIABLE, join_parse_nodes}, {JOIN_RANK_VARIABLE, join_parse_rank}};
    static const struct {
        const char *name;
        int (*read)(const char *value, struct hosts *hosts, ty_error *err);
    } lists[] = {{HOSTS_VARIABLE, hosts_parse}, {HOSTFILE_VARIABLE, hosts_read}};
    const char *said = NULL;
    options->rendezvous = getenv(JOIN_MEETING_VARIABLE);
    if (options->rendezvous != NULL) said = JOIN_MEETING_VARIABLE;
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        const char *value = getenv(numbers[i].name);
        if (value == NULL) continue;
        if (numbers[i].parse(value, options, err) < 0) return ty_wrap(err, "%s", numbers[i].name);
        said = numbers[i].name;
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const char *value = getenv(lists[i].name);
        if (value == NULL) continue;
        if (said != NULL)
            return ty_fail(err, TY_EUSAGE, "%s and %s say where the run goes: give one of the two", said,
                           lists[i].name);
        if (lists[i].read(value, hosts, err) < 0) return ty_wrap(err, "%s", lists[i].name);
        options->hosts = hosts;
        said = lists[i].name;
    }
    return 0;
}

int join_check(const struct engine_options *options, ty_error *err) {
    if (options->max_nodes == 0 && options->rendezvous == NULL && options->node_rank < 0) return 0;
    if (options->max_nodes == 0)
        return ty_fail(err, TY_EUSAGE, "--nnodes N is missing: on how many nodes is this command started?");
    if (options->max_nodes > 1 && options->rendezvous == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "--nnodes %u: --rendezvous HOST:PORT is missing: where the nodes meet, an address of "
                       "the node of rank 0",
                       options->max_nodes);
    if (options->max_nodes > 1 && options->node_rank < 0)
        return ty_fail(err, TY_EUSAGE, "--node-rank I is missing: which of the %u nodes is this one, 0 to %u?",
                       options->max_nodes, options->max_nodes - 1);
    if (options->node_rank >= (int64_t)options->max_nodes)
        return ty_fail(err, TY_EUSAGE, "--node-rank %lld: there are %u nodes, 0 to %u",
                       (long long)options->node_rank, options->max_nodes, options->max_nodes - 1);
    int result = options->max_nodes > 1 ? join_check_rendezvous(options, err) : 0;
    return result < 0 ? ty_wrap(err, "--rendezvous") : 0;
}

/* A name is resolved only where it matters, without a key: elsewhere the resolver may not know it yet. */
int join_check_rendezvous(const struct engine_options *options, ty_error *err) {
    char one[300];
    int result = 0;
    for (const char *at = options->rendezvous; at != NULL && result == 0;) {
        struct address_name name;
        struct address_list list = {0};
        at = address_next(at, one, sizeof one);
        result = address_parse(one, &name, err);
        if (result == 0 && options->key.text[0] == '\0') result = address_resolve(&name, &list, err);
        for (size_t i = 0; i < list.n && result == 0; i++)
            if (!address_is_loopback(&list.items[i])) result = address_fail_keyless(one, err);
    }
    return result;
}

/* By a socket with a name, which is gone with this process. */
static bool claim(const struct address *address) {
    struct sockaddr_un name;
    char text[64];
    address_format(address, text);
    socklen_t size = descriptors_name(&name, "trainyard-rendezvous/%s", text);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&name, size) < 0) return false;
    (void)TAKE_FD(fd); /* it stays open */
    return true;
}

/* An address is this machine's where a socket can be bound to it, on a port that the kernel chooses: that takes
 * no list of interfaces, and knows of each that has been given an address of its own. */
int join_claim_host(const char *rendezvous, bool *claimed, ty_error *err) {
    struct address_name name;
    struct address_list list = {0};
    *claimed = false;
    int result = address_parse(rendezvous, &name, err);
    if (result < 0) return result;
    if (address_resolve(&name, &list, NULL) < 0) return 0; /* as a node it tries again, and says why not */
    for (size_t i = 0; i < list.n; i++) {
        struct address here = list.items[i];
        address_set_port(&here, 0);
        CLEANUP_FD int fd = socket(here.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&here.socket, here.size) < 0) continue;
        *claimed = claim(&list.items[i]);
        return 0;
    }
    return 0;
}

static int prepare(const struct engine_options *options, struct rendezvous_config *config, ty_error *err) {
    int result = join_check(options, err);
    if (result < 0) return result;
    config->listen = options->rendezvous;
    config->key = &options->key;
    config->min_nodes = options->min_nodes;
    config->max_nodes = options->max_nodes;
    config->local = true;
    config->limit = options->join_limit;
    return 0;
}

/* One that joined has its process elsewhere, and its devices are claimed where it is: the lease of this machine
 * is for the agent of this machine. */
int join_start_agent(const struct engine_agent *agent, int lease_fd, struct engine_handle *handle,
                     ty_error *err) {
    const Wire__Start *start = agent->start;
    if (rendezvous_is_local(agent->rendezvous, start->node_name))
        return engine_local.start_agent(agent, lease_fd, handle, err);
    struct engine_handle made = {.channel_fd = -1, .pid = -1, .pidfd = -1};
    int result = rendezvous_take(agent->rendezvous, start->node_name, start, &made.channel, err);
    if (result == 0) *handle = made;
    return result;
}

const struct engine engine_join = {.name = "join",
                                   .adopts = true,
                                   .outlive = 60 * NS_PER_S,
                                   .prepare = prepare,
                                   .start_agent = join_start_agent};
