/* `trainyard torchrun`: torchrun's command line, on this machine, or on each of several (docs/torchrun.md). Its
 * options are meant as torchrun means them, or refused by name; those of `trainyard run` that say how a run is
 * named, bounded, stored and shown may stand beside them. */
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/cleanup.h"
#include "base/idset.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cluster/cluster.h"
#include "controller/controller.h"
#include "controller/site.h"
#include "engine/join.h"

/* What torchrun gives workers between SIGTERM and SIGKILL, unless TORCH_ELASTIC_SHUTDOWN_TIMEOUT says
 * otherwise. */
#define SHUTDOWN_STANDARD_S "30"

/* Where torchrun meets when no port is given. */
enum { DYNAMIC_PORT = 29400, STATIC_PORT = 29500 };

/* Nodes give a slot to each of their processes, so that as many workers are on each as were asked for there. */
#define SLOT "process"

struct torchrun_options {
    struct run_options run;
    const char *processes, *run_id, *endpoint, *role, *master_address, *local_address, *signals, *python;
    const char *redirects, *tee, *shown, *key_file;
    int64_t master_port; /* 0: none */
    int backend;         /* of backends; the first by default */
    int is_host;         /* what --rdzv-conf says of it; -1: nothing */
    bool module, no_python, run_path, virtual_local_rank, standalone;
    struct engine_options nodes; /* how many, and where they meet; rendezvous NULL: this one alone */
    struct cluster_overrides offered;
    char *meeting; /* owned; the rendezvous */
};

/* -- setters */

/* Options that torchrun has and we do not: their help says what to do instead. */
static int refuse(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)target, (void)value;
    return ty_fail(err, TY_EUSAGE, "is not there: %s", option->help);
}

static int set_processes(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    static const char *const words[] = {"auto", "cpu", "gpu"};
    int64_t number;
    (void)option;
    bool known = str_to_int64(value, 1, SCALING_MAX_WORKERS, &number);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        known |= str_equal(value, words[i]);
    if (!known)
        return ty_fail(err, TY_EUSAGE, "must be a number from 1 to %d, auto, cpu or gpu", SCALING_MAX_WORKERS);
    ((struct torchrun_options *)target)->processes = value;
    return 0;
}

static int set_restarts(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int64_t restarts = 0;
    (void)option;
    int result = option_whole(value, 0, SETTING_COUNT_MAX, &restarts, err);
    if (result == 0) ((struct torchrun_options *)target)->run.settings.failures.max_failures = (int)restarts;
    return result;
}

static int set_port(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    if (str_to_int64(value, 0, UINT16_MAX, &((struct torchrun_options *)target)->master_port)) return 0;
    return ty_fail(err, TY_EUSAGE, "must be a port from 0 to %d; 0: a free one", UINT16_MAX);
}

/* The colon before the port of HOST:PORT or [ADDRESS]:PORT; NULL without one. */
static const char *port_colon(const char *endpoint) {
    const char *colon = strrchr(endpoint, ':'), *bracket = strrchr(endpoint, ']');
    return colon != NULL && (bracket == NULL || colon > bracket) ? colon : NULL;
}

static int set_endpoint(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    const char *colon = port_colon(value);
    int64_t port;
    (void)option;
    if (colon != NULL && !str_to_int64(colon + 1, 0, UINT16_MAX, &port))
        return ty_fail(err, TY_EUSAGE, "must be HOST or HOST:PORT, with a port from 0 to %d", UINT16_MAX);
    ((struct torchrun_options *)target)->endpoint = value;
    return 0;
}

/* join_timeout and is_host; limits of what torchrun does between its agents have no part here. */
static int take_pair(void *context, char *piece) {
    static const char *const yes[] = {"1", "true", "t", "yes", "y"}, *const no[] = {"0", "false", "f", "no",
                                                                                    "n"};
    struct torchrun_options *options = context;
    char *equals = strchr(piece, '=');
    double seconds;
    if (piece[0] == '\0') return 0;
    if (equals == NULL || equals == piece) return -1;
    *equals++ = '\0';
    for (char *letter = equals; str_equal(piece, "is_host") && *letter != '\0'; letter++)
        *letter = (char)tolower((unsigned char)*letter);
    bool is_yes = str_find(equals, yes, ARRAY_SIZE(yes)) >= 0,
         is_no = str_find(equals, no, ARRAY_SIZE(no)) >= 0;
    if (str_equal(piece, "is_host") && !is_yes && !is_no) return -1;
    if (str_equal(piece, "is_host")) options->is_host = is_yes;
    if (!str_equal(piece, "join_timeout")) return 0;
    if (!str_to_double(equals, &seconds) || !(seconds > 0) || seconds > INT32_MAX) return -1;
    options->nodes.join_limit = (nanoseconds)(seconds * (double)NS_PER_S);
    return 0;
}

