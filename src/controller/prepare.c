/* Request -> demand -> cluster -> plan -> lease. The plan is made with what others leave free and claimed then;
 * as two runs may do so at once, each looks again behind its claim, and withdraws a claim that does not fit.
 * Nothing is started or made here but the rendezvous of an engine whose nodes join; what a plan is, and what a
 * lease, is known in the rooms placement and cluster. */
#include "controller/prepare.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "wire/frame.h"
#include "worker/link.h"

/* Of a launch message: the rest is for what each worker of a node has for itself. */
enum { LAUNCH_SHARED_MAX = FRAME_MAX / 4 * 3 };

static size_t size_of_texts(char *const *texts) {
    size_t size = 0;
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++)
        size += strlen(texts[i]) + 1;
    return size;
}

/* All of it goes to each agent in one message. */
static int check_launch_size(const struct run_request *request, ty_error *err) {
    char *const *variables = request->environment == NULL ? environ : request->environment;
    size_t arguments =
        size_of_texts((char *const *)request->argv) + size_of_texts((char *const *)request->template_argv);
    size_t environment = size_of_texts(variables);
    size_t all = arguments + environment + request->payload_size;
    if (all <= LAUNCH_SHARED_MAX) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "a run of %zu bytes (arguments %zu, environment %zu, config %zu) is over the limit of %d: put what "
        "is large into a file",
        all, arguments, environment, request->payload_size, LAUNCH_SHARED_MAX);
}

/* Variables that are read later as a length of time: no run begins with a value that cannot be one. */
static int check_environment(const struct run_request *request, ty_error *err) {
    static const char *const names[] = {WORKER_COLLECTIVE_VARIABLE, TEMPLATE_LIMIT_VARIABLE};
    char *const *entry = request->environment == NULL ? environ : request->environment;
    for (; *entry != NULL; entry++) {
        const char *value;
        nanoseconds unused;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            if (!str_prefix(*entry, names[i], &value) || value[0] != '=') continue;
            int result = duration_of_variable(names[i], value + 1, &unused, err);
            if (result < 0) return result;
        }
    }
    return log_check_level(err);
}

static int check_rank(enum setting_member member, const struct run_settings *settings, int rank, uint64_t n,
                      ty_error *err) {
    char setting[SETTING_SPELLED];
    if (rank < 0 || (uint64_t)rank < n) return 0;
    (void)setting_spelled(member, settings->face, setting);
    if (n == 1) return ty_fail(err, TY_EUSAGE, "%s %d: there is one worker, rank 0", setting, rank);
    return ty_fail(err, TY_EUSAGE, "%s %d: there are %llu workers, ranks 0 to %llu", setting, rank,
                   (unsigned long long)n, (unsigned long long)n - 1);
}

static int check_metrics_file(const struct run_settings *settings, ty_error *err) {
    char setting[SETTING_SPELLED];
    struct stat status;
    const char *path = settings->metrics_file, *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (path == NULL) return 0;
    (void)setting_spelled(SETTING_IS_metrics_file, settings->face, setting);
    CLEANUP_FREE char *directory =
        slash == NULL ? strdup(".") : strndup(path, slash > path ? (size_t)(slash - path) : 1);
    if (directory == NULL) return ty_fail_memory(err);
    if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode)) /* nor a link, such as /dev/stdout */
        return ty_fail(err, TY_EUSAGE, "%s %s: it is there, and no regular file", setting, path);
    if (access(directory, W_OK | X_OK) == 0) return 0;
    return ty_fail(err, TY_EUSAGE, "%s %s: no file can be made in %s: %s", setting, path, directory,
                   strerror(errno));
}

/* A /proc of other processes, as a space of them (PID namespace) has that mounted none of its own, has
 * strangers under the numbers of ours. */
