/* The checks of a whole scaling config in the order of docs/spec/train-api.md 1.2, one function a row. The type
 * checks of row 10 happen where the value is read. Row 8 is in slice.c, as it needs the arithmetic of TPU
 * slices. */
#include <math.h>

#include "base/cleanup.h"
#include "scaling/device.h"
#include "scaling/parts.h"
#include "scaling/tpu.h"

typedef int check(const struct scaling *scaling, ty_error *err);

static int run_checks(check *const *checks, size_t n, const struct scaling *scaling, ty_error *err) {
    for (size_t i = 0; i < n; i++) {
        int result = checks[i](scaling, err);
        if (result < 0) return result;
    }
    return 0;
}

static const char *spell(const struct scaling *scaling, enum spelling what) {
    return spelled(scaling->face, what);
}

static quantity given(const struct scaling *scaling, const char *resource) {
    return resources_get(&scaling->resources_per_worker, resource);
}

static int check_one_kind(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_gpu || !scaling->use_tpu) return 0;
    return ty_fail(err, TY_EUSAGE, "Cannot specify both %s and %s; choose one", spell(scaling, SPELL_USE_GPU),
                   spell(scaling, SPELL_USE_TPU));
}

static int refuse_unwanted(const struct scaling *scaling, enum spelling without, enum spelling give,
                           enum spelling device, ty_error *err) {
    const char *name = spell(scaling, device);
    return ty_fail(err, TY_EUSAGE, "%s but %s was found in %s; %s or remove %s", spell(scaling, without), name,
                   spell(scaling, SPELL_RESOURCES), spell(scaling, give), name);
}

static int check_unwanted_tpu(const struct scaling *scaling, ty_error *err) {
    if (scaling->use_tpu || given(scaling, "TPU") == 0) return 0;
    return refuse_unwanted(scaling, SPELL_WITHOUT_TPU, SPELL_GIVE_TPU, SPELL_TPU, err);
}

static int check_missing_tpu(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_tpu || !scaling->has_resources || given(scaling, "TPU") > 0) return 0;
    return ty_fail(err, TY_EUSAGE, "%s but %s is set to 0 in %s; ask for a positive amount",
                   spell(scaling, SPELL_WITH_TPU), spell(scaling, SPELL_TPU), spell(scaling, SPELL_RESOURCES));
}

static bool many_on_tpu(const struct scaling *scaling) {
    return scaling->use_tpu && scaling->max_workers > 1;
}

static int refuse_missing(const struct scaling *scaling, enum spelling what, const char *example,
                          ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "%s must be specified (such as \"%s\") when %s and %s > 1",
                   spell(scaling, what), example, spell(scaling, SPELL_USE_TPU),
                   spell(scaling, SPELL_NUM_WORKERS));
}

static int check_topology_given(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || scaling->topology != NULL) return 0;
    return refuse_missing(scaling, SPELL_TOPOLOGY, "4x4", err);
}

static int check_type_given(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || scaling->accelerator_type != NULL) return 0;
    return refuse_missing(scaling, SPELL_TYPE, "TPU-V6E", err);
}

static bool constrains(const struct scaling *scaling) {
    for (size_t i = 0; i < scaling->n_selectors; i++)
        if (scaling->selectors[i].n > 0) return true;
    return false;
}

static int check_slice_owns_labels(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || !constrains(scaling)) return 0;
    return ty_fail(
        err, TY_EUSAGE, "Cannot set %s when %s and %s > 1: the reservation of slices owns the labels",
        spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_USE_TPU), spell(scaling, SPELL_NUM_WORKERS));
}

/* Row 1 is no failure here: the warning is made in resolve.c. */
int scaling_validate_first(const struct scaling *scaling, ty_error *err) {
    static check *const rows[] = {
        check_one_kind,       check_unwanted_tpu, check_missing_tpu,
        check_topology_given, check_type_given,   check_slice_owns_labels,
    };
    return run_checks(rows, ARRAY_SIZE(rows), scaling, err);
}

/* -- rows 9 to 15 -- */