static int set_conf(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return str_split(value, ',', take_pair, target) == 0
               ? 0
               : ty_fail(err, TY_EUSAGE,
                         "must be KEY=VALUE,KEY=VALUE; join_timeout is a number of seconds above 0, is_host "
                         "true or false");
}

/* Checked, though it has no effect: what torchrun refuses is refused here, so that a script that works here
 * works there. */
static int set_interval(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    double seconds;
    (void)option, (void)target;
    if (str_to_double(value, &seconds) && seconds > 0) return 0;
    return ty_fail(err, TY_EUSAGE, "must be a number of seconds above 0");
}

static int set_handler(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option, (void)target;
    if (str_equal(value, "null")) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "is not there: events are in the run's journal, `trainyard status NAME` shows them; leave "
                   "the option out, or give null");
}

static int set_numa(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    if (!str_equal(value, "node"))
        return ty_fail(err, TY_EUSAGE, "is not there: node binds workers near their devices, as by default");
    ((struct torchrun_options *)target)->run.settings.bind = BIND_NUMA;
    return 0;
}

static int set_shutdown(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return setting_set_text(setting_find("grace_s"), &((struct torchrun_options *)target)->run.settings, value,
                            err);
}

/* What a map of streams says of one local rank: "3", or "0:1,2:3", where those that are missing are 0. */
struct streams {
    int64_t rank;
    int found;
};

static int take_streams(void *context, char *piece) {
    struct streams *streams = context;
    char *colon = strchr(piece, ':');
    int64_t rank, value;
    if (colon != NULL) *colon++ = '\0';
    if (!str_to_int64(colon != NULL ? colon : piece, 0, 3, &value)) return -1;
    if (colon != NULL && !str_to_int64(piece, 0, SCALING_MAX_WORKERS, &rank)) return -1;
    if (colon == NULL || rank == streams->rank) streams->found = (int)value;
    return 0;
}

static int streams_of(const char *text, int64_t rank) {
    struct streams streams = {.rank = rank};
    bool map = text != NULL && strchr(text, ',') != NULL && strchr(text, ':') == NULL; /* a list is no map */
    if (text == NULL) return 0;
    return map || str_split(text, ',', take_streams, &streams) < 0 ? -1 : streams.found;
}

static int set_streams(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    if (streams_of(value, 0) < 0)
        return ty_fail(err, TY_EUSAGE,
                       "must be 0 (none), 1 (output), 2 (errors) or 3 (both), or one of these for each local "
                       "rank, as in 0:3,1:1");
    *(const char **)((char *)target + option->offset) = value;
    return 0;
}

/* Checked here, and read where the number of ranks is known. */
static int set_shown(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct idset ranks = {0};
    (void)option;
    int result = *value == '\0' ? 0 : idset_parse(&ranks, value, err);
    idset_done(&ranks);
    if (result < 0) return ty_fail(err, TY_EUSAGE, "must be local ranks in their order, as in 0,1,2");
    ((struct torchrun_options *)target)->shown = *value == '\0' ? NULL : value;
    return 0;
}

/* The four that always end a run; one more is heard as a preemption. */
static int take_signal(void *context, char *piece) {
    static const char *const always[] = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"};
    const char **other = context;
    if (str_find(piece, always, ARRAY_SIZE(always)) >= 0) return 0;
    if (!str_prefix(piece, "SIG", NULL) || (*other != NULL && !str_equal(*other, piece))) return -1;
    if (*other == NULL) *other = strdup(piece);
    return *other == NULL ? -1 : 0;
}

static int set_signals(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct torchrun_options *options = target;
    CLEANUP_FREE char *other = NULL;
    (void)option;
    if (str_split(value, ',', take_signal, &other) < 0)
        return ty_fail(err, TY_EUSAGE,
                       "must be names as SIGTERM, with one at most beside SIGTERM, SIGINT, SIGHUP and SIGQUIT");
    options->signals = value;
    if (other == NULL) return 0;
    return setting_set_text(setting_find("preempt_signal"), &options->run.settings, other + strlen("SIG"), err);
}

