/* The checks of a whole scaling config in the order of docs/spec/train-api.md 1.2. The type
 * checks of row 10 happen where the value is read. Row 8 is in slice.c, as it needs the arithmetic of TPU
 * slices. */
#include <math.h>

#include "scaling/device.h"
#include "scaling/parts.h"
#include "scaling/tpu.h"

static const char *spell(const struct scaling *scaling, enum spelling what) {
    return spelled(scaling->face, what);
}

static quantity given(const struct scaling *scaling, const char *resource) {
    return resources_get(&scaling->resources_per_worker, resource);
}

static int refuse_unwanted(const struct scaling *scaling, enum spelling without, enum spelling give,
                           enum spelling device, ty_error *err) {
    const char *name = spell(scaling, device);
    return ty_fail(err, TY_EUSAGE, "%s but %s was found in %s; %s or remove %s", spell(scaling, without), name,
                   spell(scaling, SPELL_RESOURCES), spell(scaling, give), name);
}

static int refuse_missing(const struct scaling *scaling, enum spelling what, const char *example,
                          ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s must be specified (such as \"%s\") when %s and %s > 1",
                   spell(scaling, what), example, spell(scaling, SPELL_USE_TPU),
                   spell(scaling, SPELL_NUM_WORKERS));
}

/* Row 1 is no failure here: the warning is made in resolve.c. */
int scaling_validate_first(const struct scaling *scaling, ty_error *err) {
    if (scaling->use_gpu && scaling->use_tpu)
        return ty_fail(err, TY_EUSAGE, "Cannot specify both %s and %s; choose one",
                       spell(scaling, SPELL_USE_GPU), spell(scaling, SPELL_USE_TPU));
    if (!scaling->use_tpu && given(scaling, "TPU") != 0)
        return refuse_unwanted(scaling, SPELL_WITHOUT_TPU, SPELL_GIVE_TPU, SPELL_TPU, err);
    if (scaling->use_tpu && scaling->has_resources && given(scaling, "TPU") <= 0)
        return ty_fail(err, TY_EUSAGE, "%s but %s is set to 0 in %s; ask for a positive amount",
                       spell(scaling, SPELL_WITH_TPU), spell(scaling, SPELL_TPU),
                       spell(scaling, SPELL_RESOURCES));
    if (!scaling->use_tpu || scaling->max_workers <= 1) return 0;
    if (scaling->topology == NULL) return refuse_missing(scaling, SPELL_TOPOLOGY, "4x4", err);
    if (scaling->accelerator_type == NULL) return refuse_missing(scaling, SPELL_TYPE, "TPU-V6E", err);
    for (size_t i = 0; i < scaling->n_selectors; i++)
        if (scaling->selectors[i].n > 0)
            return ty_fail(err, TY_EUSAGE,
                           "Cannot set %s when %s and %s > 1: the reservation of slices owns the labels",
                           spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_USE_TPU),
                           spell(scaling, SPELL_NUM_WORKERS));
    return 0;
}

/* -- rows 9 to 15 -- */

static int check_worker_count(const struct scaling *scaling, ty_error *err) {
    long long min = scaling->min_workers, max = scaling->max_workers;
    const char *name = spell(scaling, SPELL_NUM_WORKERS);
    if (!scaling->elastic && min < 0)
        return ty_fail(err, TY_EUSAGE, "%s=%lld must not be negative; 0 is local mode", name, min);
    if (scaling->elastic && min < 1)
        return ty_fail(err, TY_EUSAGE, "%s=(%lld, %lld): the least number of workers must be at least 1", name,
                       min, max);
    if (max > SCALING_MAX_WORKERS || min > SCALING_MAX_WORKERS)
        return ty_fail(err, TY_EUSAGE, "%s=%lld is more than the possible %d", name, max > min ? max : min,
                       SCALING_MAX_WORKERS);
    return 0;
}

/* Rows 9 to 13: what is counted. A list of selectors that is too short or too long comes first where the number
 * of workers is fixed, and last where it is elastic: the bounds are looked at before the list is compared with
 * one. */
