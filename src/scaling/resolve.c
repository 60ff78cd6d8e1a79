/* From the config to the demand (docs/spec/train-api.md 1.4). Nothing of the config is changed or borrowed.
 * What one worker needs is decided here and nowhere else; whether any node has it is the planner's question
 * (placement/planner.h). */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/device.h"
#include "scaling/parts.h"
#include "scaling/tpu.h"

enum { TYPE_AMOUNT = QUANTITY_ONE / 1000 }; /* so that at most 1000 workers share a node of the type */

void demand_done(struct demand *demand) {
    resources_done(&demand->per_worker);
    resources_done(&demand->trainer);
    free(demand->domain);
    free(demand->accelerator_type);
    scaling_selectors_done(demand->selectors, demand->n_selectors);
    scaling_slice_done(&demand->tpu);
    free(demand->deprecation);
    free(demand->warning);
    *demand = (struct demand){0};
}

static int copy_without_zeros(struct resources *to, const struct resources *from) {
    for (size_t i = 0; i < from->n; i++)
        if (from->items[i].amount != 0 && resources_set(to, from->items[i].name, from->items[i].amount) < 0)
            return -ENOMEM;
    return 0;
}

/* Of a worker for whom nothing was written: a GPU, the TPU of a host (of a slice) or of a chip, or a CPU. */
static int default_resources(const struct scaling *scaling, const struct tpu_demand *tpu, int64_t units,
                             struct resources *resources) {
    if (scaling->use_gpu) return resources_set(resources, "GPU", QUANTITY_ONE);
    if (!scaling->use_tpu) return resources_set(resources, "CPU", QUANTITY_ONE);
    int64_t chips = tpu->workers_per_slice > 0 ? tpu->chips_per_host : 1;
    return resources_set(resources, "TPU", chips * units * QUANTITY_ONE);
}

/* What one worker holds by the rules of 1.4; `resources` was empty and is changed also on failure. */
static int resolve_worker(const struct scaling *scaling, const struct tpu_demand *tpu,
                          struct resources *resources, ty_error *err) {
    int64_t units;
    int result = tpu_units_per_chip(&units, err);
    if (result < 0) return result;
    /* A worker of a slice has a CPU unless its user wrote an amount, 0 included (1.6). */
    if (tpu->workers_per_slice > 0 && !resources_has(&scaling->resources_per_worker, "CPU"))
        result = resources_set(resources, "CPU", QUANTITY_ONE);
    if (result == 0)
        result = scaling->has_resources ? copy_without_zeros(resources, &scaling->resources_per_worker)
                                        : default_resources(scaling, tpu, units, resources);
    if (result == 0 && scaling->use_gpu && resources_get(resources, "GPU") == 0)
        result = resources_set(resources, "GPU", QUANTITY_ONE);
    return result < 0 ? ty_fail_memory(err) : 0;
}

/* For a TPU the name that nodes carry ("v6e" -> "TPU-V6E"), else as given; a worker holds a little of the type,
 * unless its user wrote how much. */
static int resolve_type(const struct scaling *scaling, struct demand *demand, ty_error *err) {
    CLEANUP(buffer_done) struct buffer name = {0};
    char generation[16];
    if (scaling->accelerator_type == NULL) return 0;
    if (scaling->use_tpu) {
        int result = scaling_generation(scaling, generation, err);
        if (result < 0) return result;
        for (char *at = generation; *at != '\0'; at++)
            *at = (char)toupper((unsigned char)*at);
    }
    buffer_printf(&name, ACCELERATOR_TYPE_PREFIX "%s%s", scaling->use_tpu ? "TPU-" : "",
                  scaling->use_tpu ? generation : scaling->accelerator_type);
    if (name.failed) return ty_fail_memory(err);
    demand->accelerator_type = strdup(name.data + strlen(ACCELERATOR_TYPE_PREFIX));
    if (demand->accelerator_type == NULL) return ty_fail_memory(err);
    if (resources_has(&demand->per_worker, name.data)) return 0;
    return resources_set(&demand->per_worker, name.data, TYPE_AMOUNT) < 0 ? ty_fail_memory(err) : 0;
}

/* Selectors that constrain nothing are none. */
static int resolve_selectors(const struct scaling *scaling, struct demand *demand) {
    size_t constraints = 0;
    for (size_t i = 0; i < scaling->n_selectors; i++)
        constraints += scaling->selectors[i].n;
    if (constraints == 0) return 0;
    if (scaling_selectors_copy(&demand->selectors, scaling->selectors, scaling->n_selectors) < 0)
        return -ENOMEM;
    demand->n_selectors = scaling->n_selectors;
    return 0;
}