/* -- the table */

enum { BACKEND_STATIC, BACKEND_C10D };
static const char *const backends[] = {"static", "c10d", "etcd", "etcd-v2", NULL};

#define FIELD(member) offsetof(struct torchrun_options, member)

static const struct option_spec specs[] = {
    {"nproc-per-node", 0, "N|gpu|auto|cpu",
     "how many workers: a number, one for each GPU, for each device (without any: each core), or each core "
     "(default: 1)",
     set_processes, 0, NULL},
    {"nnodes", 0, "N|MIN:MAX",
     "how many machines this command is started on, once on each; MIN:MAX begins with MIN, and others may come "
     "(default: 1:1)",
     option_nodes, FIELD(nodes), NULL},
    {"standalone", 0, NULL, "a run of this machine alone", option_flag, FIELD(standalone), NULL},
    {"max-restarts", 0, "N", "start the workers again after a failure, N times at most (default: 0)",
     set_restarts, 0, NULL},
    {"module", 'm', NULL, "the script is the name of a module, as for `python -m`", option_flag, FIELD(module),
     NULL},
    {"no-python", 0, NULL, "the script is a program of its own, executed without Python", option_flag,
     FIELD(no_python), NULL},
    {"run-path", 0, NULL, "the script is run as `__main__`, as it always is", option_flag, FIELD(run_path),
     NULL},
    {"role", 0, "NAME", "what workers find as ROLE_NAME (default: default)", option_text, FIELD(role), NULL},
    {"log-dir", 0, "DIR", "where the run's directory is made, with the logs in it, as --storage-path",
     option_text, FIELD(run.settings.storage_path), NULL},
    {"redirects", 'r', "N|RANK:N[,...]",
     "streams that are not shown, for all or for each local rank: 0 none, 1 output, 2 errors, 3 both; logs "
     "have all of them (default: 0)",
     set_streams, FIELD(redirects), NULL},
    {"tee", 't', "N|RANK:N[,...]",
     "streams that are shown all the same; lines then begin with [rank N] (default: 0)", set_streams,
     FIELD(tee), NULL},
    {"local-ranks-filter", 0, "RANK[,...]", "show the output of these local ranks only (default: of all)",
     set_shown, 0, NULL},
    {"virtual-local-rank", 0, NULL, "each worker sees its own devices only, and finds LOCAL_RANK 0",
     option_flag, FIELD(virtual_local_rank), NULL},
    {"signals-to-handle", 0, "SIGNAL[,...]",
     "one beside SIGTERM, SIGINT, SIGHUP and SIGQUIT tells of a preemption, as --preempt-signal", set_signals,
     0, NULL},
    {"shutdown-timeout", 0, "SECONDS",
     "what workers get between being told to stop and being killed, as --grace (default: 30, or "
     "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT)",
     set_shutdown, 0, NULL},
    {"numa-binding", 0, "node", "keep workers near their devices' cores, as by default", set_numa, 0, NULL},
    {"master-addr", 0, "HOST",
     "what workers find as MASTER_ADDR (default: this machine's loopback); of several machines, where they "
     "meet",
     option_text, FIELD(master_address), NULL},
    {"master-port", 0, "PORT",
     "what workers find as MASTER_PORT (default: a free one); of several machines, the port where they meet "
     "(default: 29500)",
     set_port, 0, NULL},
    {"local-addr", 0, "HOST", "this machine's address, for MASTER_ADDR where no other option gives it",
     option_text, FIELD(local_address), NULL},
    {"rdzv-backend", 0, "static|c10d|etcd|etcd-v2",
     "one machine needs none; several meet as with c10d, and etcd is not asked", option_choice, FIELD(backend),
     backends},
    {"rdzv-endpoint", 0, "HOST[:PORT]",
     "where several machines meet: an address of one of them, the same on all; on one machine what workers "
     "find as MASTER_ADDR and MASTER_PORT, unless --standalone is given",
     set_endpoint, 0, NULL},
    {"rdzv-id", 0, "ID", "what workers find as TORCHELASTIC_RUN_ID (default: the run's name)", option_text,
     FIELD(run_id), NULL},
    {"rdzv-conf", 0, "KEY=VALUE[,...]",
     "join_timeout=SECONDS, how long machines are waited for (default: 300); is_host=true|false, whether HOST "
     "is this machine; others are without effect",
     set_conf, 0, NULL},
    {"node-rank", 0, "I",
     "which of the machines this is (default: HOST is 0, the others as they come); that of rank 0 has the "
     "controller",
     option_node_rank, FIELD(nodes), NULL},
    {"key-file", 0, "FILE",
     "the key that all machines have, in a file that only you can read, instead of in TRAINYARD_RUN_KEY",
     option_text, FIELD(key_file), NULL},
    {"monitor-interval", 0, "SECONDS", "an end is heard at once: without effect", set_interval, 0, NULL},
    {"event-log-handler", 0, "null", "events are in the run's journal", set_handler, 0, NULL},
    {"logs-specs", 0, "NAME", "logs are in the run's directory; --redirects and --tee say what is shown",
     refuse, 0, NULL},
    {"duplicate-stdout-filters", 0, "TEXT[,...]",
     "`trainyard logs NAME` prints every line, for grep to choose from; leave the option out", refuse, 0, NULL},
    {"duplicate-stderr-filters", 0, "TEXT[,...]",
     "`trainyard logs NAME` prints every line, for grep to choose from; leave the option out", refuse, 0, NULL},
};
const struct option_group torchrun_group = {"torchrun", specs, ARRAY_SIZE(specs)};