static int check_selector_list(const struct scaling *scaling, ty_error *err) {
    if (!scaling->selector_per_worker || scaling->elastic) return 0;
    if ((int64_t)scaling->n_selectors == scaling->max_workers) return 0;
    return ty_fail(err, TY_EUSAGE, "If %s is a list, it must be the same length as %s: it has %zu, not %lld",
                   spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_NUM_WORKERS), scaling->n_selectors,
                   (long long)scaling->max_workers);
}

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

static int check_interval(const struct scaling *scaling, ty_error *err) {
    double interval = scaling->elastic_resize_monitor_interval_s;
    if (isfinite(interval) && interval >= 0) return 0;
    return ty_fail(err, TY_EUSAGE, "%s=%g must be non-negative and finite", spell(scaling, SPELL_INTERVAL),
                   interval);
}

static int check_bounds(const struct scaling *scaling, ty_error *err) {
    if (scaling->min_workers <= scaling->max_workers) return 0;
    return ty_fail(err, TY_EUSAGE, "%s: %s=%lld must be <= %s=%lld", spell(scaling, SPELL_NUM_WORKERS),
                   spell(scaling, SPELL_MIN_WORKERS), (long long)scaling->min_workers,
                   spell(scaling, SPELL_MAX_WORKERS), (long long)scaling->max_workers);
}

static int check_elastic_list(const struct scaling *scaling, ty_error *err) {
    if (!scaling->selector_per_worker || !scaling->elastic) return 0;
    if ((int64_t)scaling->n_selectors == scaling->max_workers) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "If %s is a list, it must be the same length as %s: it is a list of length %zu but must be "
                   "length %s=%lld",
                   spell(scaling, SPELL_SELECTOR), spell(scaling, SPELL_MAX_WORKERS), scaling->n_selectors,
                   spell(scaling, SPELL_MAX_WORKERS), (long long)scaling->max_workers);
}

static int check_unwanted_gpu(const struct scaling *scaling, ty_error *err) {
    if (scaling->use_gpu || given(scaling, "GPU") == 0) return 0;
    return refuse_unwanted(scaling, SPELL_WITHOUT_GPU, SPELL_GIVE_GPU, SPELL_GPU, err);
}

/* Asks what was written: a zero that resolution drops would become 1 again (row 15, and the decision at the
 * page's head). */
static int check_missing_gpu(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_gpu || !resources_has(&scaling->resources_per_worker, "GPU") || given(scaling, "GPU") > 0)
        return 0;
    return ty_fail(err, TY_EUSAGE, "%s but %s is set to 0 in %s; ask for a positive amount or %s",
                   spell(scaling, SPELL_WITH_GPU), spell(scaling, SPELL_GPU), spell(scaling, SPELL_RESOURCES),
                   spell(scaling, SPELL_DROP_GPU));
}

static int check_type(const struct scaling *scaling, ty_error *err) {
    char generation[16];
    if (scaling->accelerator_type == NULL) return 0;
    if (scaling->use_tpu) return scaling_generation(scaling, generation, err);
    if (accelerator_type_check(scaling->accelerator_type, err) == 0) return 0;
    return ty_wrap(err, "%s=\"%.80s\"", spell(scaling, SPELL_TYPE), scaling->accelerator_type);
}

static int check_amounts(const struct scaling *scaling, const struct resources *resources, enum spelling field,
                         ty_error *err) {
    for (size_t i = 0; i < resources->n; i++)
        if (resource_check_name(resources->items[i].name, err) < 0 ||
            accelerator_check_amount(resources->items[i].name, resources->items[i].amount, err) < 0)
            return ty_wrap(err, "%s", spell(scaling, field));
    return 0;
}

int scaling_validate_rest(const struct scaling *scaling, const struct resources *per_worker, ty_error *err) {
    static check *const rows[] = {
        check_selector_list, check_worker_count, check_interval,    check_bounds,
        check_elastic_list,  check_unwanted_gpu, check_missing_gpu, check_type,
    };
    int result = run_checks(rows, ARRAY_SIZE(rows), scaling, err);
    if (result == 0) result = check_amounts(scaling, per_worker, SPELL_RESOURCES, err);
    if (result == 0) result = check_amounts(scaling, &scaling->trainer_resources, SPELL_TRAINER_RESOURCES, err);
    return result;
}