static int check_machine(ty_error *err) {
    char number[16] = "";
    if (access("/dev/null", R_OK | W_OK) < 0)
        return ty_fail(err, TY_EUNSUPPORTED, "cannot open /dev/null: %s: mount /dev", strerror(errno));
    if (access("/proc/self/stat", R_OK) < 0 || readlink("/proc/self", number, sizeof number - 1) < 0)
        return ty_fail(err, TY_EUNSUPPORTED,
                       "cannot read /proc: mount it, since what outlives its worker is found there");
    if (strtol(number, NULL, 10) == getpid()) return 0;
    return ty_fail(err, TY_EUNSUPPORTED,
                   "/proc tells of other processes than those that this one sees, of which it is number %d and "
                   "not %s: mount one of this PID namespace (unshare --mount-proc)",
                   getpid(), number);
}

/* A user who says what this machine has, or which logical ones, means this machine. */
int prepare_engine(const struct run_request *request, const struct engine **engine, ty_error *err) {
    const struct cluster_overrides *overrides = request->overrides;
    bool told = request->cluster_file != NULL ||
                (overrides != NULL && (overrides->num_cpus >= 0 || overrides->num_gpus >= 0));
    const struct engine_options *options = request->engine_options;
    bool joins = options != NULL && (options->max_nodes > 1 || options->hosts != NULL);
    bool automatic = request->engine == NULL || str_equal(request->engine, "auto");
    return engine_find(told && automatic && !joins ? "local" : request->engine, options, engine, err);
}

int prepare_check(const struct run_request *request, struct prepared *prepared, ty_error *err) {
    const struct run_settings *settings = &request->settings;
    struct demand *demand = &prepared->demand;
    char directory[PATH_MAX];
    int result = check_launch_size(request, err);
    if (result >= 0) result = check_environment(request, err);
    if (result >= 0) result = prepare_engine(request, &prepared->engine, err);
    if (result >= 0) result = framework_find(settings->framework, &prepared->framework, err);
    if (result < 0) return result;
    bool said = settings->outlive >= 0;
    prepared->outlive = !prepared->engine->adopts ? -1 : said ? settings->outlive : prepared->engine->outlive;
    if (settings->resume != NULL && settings->name == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "to resume a run takes its name (--resume NAME; resume=True and name=): `trainyard "
                       "status` lists them");
    result = file_working_directory(directory, sizeof directory, err);
    if (result >= 0) result = scaling_resolve(request->scaling, request->train_v1, demand, err);
    if (result < 0) return result;
    if (demand->max_workers == 0)
        return ty_fail(err, TY_EUSAGE,
                       "num_workers must be at least 1 here; 0 (local mode) runs without workers");
    result = check_rank(SETTING_IS_debug, settings, settings->debug, demand->max_workers, err);
    if (result >= 0) result = check_rank(SETTING_IS_input, settings, settings->input, demand->max_workers, err);
    if (result >= 0) result = check_metrics_file(settings, err);
    if (result < 0) return result;
    return check_machine(err);
}

/* `n`: how many nodes there are to be. */
static int set_spares(const struct run_request *request, size_t n, struct prepared *prepared, ty_error *err) {
    char spares[SETTING_SPELLED], failures[SETTING_SPELLED];
    size_t wanted = (size_t)request->settings.spares;
    if (wanted == 0 || prepared->most_nodes > 0) return 0;
    (void)setting_spelled(SETTING_IS_spares, request->settings.face, spares);
    (void)setting_spelled(SETTING_IS_max_failures, request->settings.face, failures);
    if (wanted >= n)
        return ty_fail(err, TY_EUSAGE, "%s %zu: of %zu node%s at least one must have workers", spares, wanted,
                       n, n == 1 ? "" : "s");
    if (request->settings.failures.max_failures == 0)
        return ty_fail(err, TY_EUSAGE, "%s %zu: the loss of a node is a failure, of which %s allows none",
                       spares, wanted, failures);
    prepared->most_nodes = n - wanted;
    return 0;
}

