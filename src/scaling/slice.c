/* How workers and TPU slices go together (docs/spec/train-api.md 1.6): W workers
 * fill a slice when each holds its TPU; H, the hosts of a slice, is taken when each host shall have one
 * worker with fewer chips. */
#include <stdio.h>
#include <stdlib.h>

#include "scaling/device.h"
#include "scaling/parts.h"
#include "scaling/tpu.h"

void scaling_slice_done(struct tpu_demand *tpu) {
    free(tpu->topology);
    free(tpu->generation);
    free(tpu->pod_type);
    *tpu = (struct tpu_demand){0};
}

static bool both_multiples(const struct scaling *scaling, int64_t of) {
    return of > 0 && scaling->min_workers % of == 0 && scaling->max_workers % of == 0;
}

/* W is preferred to H where both divide the number of workers. An elastic config must be whole slices at both
 * ends: what lies between is found by the planner, slice by slice. */
static int choose_workers(const struct scaling *scaling, const struct tpu_shape *shape, int64_t *workers,
                          ty_error *err) {
    int64_t units, full, hosts = 0;
    int result = tpu_units_per_chip(&units, err);
    if (result < 0) return result;
    quantity chip = units * QUANTITY_ONE, per_host = shape->chips_per_host * chip;
    quantity per_worker =
        scaling->has_resources ? resources_get(&scaling->resources_per_worker, "TPU") : per_host;
    result = accelerator_check_amount("TPU", per_worker, err);
    if (result >= 0) result = tpu_workers_per_slice(shape->chips * chip, per_worker, &full, err);
    if (result < 0) return ty_wrap(err, "%s", spelled(scaling->face, SPELL_RESOURCES));
    if (shape->hosts > 1 && per_worker < per_host) hosts = shape->hosts;
    if (!both_multiples(scaling, full) && !both_multiples(scaling, hosts)) {
        bool max_is_wrong = scaling->min_workers % full == 0;
        int64_t count = max_is_wrong ? scaling->max_workers : scaling->min_workers;
        enum spelling bound = !scaling->elastic ? SPELL_WORKERS
                              : max_is_wrong    ? SPELL_MAX_WORKERS
                                                : SPELL_MIN_WORKERS;
        char or_hosts[80] = "";
        if (hosts > 0)
            (void)snprintf(or_hosts, sizeof or_hosts, ", or of %lld, one for each host of a slice",
                           (long long)hosts);
        return ty_fail(err, TY_EUSAGE,
                       "%s: %s=%lld must be a multiple of %lld, the workers of one %s slice of %s%s",
                       spelled(scaling->face, SPELL_NUM_WORKERS), spelled(scaling->face, bound),
                       (long long)count, (long long)full, shape->topology, shape->generation, or_hosts);
    }
    *workers = both_multiples(scaling, full) ? full : hosts;
    return 0;
}

int scaling_generation(const struct scaling *scaling, char generation[16], ty_error *err) {
    if (tpu_generation(scaling->accelerator_type, generation, err) == 0) return 0;
    return ty_wrap(err, "%s", spelled(scaling->face, SPELL_INVALID_TYPE));
}

int scaling_resolve_slice(const struct scaling *scaling, struct tpu_demand *tpu, ty_error *err) {
    struct tpu_shape shape;
    if (!scaling->use_tpu || scaling->topology == NULL || scaling->accelerator_type == NULL) return 0;
    char generation[16];
    int result = scaling_generation(scaling, generation, err);
    if (result == 0) result = tpu_shape_of(generation, scaling->topology, 0, true, &shape, err);
    if (result == 0) result = choose_workers(scaling, &shape, &tpu->workers_per_slice, err);
    if (result < 0) return result;
    tpu->chips_per_host = shape.chips_per_host;
    tpu->hosts_per_slice = shape.hosts;
    tpu->chips_per_slice = shape.chips;
    bool copied = scaling_copy_text(&tpu->topology, shape.topology) == 0 &&
                  scaling_copy_text(&tpu->generation, shape.generation) == 0 &&
                  scaling_copy_text(&tpu->pod_type, shape.pod_type) == 0;
    return copied ? 0 : ty_fail_memory(err);
}