static int check_counts(const struct scaling *scaling, ty_error *err) {
    double interval = scaling->elastic_resize_monitor_interval_s;
    bool wrong_list = scaling->selector_per_worker && (int64_t)scaling->n_selectors != scaling->max_workers;
    if (wrong_list && !scaling->elastic)
        return ty_fail(err, TY_EUSAGE,
                       "If %s is a list, it must be the same length as %s: it has %zu, not %lld",
                       spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_NUM_WORKERS), scaling->n_selectors,
                       (long long)scaling->max_workers);
    int result = check_worker_count(scaling, err);
    if (result < 0) return result;
    if (!isfinite(interval) || interval < 0)
        return ty_fail(err, TY_EUSAGE, "%s=%g must be non-negative and finite", spell(scaling, SPELL_INTERVAL),
                       interval);
    if (scaling->min_workers > scaling->max_workers)
        return ty_fail(err, TY_EUSAGE, "%s: %s=%lld must be <= %s=%lld", spell(scaling, SPELL_NUM_WORKERS),
                       spell(scaling, SPELL_MIN_WORKERS), (long long)scaling->min_workers,
                       spell(scaling, SPELL_MAX_WORKERS), (long long)scaling->max_workers);
    if (wrong_list)
        return ty_fail(err, TY_EUSAGE,
                       "If %s is a list, it must be the same length as %s: it is a list of length %zu but must "
                       "be length %s=%lld",
                       spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_MAX_WORKERS), scaling->n_selectors,
                       spell(scaling, SPELL_MAX_WORKERS), (long long)scaling->max_workers);
    return 0;
}

static int check_amounts(const struct scaling *scaling, const struct resources *resources, enum spelling field,
                         ty_error *err) {
    for (size_t i = 0; i < resources->n; i++)
        if (resource_check_name(resources->items[i].name, err) < 0 ||
            accelerator_check_amount(resources->items[i].name, resources->items[i].amount, err) < 0)
            return ty_wrap(err, "%s", spell(scaling, field));
    return 0;
}

/* A slice is a domain of its own, which its labels name. */
static int check_topology(const struct scaling *scaling, ty_error *err) {
    if (!scaling->topology_strategy.given) return 0;
    if (scaling->placement_strategy != PLACE_PACK)
        return ty_fail(err, TY_EUSAGE, "%s and %s both say where workers go: give one of the two",
                       spell(scaling, SPELL_PLACEMENT), spell(scaling, SPELL_TOPOLOGY_STRATEGY));
    if (scaling->use_tpu && scaling->topology_strategy.domain != NULL)
        return ty_fail(err, TY_EUSAGE, "Cannot set %s when %s: the reservation of slices owns the labels",
                       spell(scaling, SPELL_TOPOLOGY_STRATEGY), spell(scaling, SPELL_USE_TPU));
    return 0;
}

int scaling_validate_rest(const struct scaling *scaling, const struct resources *per_worker, ty_error *err) {
    int result = check_counts(scaling, err);
    if (result == 0) result = check_topology(scaling, err);
    if (result < 0) return result;
    if (!scaling->use_gpu && given(scaling, "GPU") != 0)
        return refuse_unwanted(scaling, SPELL_WITHOUT_GPU, SPELL_GIVE_GPU, SPELL_GPU, err);
    /* The config counts as it was written: a zero that resolution drops would become 1 again (row 15, and the
     * decision at the page's head). */
    if (scaling->use_gpu && resources_has(&scaling->resources_per_worker, "GPU") && given(scaling, "GPU") <= 0)
        return ty_fail(err, TY_EUSAGE, "%s but %s is set to 0 in %s; ask for a positive amount or %s",
                       spell(scaling, SPELL_WITH_GPU), spell(scaling, SPELL_GPU),
                       spell(scaling, SPELL_RESOURCES), spell(scaling, SPELL_DROP_GPU));
    if (scaling->accelerator_type != NULL && scaling->use_tpu) {
        char generation[16];
        result = scaling_generation(scaling, generation, err);
    } else if (scaling->accelerator_type != NULL &&
               accelerator_type_check(scaling->accelerator_type, err) < 0) {
        result = ty_wrap(err, "%s=\"%.80s\"", spell(scaling, SPELL_TYPE), scaling->accelerator_type);
    }
    if (result == 0) result = check_amounts(scaling, per_worker, SPELL_RESOURCES, err);
    if (result == 0) result = check_amounts(scaling, &scaling->trainer_resources, SPELL_TRAINER_RESOURCES, err);
    return result;
}