/* -- the request */

/* HOST:PORT where machines meet; NULL where there is nobody to meet: 1:MAX without a place is one. */
static int choose_meeting(struct torchrun_options *options, ty_error *err) {
    struct engine_options *nodes = &options->nodes;
    const char *endpoint = options->endpoint;
    bool placed = endpoint != NULL || options->master_address != NULL || options->master_port > 0;
    if (nodes->max_nodes == 1 && nodes->node_rank > 0)
        return ty_fail(err, TY_EUSAGE, "--node-rank %lld: of how many machines? --nnodes says it",
                       (long long)nodes->node_rank);
    if (options->standalone && nodes->min_nodes > 1)
        return ty_fail(err, TY_EUSAGE,
                       "--standalone is a run of this machine alone: --nnodes %u does not go with it",
                       nodes->min_nodes);
    if (nodes->max_nodes == 1 || options->standalone) return 0;
    if (!placed && nodes->min_nodes == 1) return 0;
    if (!placed)
        return ty_fail(err, TY_EUSAGE,
                       "--nnodes %u: where do the machines meet? --rdzv-endpoint HOST:PORT, an address of one "
                       "of them, is missing; 1, or 1:%u, is this one alone",
                       nodes->min_nodes, nodes->max_nodes);
    if (options->backend > BACKEND_C10D)
        return ty_fail(err, TY_EUSAGE,
                       "--rdzv-backend %s: no etcd is asked here: several machines meet at one of them, with "
                       "c10d and its address as --rdzv-endpoint",
                       backends[options->backend]);
    int port = options->backend == BACKEND_C10D ? DYNAMIC_PORT : STATIC_PORT;
    const char *host = endpoint != NULL                  ? endpoint
                       : options->master_address != NULL ? options->master_address
                                                         : "127.0.0.1";
    /* An IPv6 address of --master-addr. */
    bool bare = endpoint == NULL && strchr(host, ':') != NULL && strchr(host, ']') == NULL;
    if (endpoint == NULL && options->master_port > 0) port = (int)options->master_port;
    if (endpoint != NULL && port_colon(endpoint) != NULL)
        options->meeting = strdup(endpoint);
    else
        options->meeting = str_format("%s%s%s:%d", bare ? "[" : "", host, bare ? "]" : "", port);
    if (options->meeting == NULL) return ty_fail_memory(err);
    nodes->rendezvous = options->meeting;
    if (!str_equal(strrchr(options->meeting, ':'), ":0")) return 0;
    return ty_fail(err, TY_EUSAGE, "--rdzv-endpoint %.200s: several machines need a port that all of them know",
                   endpoint);
}