static int add_advice(const struct scaling *scaling, bool train_v1, struct demand *demand) {
    struct buffer deprecation = {0}, warning = {0};
    if (scaling->has_trainer_resources && !train_v1)
        buffer_printf(&deprecation,
                      "%s is deprecated (ray-project/ray issue 49454): it is still reserved beside rank 0; "
                      "leave it out to give the trainer nothing",
                      spelled(scaling->face, SPELL_TRAINER_RESOURCES));
    if (scaling->topology != NULL && !scaling->use_tpu)
        buffer_printf(&warning, "%s has no effect without %s", spelled(scaling->face, SPELL_TOPOLOGY),
                      spelled(scaling->face, SPELL_USE_TPU));
    bool failed = deprecation.failed || warning.failed;
    if (deprecation.size > 0) demand->deprecation = buffer_take(&deprecation);
    if (warning.size > 0) demand->warning = buffer_take(&warning);
    return failed ? -ENOMEM : 0;
}

static int resolve(const struct scaling *scaling, bool train_v1, struct demand *demand, ty_error *err) {
    int result = scaling_validate_first(scaling, err);
    if (result == 0) result = scaling_resolve_slice(scaling, &demand->tpu, err);
    if (result == 0) result = resolve_worker(scaling, &demand->tpu, &demand->per_worker, err);
    if (result == 0) result = scaling_validate_rest(scaling, &demand->per_worker, err);
    if (result == 0) result = resolve_type(scaling, demand, err);
    if (result < 0) return result;
    demand->face = scaling->face;
    demand->min_workers = (size_t)scaling->min_workers;
    demand->max_workers = (size_t)scaling->max_workers;
    demand->elastic = scaling->elastic;
    const struct topology_strategy *topology = &scaling->topology_strategy;
    demand->strategy = topology->given ? topology->nodes : scaling->placement_strategy;
    if (scaling_copy_text(&demand->domain, topology->domain) < 0) return ty_fail_memory(err);
    if (scaling->has_trainer_resources)
        result = copy_without_zeros(&demand->trainer, &scaling->trainer_resources);
    else if (train_v1)
        result = resources_set(&demand->trainer, "CPU", QUANTITY_ONE);
    if (result < 0 || add_advice(scaling, train_v1, demand) < 0 || resolve_selectors(scaling, demand) < 0)
        return ty_fail_memory(err);
    return 0;
}

/* The total of the most workers is made and dropped: where it can be counted, no sum that is made of a part of
 * the demand overflows later, and the planner need not look. */
int scaling_resolve(const struct scaling *scaling, bool train_v1, struct demand *demand, ty_error *err) {
    struct demand made = {0};
    int result = resolve(scaling, train_v1, &made, err);
    if (result == 0) {
        struct resources total = {0};
        result = demand_total(&made, made.max_workers, &total, err); /* refuses what cannot be counted */
        resources_done(&total);
    }
    if (result < 0)
        demand_done(&made);
    else
        *demand = made;
    return result;
}

static int is_nccl(void *context, char *piece) {
    (void)context;
    return str_equal(piece, "nccl") || str_equal(piece, "cuda:nccl");
}

const char *demand_sharing_warning(const struct demand *demand, const char *backend) {
    quantity gpu = resources_get(&demand->per_worker, "GPU");
    bool nccl = backend == NULL || str_split(backend, ',', is_nccl, NULL) == 1;
    if (demand->max_workers < 2 || gpu == 0 || gpu >= QUANTITY_ONE || !nccl) return NULL;
    return "workers that hold less than one GPU share it, and two ranks on one device fail inside NCCL "
           "(\"Duplicate GPU detected\"): use the backend gloo, or whole GPUs";
}

static int add_amount(struct resources *total, const char *name, quantity amount, size_t times, ty_error *err) {
    quantity product, sum;
    if (!quantity_multiply(amount, (int64_t)times, &product) ||
        __builtin_add_overflow(product, resources_get(total, name), &sum) || sum > QUANTITY_MAX)
        return ty_fail(err, TY_EUSAGE, "the total of resource %s is too large: %g for each of %zu workers",
                       name, quantity_to_double(amount), times);
    return sum > 0 && resources_set(total, name, sum) < 0 ? ty_fail_memory(err) : 0;
}

int demand_total(const struct demand *demand, size_t workers, struct resources *total, ty_error *err) {
    struct resources sum = {0};
    int result = 0;
    for (size_t i = 0; i < demand->per_worker.n && result == 0; i++)
        result = add_amount(&sum, demand->per_worker.items[i].name, demand->per_worker.items[i].amount, workers,
                            err);
    for (size_t i = 0; i < demand->trainer.n && result == 0; i++)
        result = add_amount(&sum, demand->trainer.items[i].name, demand->trainer.items[i].amount, 1, err);
    if (result < 0)
        resources_done(&sum);
    else
        *total = sum;
    return result;
}
