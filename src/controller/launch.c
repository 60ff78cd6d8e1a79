/* The launch messages of an attempt: all that the workers of each node need, so that nothing is asked for
 * later. Shared variables are computed once and sent once a node; a worker's own ones travel with it. Where
 * workers go was planned before (placement/plan.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/module.h"
#include "cluster/topology.h"
#include "controller/ty_run.h"
#include "engine/join.h"
#include "wire/frame.h"
#include "wire/key.h"
#include "worker/link.h"

/* The parts of the messages that are alike for all nodes. */
struct launch {
    const struct ty_run *run;
    struct framework_context framework;
    struct environment shared;
    size_t *first; /* ranks of node n: ranks[first[n]] up to ranks[first[n + 1]] */
    uint32_t *ranks;
    const char *const *argv; /* the request's, or `executed` */
    const char **executed;   /* owned list: the framework's command in front */
    const char **addresses;  /* owned list: of each rank's node */
    char directory[4096];
    struct digest work; /* what workers are to do */
};

static int set_shared(void *context, const char *name, const char *value) {
    return environment_set(context, name, value);
}

/* Ranks sorted by node, in rank order within one: a counting sort. The counts stand two places further on: as
 * ranks are put in, the beginning of each node moves on to that of the next, and comes to lie at its own place.
 */
static int group_ranks(struct launch *launch) {
    const struct plan *plan = launch->run->prepared.plan;
    launch->first = calloc(plan->n_nodes_used + 2, sizeof *launch->first);
    launch->ranks = calloc(plan->n_workers, sizeof *launch->ranks);
    if (launch->first == NULL || launch->ranks == NULL) return -1;
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        launch->first[plan->workers[rank].node_rank + 2]++;
    for (size_t node = 0; node < plan->n_nodes_used; node++)
        launch->first[node + 2] += launch->first[node + 1];
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        launch->ranks[launch->first[plan->workers[rank].node_rank + 1]++] = (uint32_t)rank;
    return 0;
}

/* The command line of workers: the program itself, or the command that the framework has in front of it. */
static int choose_argv(struct launch *launch, ty_error *err) {
    const char *const *argv = launch->run->request->argv;
    const char *name = launch->run->prepared.framework->command;
    size_t n = 0;
    launch->argv = argv;
    if (name == NULL || launch->run->request->executable != NULL) return 0;
    const char *command = module_command(err);
    if (command == NULL) return err != NULL && err->code < 0 ? err->code : TY_ESTART;
    while (argv[n] != NULL)
        n++;
    launch->executed = calloc(n + 3, sizeof *launch->executed);
    if (launch->executed == NULL) return ty_fail_memory(err);
    launch->executed[0] = command;
    launch->executed[1] = name;
    memcpy(launch->executed + 2, argv, n * sizeof *argv);
    launch->argv = launch->executed;
    return 0;
}

/* The variables that all workers have: those of the request, without what an outer run set for this process,
 * and the framework's. */
static int fill_shared(struct launch *launch, ty_error *err) {
    static const char *const outer[] = {WORKER_VARIABLES,   KEY_VARIABLE,          JOIN_NODES_VARIABLE,
                                        JOIN_RANK_VARIABLE, JOIN_MEETING_VARIABLE, HOSTS_VARIABLE,
                                        HOSTFILE_VARIABLE,  ENGINE_VARIABLE};
    const struct run_request *request = launch->run->request;
    char *const *inherited = request->environment == NULL ? environ : request->environment;
    bool may_lose = request->settings.checkpoints.on_error == CHECKPOINT_ERROR_CONTINUE;
    int result = environment_add(&launch->shared, inherited);
    for (size_t i = 0; i < ARRAY_SIZE(outer) && result >= 0; i++)
        result = environment_set(&launch->shared, outer[i], NULL);
    if (result >= 0)
        result = environment_set(&launch->shared, WORKER_LOSS_VARIABLE, may_lose ? "continue" : NULL);
    if (result < 0) return ty_fail_memory(err);
    launch->framework.user_environment = inherited;
    result = launch->run->prepared.framework->shared(&launch->framework, set_shared, &launch->shared, err);
    if (result < 0 || request->replaced == NULL) return result;
    return environment_add(&launch->shared, request->replaced) < 0 ? ty_fail_memory(err) : 0;
}