/* Which of the machines this is. */
static int choose_rank(struct torchrun_options *options, ty_error *err) {
    struct engine_options *nodes = &options->nodes;
    bool host = options->is_host > 0;
    int result = options->key_file != NULL ? key_read_file(&nodes->key, options->key_file, err) : 0;
    if (result < 0) return result;
    if (nodes->node_rank >= (int64_t)nodes->max_nodes)
        return ty_fail(err, TY_EUSAGE, "--node-rank %lld: there are %u machines, 0 to %u",
                       (long long)nodes->node_rank, nodes->max_nodes, nodes->max_nodes - 1);
    result = join_check_rendezvous(nodes, err);
    if (result < 0) return ty_wrap(err, "%s", options->endpoint != NULL ? "--rdzv-endpoint" : "--master-addr");
    if (nodes->node_rank >= 0) return 0;
    if (options->is_host < 0) result = join_claim_host(nodes->rendezvous, &host, err);
    nodes->node_rank = host ? 0 : RENDEZVOUS_RANK_NONE;
    return result;
}

/* There are as many workers as asked for, `n` on each machine, whatever it has: no CPUs are counted. Each holds
 * a device where these suffice. */
static int choose_scaling(struct torchrun_options *options, struct scaling *scaling, int64_t *n,
                          ty_error *err) {
    struct cluster *cluster = NULL;
    const struct cluster_overrides none = {.num_cpus = -1, .num_gpus = -1};
    int result = cluster_probe(&none, &cluster, err);
    if (result < 0) return result;
    /* The devices that one process each can hold; TPU chips come by hosts. */
    const struct node_shape *shape = cluster->nodes[0].shape;
    const struct node_devices *devices = NULL;
    for (size_t i = 0; i < shape->n_devices; i++) {
        const struct node_devices *these = &shape->devices[i];
        if (these->n == 0 || str_equal(these->resource, "TPU")) continue;
        if (devices == NULL || str_equal(these->resource, "GPU")) devices = these;
    }
    const char *processes = options->processes;
    bool gpus = devices != NULL && str_equal(devices->resource, "GPU");
    *n = usable_affinity_cores();
    scaling->has_resources = true;
    if (str_equal(processes, "gpu") && !gpus)
        result = ty_fail(err, TY_EUSAGE,
                         "--nproc-per-node gpu: this machine shows no GPU (`trainyard accelerators`); give a "
                         "number, or cpu");
    else if (str_equal(processes, "gpu") || (str_equal(processes, "auto") && devices != NULL))
        *n = (int64_t)devices->n;
    else if (!str_equal(processes, "auto") && !str_equal(processes, "cpu"))
        (void)str_to_int64(processes, 1, SCALING_MAX_WORKERS, n);
    const struct engine_options *nodes = &options->nodes;
    bool alone = nodes->rendezvous == NULL;
    scaling->min_workers = alone ? *n : *n * nodes->min_nodes;
    scaling->max_workers = alone ? *n : *n * nodes->max_nodes;
    if (result >= 0 && scaling->max_workers > SCALING_MAX_WORKERS)
        result = ty_fail(err, TY_EUSAGE, "%lld workers on each of %u machines are more than %d", (long long)*n,
                         nodes->max_nodes, SCALING_MAX_WORKERS);
    bool held = devices != NULL && *n <= (int64_t)devices->n && !str_equal(processes, "cpu");
    scaling->use_gpu = held && gpus;
    if (result >= 0 &&
        (resources_set(&scaling->resources_per_worker, "CPU", 0) < 0 ||
         (!alone && (resources_set(&scaling->resources_per_worker, SLOT, QUANTITY_ONE) < 0 ||
                     resources_set(&options->offered.node_resources, SLOT, *n * QUANTITY_ONE) < 0)) ||
         (held && resources_set(&scaling->resources_per_worker, devices->resource, QUANTITY_ONE) < 0)))
        result = ty_fail_memory(err);
    cluster_destroy(cluster);
    return result;
}

/* Somebody else's port is told before anything starts. */
static int check_port(int64_t port, ty_error *err) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    /* Let go of again: whoever takes it until rank 0 binds it is told of by that. */
    CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0) return 0;
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0) return 0;
    if (errno != EADDRINUSE && errno != EACCES) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "port %lld cannot be had for MASTER_PORT: %s; without --master-port and --rdzv-endpoint a "
                   "free one is found",
                   (long long)port, strerror(errno));
}

