/* The checks of a whole scaling config in the order of docs/spec/train-api.md 1.2, one function a row. The type
 * checks of row 10 happen where the value is read. Row 8 is in slice.c, as it needs the arithmetic of TPU
 * slices. */
#include <math.h>

#include "base/cleanup.h"
#include "scaling/accelerator_type.h"
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

static quantity given(const struct scaling *scaling, const char *resource) {
    return resources_get(&scaling->resources_per_worker, resource);
}

static int check_one_kind(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_gpu || !scaling->use_tpu) return 0;
    return ty_fail(err, TY_EUSAGE, "Cannot specify both `use_gpu=True` and `use_tpu=True`; choose one");
}

static int check_unwanted_tpu(const struct scaling *scaling, ty_error *err) {
    if (scaling->use_tpu || given(scaling, "TPU") == 0) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`use_tpu` is False but `TPU` was found in `resources_per_worker`; set `use_tpu=True` or remove "
        "`TPU`");
}

static int check_missing_tpu(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_tpu || !scaling->has_resources || given(scaling, "TPU") > 0) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`use_tpu` is True but `TPU` is set to 0 in `resources_per_worker`; ask for a positive amount");
}

static bool many_on_tpu(const struct scaling *scaling) {
    return scaling->use_tpu && scaling->max_workers > 1;
}

static int check_topology_given(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || scaling->topology != NULL) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "`topology` must be specified (such as \"4x4\") when `use_tpu=True` and `num_workers` > 1");
}

static int check_type_given(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || scaling->accelerator_type != NULL) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`accelerator_type` must be specified (such as \"TPU-V6E\") when `use_tpu=True` and `num_workers` > "
        "1");
}

static bool constrains(const struct scaling *scaling) {
    for (size_t i = 0; i < scaling->n_selectors; i++)
        if (scaling->selectors[i].n > 0) return true;
    return false;
}

static int check_slice_owns_labels(const struct scaling *scaling, ty_error *err) {
    if (!many_on_tpu(scaling) || !constrains(scaling)) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "Cannot set `label_selector` when `use_tpu=True` and `num_workers` > 1: the reservation of slices "
        "owns the labels");
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
    return ty_fail(
        err, TY_EUSAGE,
        "If `label_selector` is a list, it must be the same length as `num_workers`: it has %zu, and "
        "num_workers=%lld",
        scaling->n_selectors, (long long)scaling->max_workers);
}

static int check_worker_count(const struct scaling *scaling, ty_error *err) {
    long long min = scaling->min_workers, max = scaling->max_workers;
    if (!scaling->elastic && min < 0)
        return ty_fail(err, TY_EUSAGE, "`num_workers`=%lld must not be negative; 0 is local mode", min);
    if (scaling->elastic && min < 1)
        return ty_fail(err, TY_EUSAGE,
                       "`num_workers`=(%lld, %lld): the least number of workers must be at least 1", min, max);
    if (max > SCALING_MAX_WORKERS || min > SCALING_MAX_WORKERS)
        return ty_fail(err, TY_EUSAGE, "`num_workers`=%lld is more than the possible %d", max > min ? max : min,
                       SCALING_MAX_WORKERS);
    return 0;
}

static int check_interval(const struct scaling *scaling, ty_error *err) {
    double interval = scaling->elastic_resize_monitor_interval_s;
    if (isfinite(interval) && interval >= 0) return 0;
    return ty_fail(err, TY_EUSAGE, "`elastic_resize_monitor_interval_s`=%g must be non-negative and finite",
                   interval);
}

static int check_bounds(const struct scaling *scaling, ty_error *err) {
    if (scaling->min_workers <= scaling->max_workers) return 0;
    return ty_fail(err, TY_EUSAGE, "`num_workers`: min_workers=%lld must be <= max_workers=%lld",
                   (long long)scaling->min_workers, (long long)scaling->max_workers);
}

static int check_elastic_list(const struct scaling *scaling, ty_error *err) {
    if (!scaling->selector_per_worker || !scaling->elastic) return 0;
    if ((int64_t)scaling->n_selectors == scaling->max_workers) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "`label_selector` is a list of length %zu but must be length max_workers=%lld",
                   scaling->n_selectors, (long long)scaling->max_workers);
}

static int check_unwanted_gpu(const struct scaling *scaling, ty_error *err) {
    if (scaling->use_gpu || given(scaling, "GPU") == 0) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`use_gpu` is False but `GPU` was found in `resources_per_worker`; set `use_gpu=True` or remove "
        "`GPU`");
}

/* Asks what was written: a zero that resolution drops would become 1 again (row 15, and the decision at the
 * page's head). */
static int check_missing_gpu(const struct scaling *scaling, ty_error *err) {
    if (!scaling->use_gpu || !resources_has(&scaling->resources_per_worker, "GPU") || given(scaling, "GPU") > 0)
        return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "`use_gpu` is True but `GPU` is set to 0 in `resources_per_worker`; ask for a positive amount or set "
        "`use_gpu=False`");
}

static int check_type(const struct scaling *scaling, ty_error *err) {
    char generation[16];
    if (scaling->accelerator_type == NULL) return 0;
    if (scaling->use_tpu) return tpu_generation(scaling->accelerator_type, generation, err);
    return accelerator_type_check(scaling->accelerator_type, err);
}

static int check_amounts(const struct resources *resources, const char *field, ty_error *err) {
    for (size_t i = 0; i < resources->n; i++)
        if (resource_check_name(resources->items[i].name, err) < 0 ||
            accelerator_check_amount(resources->items[i].name, resources->items[i].amount, err) < 0)
            return ty_wrap(err, "`%s`", field);
    return 0;
}

int scaling_validate_rest(const struct scaling *scaling, const struct resources *per_worker, ty_error *err) {
    static check *const rows[] = {
        check_selector_list, check_worker_count, check_interval,    check_bounds,
        check_elastic_list,  check_unwanted_gpu, check_missing_gpu, check_type,
    };
    int result = run_checks(rows, ARRAY_SIZE(rows), scaling, err);
    if (result == 0) result = check_amounts(per_worker, "resources_per_worker", err);
    if (result == 0) result = check_amounts(&scaling->trainer_resources, "trainer_resources", err);
    return result;
}