int launch_create(const struct ty_run *run, int attempt, struct launch **out, ty_error *err) {
    struct launch *launch = calloc(1, sizeof *launch);
    if (launch == NULL) return ty_fail_memory(err);
    const struct peer *first = &run->agents.peers[run->agents.node_of[0]];
    launch->run = run;
    launch->framework = (struct framework_context){
        .plan = run->prepared.plan,
        .cluster = run->prepared.cluster,
        .demand = &run->prepared.demand,
        .run_name = run->name,
        .run_path = run->path,
        .token = run->token,
        .attempt = attempt,
        .max_failures = run->request->settings.failures.max_failures,
        .master_address = first->address,
        .master_port = run->launched.port_numbers[0],
        .ports = run->launched.port_numbers + 1,
        .isolate_devices = run->request->settings.isolate_devices,
        .backend = run->request->settings.backend,
    };
    int result = file_working_directory(launch->directory, sizeof launch->directory, err);
    if (run->prepared.outlive > 0) adoption_name_work(run, launch->directory, &launch->work);
    launch->framework.addresses = launch->addresses =
        calloc(run->prepared.plan->n_workers, sizeof *launch->addresses);
    if (result >= 0 && (group_ranks(launch) < 0 || launch->addresses == NULL)) result = ty_fail_memory(err);
    for (size_t rank = 0; result >= 0 && rank < run->prepared.plan->n_workers; rank++)
        launch->addresses[rank] = run->agents.peers[run->agents.node_of[rank]].address;
    if (result >= 0) result = choose_argv(launch, err);
    if (result >= 0) result = fill_shared(launch, err);
    if (result < 0) {
        launch_destroy(launch);
        return result;
    }
    *out = launch;
    return 0;
}

void launch_destroy(struct launch *launch) {
    if (launch == NULL) return;
    environment_done(&launch->shared);
    free(launch->first);
    free(launch->ranks);
    free(launch->executed);
    free(launch->addresses);
    free(launch);
}

/* Own variables of a worker: "K=V" sets, "K" removes. The items are owned, and become the message's. */
struct own_variables {
    char *const *replaced; /* what stands for all workers in place of their own */
    char **items;
    size_t n;
};

/* Whether an entry "NAME=VALUE" of the list, which may be NULL, is of this name. */
static bool list_sets(char *const *list, const char *name) {
    size_t size = strlen(name);
    for (; list != NULL && *list != NULL; list++)
        if (strncmp(*list, name, size) == 0 && (*list)[size] == '=') return true;
    return false;
}

static int add_own(void *context, const char *name, const char *value) {
    struct own_variables *own = context;
    if (list_sets(own->replaced, name)) return 0;
    if (ARRAY_GROW(own->items, own->n) < 0) return -1;
    struct buffer text = {0};
    buffer_text(&text, name);
    if (value != NULL) buffer_printf(&text, "=%s", value);
    own->items[own->n] = buffer_take(&text);
    if (own->items[own->n] == NULL) return -1;
    own->n++;
    return 0;
}

static void free_worker(Wire__LaunchWorker *worker) {
    if (worker == NULL) return;
    for (size_t i = 0; i < worker->n_environment; i++)
        free(worker->environment[i]);
    free(worker->environment);
    if (worker->cpus != protobuf_c_empty_string) free(worker->cpus);
    free(worker);
}