/* Variables that workers find in place of those of a run: the address of the world's store, and names. */
static int choose_variables(const struct torchrun_options *options, struct words *variables, ty_error *err) {
    const char *address = options->master_address != NULL ? options->master_address : options->local_address;
    const char *endpoint = options->endpoint;
    int64_t port = options->master_port;
    size_t size = address != NULL ? strlen(address) : 0;
    char text[8];
    if (endpoint != NULL) { /* "[::1]:29400" without its brackets */
        const char *colon = port_colon(endpoint), *bracket = strrchr(endpoint, ']');
        bool bracketed = endpoint[0] == '[' && bracket != NULL;
        if (colon != NULL) (void)str_to_int64(colon + 1, 0, UINT16_MAX, &port);
        address = bracketed ? endpoint + 1 : endpoint;
        size = bracketed       ? (size_t)(bracket - address)
               : colon != NULL ? (size_t)(colon - endpoint)
                               : strlen(endpoint);
    }
    if (options->standalone || options->nodes.rendezvous != NULL) port = 0, size = 0;
    int result = port > 0 ? check_port(port, err) : 0;
    if (result < 0) return result;
    (void)snprintf(text, sizeof text, "%lld", (long long)port);
    const struct {
        const char *name, *value;
        int size; /* -1: all of it */
    } made[] = {{"ROLE_NAME", options->role, -1},
                {"TORCHELASTIC_RUN_ID", options->standalone ? NULL : options->run_id, -1},
                {"TORCHELASTIC_SIGNALS_TO_HANDLE", options->signals, -1},
                {"LOCAL_RANK", options->virtual_local_rank ? "0" : NULL, -1},
                {"MASTER_ADDR", size > 0 ? address : NULL, (int)size},
                {"MASTER_PORT", port > 0 ? text : NULL, -1}};
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        if (made[i].value == NULL) continue;
        char *variable = str_format("%s=%.*s", made[i].name, made[i].size, made[i].value);
        if (words_add(variables, variable) < 0) return ty_fail_memory(err);
    }
    return 0;
}

/* Which streams are shown: those that are not redirected, or teed, of the ranks that are to be seen. */
static int choose_hidden(const struct torchrun_options *options, int64_t n, uint8_t **hidden, ty_error *err) {
    struct idset shown = {0};
    uint8_t *made = calloc((size_t)n, 1);
    int result = made == NULL ? ty_fail_memory(err) : 0;
    if (result >= 0 && options->shown != NULL) result = idset_parse(&shown, options->shown, err);
    for (int64_t rank = 0; rank < n && result >= 0; rank++) {
        int away = streams_of(options->redirects, rank) & ~streams_of(options->tee, rank);
        made[rank] = (uint8_t)(options->shown != NULL && !idset_has(&shown, rank) ? 3 : away);
    }
    idset_done(&shown);
    if (result < 0)
        free(made);
    else
        *hidden = made;
    return result;
}

/* python -u [-m] SCRIPT ARG..., with the interpreter that torchrun would take: $PYTHON_EXEC, or that of the
 * user's PATH. */
static int choose_program(const struct torchrun_options *options, char *const *words, struct words *program,
                          ty_error *err) {
    static const char *const names[] = {"python3", "python"};
    const char *given = getenv("PYTHON_EXEC");
    CLEANUP_FREE char *found = given != NULL && given[0] != '\0' ? strdup(given) : NULL;
    if (options->no_python && options->module)
        return ty_fail(err, TY_EUSAGE,
                       "--no-python executes a program and --module names one of Python: give one of the two");
    for (size_t i = 0; i < ARRAY_SIZE(names) && found == NULL && !options->no_python; i++)
        found = spawn_find(names[i], getenv("PATH"), ".", err);
    if (found == NULL && !options->no_python)
        return ty_fail(err, TY_ESTART,
                       "there is no python3 or python in PATH: PYTHON_EXEC may name an interpreter, and "
                       "--no-python does without");
    int result = 0;
    if (!options->no_python) result = words_add(program, TAKE(found));
    if (result >= 0 && !options->no_python) result = words_add(program, strdup("-u"));
    if (result >= 0 && options->module) result = words_add(program, strdup("-m"));
    for (; *words != NULL && result >= 0; words++)
        result = words_add(program, strdup(*words));
    return result < 0 ? ty_fail_memory(err) : 0;
}