int prepare_gather(const struct run_request *request, const char *run_path, struct prepared *prepared,
                   ty_error *err) {
    if (prepared->engine->prepare == NULL) return 0;
    struct rendezvous_config config = {.overrides = request->overrides,
                                       .run = request->settings.name,
                                       .run_path = run_path,
                                       .outlives = prepared->outlive > 0};
    int result = prepared->engine->prepare(request->engine_options, &config, err);
    if (result >= 0) result = set_spares(request, config.max_nodes, prepared, err);
    if (result < 0) return result;
    if (config.min_nodes == config.max_nodes) config.min_nodes -= (uint32_t)request->settings.spares;
    prepared->loop = config.loop = loop_create(err);
    if (prepared->loop == NULL) return err->code;
    config.signals_fd = request->engine_options != NULL ? request->engine_options->signals_fd : 0;
    result = rendezvous_open(&config, &prepared->rendezvous, err);
    if (result >= 0 && (result = rendezvous_wait(prepared->rendezvous, err)) == TY_ESTART)
        scheduler_explain(prepared->engine);
    return result;
}

/* Which nodes stay in the cluster while spare ones are taken out of it, one after another in its order. */
struct holding_back {
    const struct prepare_again *again;   /* NULL: the run has not begun */
    const struct rendezvous *rendezvous; /* of whose nodes those that are adrift stay; NULL: none does */
    size_t left;                         /* that stay besides */
};

static bool drop(void *context, const char *name) {
    struct holding_back *holding = context;
    const struct prepare_again *again = holding->again;
    if (again != NULL && again->away != NULL && again->away(again->context, name)) return true;
    if (holding->rendezvous != NULL && rendezvous_adrift(holding->rendezvous, name) != NULL) return false;
    if (holding->left == 0) return true;
    holding->left--;
    return false;
}

/* The nodes to plan on: the first that are there, without those that are away and those that are spare. Of an
 * attempt that may go on these are others than at first, where spare nodes have taken over. */
static int look_at_cluster(const struct run_request *request, struct prepared *prepared,
                           const struct prepare_again *again, ty_error *err) {
    static const struct cluster_overrides none = {.num_cpus = -1, .num_gpus = -1};
    struct rendezvous *rendezvous = prepared->rendezvous;
    struct cluster **cluster = &prepared->cluster;
    int result;
    cluster_destroy(TAKE(*cluster));
    if (rendezvous != NULL && prepared->engine->look != NULL)
        result = prepared->engine->look(rendezvous, &prepared->demand, cluster, err);
    else if (rendezvous != NULL)
        result = rendezvous_cluster(rendezvous, cluster, err);
    else if (request->cluster_file != NULL)
        result = cluster_read(request->cluster_file, cluster, err);
    else
        result = cluster_probe(request->overrides == NULL ? &none : request->overrides, cluster, err);
    if (result >= 0) result = set_spares(request, (*cluster)->n, prepared, err);
    if (result < 0) return result;
    struct holding_back holding = {again, NULL, prepared->most_nodes > 0 ? prepared->most_nodes : SIZE_MAX};
    size_t n_adrift = 0;
    for (size_t i = 0; rendezvous != NULL && i < (*cluster)->n; i++)
        n_adrift += rendezvous_adrift(rendezvous, (*cluster)->nodes[i].name) != NULL;
    if (n_adrift <= holding.left) {
        holding.rendezvous = rendezvous;
        holding.left -= n_adrift;
    }
    cluster_drop_nodes(*cluster, drop, &holding);
    return 0;
}

bool prepare_needs_devices(const struct demand *demand) {
    for (size_t i = 0; i < demand->per_worker.n; i++)
        if (accelerator_is_device(demand->per_worker.items[i].name)) return true;
    return false;
}

/* Places all workers on the cluster as it stands. */
static int plan(struct prepared *prepared, ty_error *err) {
    plan_destroy(TAKE(prepared->plan));
    int result = plan_make(prepared->cluster, &prepared->demand, &prepared->plan, err);
    if (result < 0 || prepared->plan->verdict == PLAN_FEASIBLE) return result;
    CLEANUP(buffer_done) struct buffer why = {0};
    buffer_text(&why, prepared->plan->reason);
    bool busy = prepared->plan->verdict == PLAN_BUSY;
    if (busy && prepared->rendezvous != NULL) rendezvous_list_holders(prepared->rendezvous, &why);
    if (why.failed) return ty_fail_memory(err);
    return ty_fail(err, busy ? TY_EBUSY : TY_EINFEASIBLE, "%s", why.data);
}