/* Cores near the worker's devices, where the user wants that and the machine has more than one NUMA node. */
static void bind(const struct launch *launch, uint32_t rank, Wire__LaunchWorker *out) {
    const struct prepared *prepared = &launch->run->prepared;
    if (launch->run->request->settings.bind != BIND_NUMA || prepared->cluster->logical ||
        !topology_worthwhile())
        return;
    const struct plan_worker *worker = &prepared->plan->workers[rank];
    const struct node_shape *shape = prepared->cluster->nodes[worker->node].shape;
    const char *bus_ids[64]; /* PCI addresses of the devices, as many as are known */
    struct topology_request request = {
        .bus_ids = bus_ids, .index = worker->local_rank, .of = worker->local_world_size};
    for (uint32_t g = 0; g < worker->n_grants; g++) {
        const struct grant *grant = &prepared->plan->grants[worker->first_grant + g];
        const struct node_devices *devices = &shape->devices[grant->devices];
        for (uint32_t i = 0; i < grant->n && request.n < ARRAY_SIZE(bus_ids) && devices->bus_ids != NULL; i++)
            bus_ids[request.n++] = devices->bus_ids[prepared->plan->positions[grant->first + i]];
    }
    struct topology_place place = {0};
    if (topology_place(&request, &place, NULL) < 0) return;
    struct buffer cpus = {0};
    idset_format(&place.cores, &cpus);
    char *text = buffer_take(&cpus);
    if (text != NULL) out->cpus = text;
    topology_place_done(&place);
}

/* All that one worker has for itself. NULL: memory is short, or the framework says in `err` what is wrong. */
static Wire__LaunchWorker *make_worker(const struct launch *launch, uint32_t rank, ty_error *err) {
    static const char *const interfaces[] = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};
    const struct run_request *request = launch->run->request;
    struct own_variables own = {.replaced = request->replaced};
    Wire__LaunchWorker *out = malloc(sizeof *out);
    if (out == NULL) return NULL;
    wire__launch_worker__init(out);
    out->rank = rank;
    out->local_rank = launch->run->prepared.plan->workers[rank].local_rank;
    if (request->hidden != NULL) out->hidden = request->hidden[out->local_rank];
    int result = launch->run->prepared.framework->worker(&launch->framework, rank, add_own, &own, err);
    const struct rendezvous *rendezvous = launch->run->prepared.rendezvous;
    if (result >= 0 && rendezvous != NULL) {
        /* The address at which workers of other machines reach this one, and the interface by which it reaches
         * them, unless the user names one. */
        const struct peer *peer = &launch->run->agents.peers[launch->run->agents.node_of[rank]];
        const char *interface = rendezvous_interface_of(rendezvous, peer->name);
        result = add_own(&own, WORKER_ADDRESS_VARIABLE, peer->address);
        for (size_t i = 0; i < ARRAY_SIZE(interfaces) && result == 0; i++)
            if (*interface != '\0' && !list_sets(launch->framework.user_environment, interfaces[i]))
                result = add_own(&own, interfaces[i], interface);
    }
    out->environment = own.items;
    out->n_environment = own.n;
    const struct run_settings *settings = &launch->run->request->settings;
    out->input = settings->input == RANK_ALL || (settings->input >= 0 && (uint32_t)settings->input == rank);
    out->pty = settings->pty || (settings->debug >= 0 && (uint32_t)settings->debug == rank);
    bind(launch, rank, out);
    if (result >= 0) return out;
    free_worker(out);
    return NULL;
}

