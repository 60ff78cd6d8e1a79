/* Request -> demand -> cluster -> plan -> lease. */
#include "controller/prepare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "wire/frame.h"

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

int prepare_check(const struct run_request *request, struct prepared *prepared, ty_error *err) {
    int result = check_launch_size(request, err);
    if (result < 0) return result;
    result = engine_find(request->engine, &prepared->engine, err);
    if (result < 0) return result;
    result = framework_find(request->settings.framework, &prepared->framework, err);
    if (result < 0) return result;
    if (request->settings.resume != NULL && request->settings.name == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "to resume a run takes its name (--resume NAME; resume=True and name=): `trainyard "
                       "status` lists them");
    result = scaling_resolve(request->scaling, request->train_v1, &prepared->demand, err);
    if (result < 0) return result;
    if (prepared->demand.max_workers == 0)
        return ty_fail(err, TY_EUSAGE,
                       "num_workers must be at least 1 here; 0 (local mode) runs without workers");
    if (access("/proc/self/stat", R_OK) < 0)
        return ty_fail(err, TY_EUNSUPPORTED,
                       "cannot read /proc: mount it, since what outlives its worker is found there");
    return 0;
}

static int look_at_cluster(const struct run_request *request, struct prepared *prepared, ty_error *err) {
    cluster_destroy(TAKE(prepared->cluster));
    if (request->cluster_file != NULL) return cluster_read(request->cluster_file, &prepared->cluster, err);
    struct cluster_overrides none = {.num_cpus = -1, .num_gpus = -1};
    return cluster_probe(request->overrides == NULL ? &none : request->overrides, &prepared->cluster, err);
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
    return ty_fail(err, prepared->plan->verdict == PLAN_BUSY ? TY_EBUSY : TY_EINFEASIBLE, "%s",
                   prepared->plan->reason);
}

/* Every device of the plan as a claim; the number of them. `claims` may be NULL. */
static size_t list_claims(const struct prepared *prepared, struct lease_claim *claims) {
    const struct plan *plan = prepared->plan;
    const struct cluster *cluster = prepared->cluster;
    size_t at = 0;
    for (size_t rank = 0; rank < plan->n_workers; rank++) {
        const struct plan_worker *worker = &plan->workers[rank];
        const struct node_shape *shape = cluster->nodes[worker->node].shape;
        for (uint32_t g = 0; g < worker->n_grants; g++) {
            const struct grant *grant = &plan->grants[worker->first_grant + g];
            const struct node_devices *devices = &shape->devices[grant->devices];
            quantity amount = resources_get(&prepared->demand.per_worker, devices->resource);
            if (amount > QUANTITY_ONE) amount = QUANTITY_ONE;
            for (uint32_t i = 0; i < grant->n; i++, at++)
                if (claims != NULL)
                    lease_claim_device(devices, plan->positions[grant->first + i], amount, &claims[at]);
        }
    }
    return at;
}

static int claim(int directory, const char *run_name, struct prepared *prepared, ty_error *err) {
    size_t n = list_claims(prepared, NULL);
    CLEANUP_FREE struct lease_claim *claims = calloc(n + 1, sizeof *claims);
    if (claims == NULL) return ty_fail_memory(err);
    (void)list_claims(prepared, claims);
    return lease_claim(directory, run_name, claims, n, &prepared->lease, err);
}

static int plan_and_claim(const char *run_name, struct prepared *prepared, struct lease_holder **holders,
                          size_t *n_holders, ty_error *err) {
    int directory;
    int result = lease_begin(&directory, err);
    if (result < 0) return result;
    result = lease_holders(directory, NULL, holders, n_holders, err);
    if (result >= 0) result = lease_apply(*holders, *n_holders, prepared->cluster, err);
    if (result >= 0) result = plan(prepared, err);
    if (result >= 0) result = claim(directory, run_name, prepared, err);
    lease_end(directory);
    return result;
}

int prepare_plan(const struct run_request *request, const char *run_name, struct prepared *prepared,
                 struct lease_holder **holders, size_t *n_holders, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    *holders = NULL;
    *n_holders = 0;
    int result = look_at_cluster(request, prepared, err);
    if (result < 0) return result;
    if (prepared->cluster->logical || !prepare_needs_devices(&prepared->demand))
        result = plan(prepared, err);
    else
        result = plan_and_claim(run_name, prepared, holders, n_holders, err);
    if (result != TY_EBUSY) {
        lease_holders_free(*holders, *n_holders);
        *holders = NULL;
        *n_holders = 0;
    }
    prepared->plan_time = clock_monotonic() - begin;
    return result;
}

/* The run's lease for what was planned, or for nothing: whoever waits keeps nobody waiting. */
static int change_lease(const char *run_name, const struct prepared *planned, ty_error *err) {
    bool fits = planned->plan != NULL && planned->plan->verdict == PLAN_FEASIBLE;
    size_t n = fits ? list_claims(planned, NULL) : 0;
    CLEANUP_FREE struct lease_claim *claims = calloc(n + 1, sizeof *claims);
    if (claims == NULL) return ty_fail_memory(err);
    if (fits) (void)list_claims(planned, claims);
    return lease_change(planned->lease, run_name, claims, n, err);
}

static int plan_again_and_claim(const char *run_name, struct prepare_again *again, ty_error *err) {
    struct prepared *planned = &again->planned;
    int directory;
    int result = lease_begin(&directory, err);
    if (result < 0) return result;
    result = lease_holders(directory, planned->lease, &again->holders, &again->n_holders, err);
    if (result >= 0) result = lease_apply(again->holders, again->n_holders, planned->cluster, err);
    if (result >= 0) result = plan(planned, err);
    bool changes = again->claim &&
                   (result >= 0 || again->away == NULL); /* nothing is let go of while there is another way */
    int changed = changes ? change_lease(run_name, planned, result < 0 ? NULL : err) : 0;
    lease_end(directory);
    return result < 0 ? result : changed;
}

int prepare_again(const struct run_request *request, const char *run_name, const struct prepared *prepared,
                  struct prepare_again *again, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    again->planned = *prepared;
    again->planned.cluster = NULL;
    again->planned.plan = NULL;
    int result = look_at_cluster(request, &again->planned, err);
    if (result < 0) return result;
    if (again->away != NULL) cluster_drop_nodes(again->planned.cluster, again->away, again->context);
    result = prepared->lease == NULL ? plan(&again->planned, err) : plan_again_and_claim(run_name, again, err);
    again->planned.plan_time = clock_monotonic() - begin;
    return result;
}

void prepare_again_done(struct prepare_again *again) {
    plan_destroy(again->planned.plan);
    cluster_destroy(again->planned.cluster);
    lease_holders_free(again->holders, again->n_holders);
}

void prepare_done(struct prepared *prepared) {
    lease_release(TAKE(prepared->lease));
    plan_destroy(TAKE(prepared->plan));
    cluster_destroy(TAKE(prepared->cluster));
    demand_done(&prepared->demand);
}