/* The first of a node's workers: ranks go node by node. */
static size_t first_rank(const struct plan *plan, size_t node_rank) {
    size_t low = 0, high = plan->n_workers;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->workers[middle].node_rank < node_rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The amount that the plan takes of each device of a node, in the order of the devices. */
static void sum_grants(const struct prepared *prepared, size_t node_rank, quantity *const *taken) {
    const struct plan *plan = prepared->plan;
    const struct node_shape *shape = prepared->cluster->nodes[plan->node_order[node_rank]].shape;
    for (size_t rank = first_rank(plan, node_rank);
         rank < plan->n_workers && plan->workers[rank].node_rank == node_rank; rank++) {
        const struct plan_worker *worker = &plan->workers[rank];
        for (uint32_t g = 0; g < worker->n_grants; g++) {
            const struct grant *grant = &plan->grants[worker->first_grant + g];
            const char *resource = shape->devices[grant->devices].resource;
            quantity amount = resources_get(&prepared->demand.per_worker, resource);
            for (uint32_t i = 0; i < grant->n; i++)
                taken[grant->devices][plan->positions[grant->first + i]] +=
                    amount > QUANTITY_ONE ? QUANTITY_ONE : amount;
        }
    }
}

int prepare_claims(const struct prepared *prepared, size_t node_rank, struct lease_claim **claims, size_t *n,
                   ty_error *err) {
    const struct node_shape *shape = prepared->cluster->nodes[prepared->plan->node_order[node_rank]].shape;
    size_t all = 0;
    for (size_t d = 0; d < shape->n_devices; d++)
        all += shape->devices[d].n;
    CLEANUP_FREE quantity *amounts = calloc(all + 1, sizeof *amounts);
    CLEANUP_FREE quantity **taken = calloc(shape->n_devices + 1, sizeof *taken);
    struct lease_claim *made = calloc(all + 1, sizeof *made);
    if (amounts == NULL || taken == NULL || made == NULL) {
        free(made);
        return ty_fail_memory(err);
    }
    for (size_t d = 0, at = 0; d < shape->n_devices; at += shape->devices[d++].n)
        taken[d] = amounts + at;
    sum_grants(prepared, node_rank, taken);
    *n = 0;
    for (size_t d = 0; d < shape->n_devices; d++)
        for (size_t i = 0; i < shape->devices[d].n; i++)
            if (taken[d][i] > 0) lease_claim_device(&shape->devices[d], i, taken[d][i], &made[(*n)++]);
    *claims = made;
    return 0;
}

void holder_list_done(struct holder_list *list) {
    lease_holders_free(list->items, list->n);
    *list = (struct holder_list){0};
}

/* The cluster as the leases of other runs leave it. */
static int look_at_leases(const struct prepared *prepared, struct holder_list *holders, ty_error *err) {
    holder_list_done(holders);
    int result = lease_holders(prepared->lease, &holders->items, &holders->n, err);
    for (size_t i = 0; result >= 0 && i < holders->n; i++) {
        /* What an agent of a dead controller of this run holds is the run's own. A run of the same name that
         * lives has a controller. */
        struct lease_holder *holder = &holders->items[i];
        bool left = prepared->left != NULL && str_equal(holder->run, prepared->left) && holder->pid == 0 &&
                    holder->owner == geteuid();
        if (left) holder->n = 0;
    }
    return result < 0 ? result : lease_apply(holders->items, holders->n, prepared->cluster, err);
}

static int look_and_plan(struct prepared *prepared, struct holder_list *holders, ty_error *err) {
    int result = look_at_leases(prepared, holders, err);
    return result < 0 ? result : plan(prepared, err);
}

/* Claims what the plan needs. 1 when the claim stands, 0 when somebody claimed the same at the same time: then
 * it is withdrawn. */
static int claim(const struct prepared *prepared, struct holder_list *holders, ty_error *err) {
    CLEANUP_FREE struct lease_claim *claims = NULL;
    const struct plan *plan = prepared->plan;
    size_t n = 0, node_rank = 0;
    while (node_rank < plan->n_nodes_used && plan->node_order[node_rank] != 0)
        node_rank++;
    int result = node_rank < plan->n_nodes_used ? prepare_claims(prepared, node_rank, &claims, &n, err) : 0;
    if (result >= 0) result = lease_claim(prepared->lease, claims, n, err);
    if (result >= 0) result = look_at_leases(prepared, holders, err);
    if (result >= 0 && lease_fits(claims, n, prepared->cluster)) return 1;
    int withdrawn = lease_claim(prepared->lease, NULL, 0, result < 0 ? NULL : err);
    return result < 0 ? result : withdrawn;
}

/* Two that claim the same at once both withdraw; a pause of random length (lease_pause) keeps them from doing
 * so again in step. */
static int plan_and_claim(struct prepared *prepared, struct holder_list *holders, ty_error *err) {
    for (int tries = 0; tries < LEASE_TRIES; tries++) {
        int result = look_and_plan(prepared, holders, err);
        if (result >= 0) result = claim(prepared, holders, err);
        if (result != 0) return result;
        lease_pause(tries);
    }
    return ty_fail(err, TY_EBUSY, "somebody else claimed what was free, each of %d times", LEASE_TRIES);
}

/* The first node is this machine, whose devices the controller claims. Others are claimed by their agents, each
 * where it is. */
static bool has_own_devices(const struct prepared *prepared) {
    const struct cluster *cluster = prepared->cluster;
    if (prepared->rendezvous == NULL) return !cluster->logical;
    if (prepared->engine->allots) return false;
    return cluster->n > 0 && cluster->nodes[0].shape->n_devices > 0 &&
           rendezvous_is_local(prepared->rendezvous, cluster->nodes[0].name);
}

int prepare_plan(const struct run_request *request, const char *run_name, struct prepared *prepared,
                 struct holder_list *holders, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    bool left = prepared->rendezvous != NULL && rendezvous_has_left(prepared->rendezvous);
    if (left) prepared->left = run_name;
    *holders = (struct holder_list){0};
    int result = look_at_cluster(request, prepared, NULL, err);
    if (result < 0) return result;
    if (!has_own_devices(prepared) || !prepare_needs_devices(&prepared->demand)) {
        result = plan(prepared, err);
    } else {
        result = lease_open(run_name, &prepared->lease, err);
        if (result >= 0) result = plan_and_claim(prepared, holders, err);
        if (result < 0) lease_release(TAKE(prepared->lease));
    }
    if (result != TY_EBUSY) holder_list_done(holders);
    prepared->plan_time = clock_monotonic() - begin;
    return result < 0 ? result : 0;
}

int prepare_again(const struct run_request *request, const struct prepared *prepared,
                  struct prepare_again *again, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    struct prepared *planned = &again->planned;
    *planned = *prepared;
    planned->cluster = NULL;
    planned->plan = NULL;
    int result = look_at_cluster(request, planned, again, err);
    if (result < 0) return result;
    if (prepared->lease == NULL || !has_own_devices(planned)) {
        result = plan(planned, err);
    } else if (!again->claim) {
        result = look_and_plan(planned, &again->holders, err);
    } else {
        result = plan_and_claim(planned, &again->holders, err);
        /* Whoever waits keeps nobody waiting. Nothing is let go of while there is another way. */
        if (result < 0 && again->away == NULL && planned->demand.elastic)
            (void)lease_claim(planned->lease, NULL, 0, NULL);
    }
    planned->plan_time = clock_monotonic() - begin;
    return result < 0 ? result : 0;
}

void prepare_again_done(struct prepare_again *again) {
    plan_destroy(again->planned.plan);
    cluster_destroy(again->planned.cluster);
    holder_list_done(&again->holders);
}

void prepare_done(struct prepared *prepared) {
    lease_release(TAKE(prepared->lease));
    plan_destroy(TAKE(prepared->plan));
    cluster_destroy(TAKE(prepared->cluster));
    rendezvous_close(TAKE(prepared->rendezvous), ty_error_exit_status(TY_ESTART));
    if (prepared->loop != NULL) loop_destroy(TAKE(prepared->loop));
    demand_done(&prepared->demand);
}