/* All of it is borrowed: the message is packed before any of it changes. */
static void fill_message(const struct launch *launch, Wire__Launch *message) {
    const struct ty_run *run = launch->run;
    const struct run_request *request = run->request;
    const char *checkpoint = run_checkpoint(run->core);
    message->run = run->name;
    message->attempt = (uint32_t)launch->framework.attempt;
    message->run_path = run->path;
    message->working_directory = (char *)launch->directory;
    message->argv = (char **)launch->argv;
    while (launch->argv[message->n_argv] != NULL)
        message->n_argv++;
    if (request->executable != NULL) message->executable = (char *)request->executable;
    message->environment = launch->shared.items;
    message->n_environment = launch->shared.n;
    message->payload = (ProtobufCBinaryData){request->payload_size, (uint8_t *)request->payload};
    message->grace = request->settings.grace;
    message->hang_timeout = request->settings.hang_timeout;
    message->linger = request->settings.linger;
    if (run->prepared.outlive > 0) message->outlive = run->prepared.outlive;
    message->work = (char *)launch->work.xxh3;
    message->by_fields = request->settings.face == FACE_FIELDS;
    message->sample = request->settings.sample;
    message->log_limit = request->settings.log_limit;
    message->preempt_signal = preempt_signal_of(request);
    message->report_base = run_report_base(run->core);
    if (checkpoint != NULL) message->checkpoint = (char *)checkpoint;
    message->quiet = request->settings.quiet;
    if (request->settings.start_method != NULL) message->start_method = (char *)request->settings.start_method;
    message->template_argv = (char **)request->template_argv;
    while (request->template_argv != NULL && request->template_argv[message->n_template_argv] != NULL)
        message->n_template_argv++;
}

void node_token(const char *run_token, uint32_t node, char token[NODE_TOKEN_SIZE]) {
    (void)snprintf(token, NODE_TOKEN_SIZE, "%s-%u", run_token, node);
}

/* One frame for a node, so that none of its workers starts while others cannot; the price is the bound of a
 * frame (prepare.c looks at it before anything begins). Colours, the size of the terminal and whether lines are
 * drawn live are those of this process's terminal at this moment. */
int launch_frame(const struct launch *launch, const struct peer *peer, struct buffer *out, ty_error *err) {
    uint32_t node_rank = peer->node_rank;
    size_t first = launch->first[node_rank], n = launch->first[node_rank + 1] - first;
    Wire__Launch body = WIRE__LAUNCH__INIT;
    char token[NODE_TOKEN_SIZE];
    fill_message(launch, &body);
    node_token(launch->run->token, peer->node, token);
    body.token = token;
    if (peer_is_remote(peer) && launch->run->lock != NULL)
        body.storage = (char *)run_lock_text(launch->run->lock);
    bool raw = launch->run->request->settings.no_prefix;
    body.prefix = !raw;
    body.escape = !raw || (launch->run->prepared.plan->n_workers > 1 && isatty(STDOUT_FILENO));
    body.pass = raw && launch->run->prepared.plan->n_workers == 1;
    body.live = body.pass ? 0 : progress_streams(&launch->run->output.progress);
    body.colour = progress_draws_on(STDOUT_FILENO);
    window_measure(&body.rows, &body.columns);
    body.workers = calloc(n, sizeof(Wire__LaunchWorker *));
    int result = body.workers == NULL ? ty_fail_memory(err) : 0;
    for (size_t i = 0; i < n && result >= 0; i++) {
        body.workers[i] = make_worker(launch, launch->ranks[first + i], err);
        if (body.workers[i] == NULL)
            result = err != NULL && err->code < 0 ? err->code : ty_fail_memory(err);
        else
            body.n_workers++;
    }
    if (result >= 0 && peer_is_remote(peer))
        result = claims_list(&launch->run->prepared, node_rank, &body.claims, &body.n_claims, err);
    const Wire__Message *message = &WIRE_MESSAGE(LAUNCH, launch, &body);
    if (result >= 0) {
        int framed = frame_message(message, out);
        if (framed == -ENOMEM)
            result = ty_fail_memory(err);
        else if (framed < 0)
            result =
                ty_fail(err, TY_EUSAGE,
                        "program, environment and config of the %zu workers of node %u are %zu bytes, over "
                        "the limit of %d",
                        body.n_workers, node_rank, wire__message__get_packed_size(message), FRAME_MAX);
    }
    for (size_t i = 0; i < body.n_workers; i++)
        free_worker(body.workers[i]);
    free(body.workers);
    claims_free(body.claims, body.n_claims);
    return result;
}