static int drive(struct torchrun_options *options, struct scaling *scaling, const struct arguments *arguments,
                 ty_error *err) {
    CLEANUP(words_done) struct words program = {0}, variables = {0};
    CLEANUP(environment_done) struct environment environment = {0};
    CLEANUP_FREE uint8_t *hidden = NULL;
    int64_t n = 0;
    int result = choose_program(options, arguments->words, &program, err);
    if (result >= 0) result = choose_meeting(options, err);
    if (result >= 0) result = key_take_variable(&options->nodes.key, err); /* no worker finds it */
    if (result >= 0) result = choose_scaling(options, scaling, &n, err);
    if (result >= 0 && options->nodes.rendezvous != NULL) result = choose_rank(options, err);
    if (result >= 0 && options->nodes.rendezvous != NULL && options->nodes.node_rank > 0)
        return join_options_serve(&options->nodes, options->run.settings.name, command_torchrun.name,
                                  &options->offered);
    if (result >= 0) result = choose_variables(options, &variables, err);
    if (result >= 0) result = choose_hidden(options, n, &hidden, err);
    if (result >= 0) result = run_environment_make(&options->run.environment, NULL, &environment, err);
    if (result < 0) return result;
    struct run_request request = {
        .settings = options->run.settings,
        .scaling = scaling,
        .engine = options->nodes.rendezvous != NULL ? engine_join.name : "local",
        .engine_options = options->nodes.rendezvous != NULL ? &options->nodes : NULL,
        .overrides = &options->offered,
        .argv = (const char *const *)program.items,
        .environment = environment.items,
        .replaced = variables.items,
        .hidden = hidden,
        .alone = true,
        .handle_signals = true,
    };
    request.settings.no_prefix |= options->tee == NULL;
    request.settings.isolate_devices |= options->virtual_local_rank;
    return run_to_its_end(command_torchrun.name, &request, arguments, err);
}

static int run_torchrun(const struct arguments *arguments, ty_error *err) {
    struct torchrun_options options = {
        .processes = "1",
        .is_host = -1,
        .nodes = {.min_nodes = 1, .max_nodes = 1, .node_rank = -1},
        .offered = {.num_cpus = -1, .num_gpus = -1},
    };
    struct run_settings *settings = &options.run.settings;
    struct scaling scaling;
    scaling_init(&scaling);
    /* What torchrun does by default, before any option. */
    const char *timeout = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    int result = site_settings(settings, err);
    if (result >= 0) {
        settings->framework = "torch";
        settings->start_method = "auto";
        result = setting_set_text(setting_find("grace_s"), settings,
                                  timeout != NULL ? timeout : SHUTDOWN_STANDARD_S, err);
        if (result < 0) result = ty_wrap(err, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=%.80s", timeout);
    }
    if (result >= 0) result = options_apply(arguments, (void *[]){&options, &options.run, &options.run}, err);
    if (result >= 0) result = settings_finish(settings, FACE_COMMAND, err);
    if (result >= 0 && *arguments->words[0] == '\0')
        result = ty_fail(err, TY_EUSAGE, "the script's name is empty");
    if (result >= 0) result = drive(&options, &scaling, arguments, err);
    key_forget(&options.nodes.key);
    resources_done(&options.offered.node_resources);
    free(options.meeting);
    text_list_done(&options.run.environment);
    scaling_done(&scaling);
    return result;
}

const struct command command_torchrun = {
    .name = "torchrun",
    .summary = "run a script as torchrun does",
    .usage = (const char *const[]){"[OPTION...] [--] SCRIPT [ARG...]", NULL},
    .description =
        "Takes torchrun's command line and its PET_ variables, and runs the script with Python once for each "
        "worker, on this machine or, started on each of them, on several. Workers find in their environment "
        "what torchrun sets; names may be written with dashes or underscores. Where the machine has a GPU for "
        "each worker, each holds one, so that runs beside each other do not share them by accident.\n\n"
        "The options of `trainyard run` that name, bound, store and show a run may stand beside torchrun's. "
        "The exit status is that of the first worker that failed.",
    .examples = (const char *const[]){"trainyard torchrun --nproc-per-node 8 train.py --lr 0.1",
                                      "eight workers, each with a GPU where there are eight",
                                      "trainyard torchrun --standalone --nproc-per-node gpu -m package.train",
                                      "one worker for each GPU",
                                      "trainyard torchrun --nnodes 2 --rdzv-endpoint node-0:29400 train.py",
                                      "on two machines, the same line on each", NULL},
    .groups = (const struct option_group *const[]){&torchrun_group, &run_policy_group, &run_group, NULL},
    .min_words = 1,
    .rest = true,
    .drives = true,
    .missing =
        "which script? It goes behind the options: trainyard torchrun --nproc-per-node 4 train.py ARG...",
    .rewrite = torchrun_rewrite,
    .run = run_torchrun,
};
