/* Faults one after another, each drawn in the same order. */
#include "run/chaos.h"

const char *chaos_kind_text(enum chaos_kind kind) {
    static const char *const texts[] = {
#define X(name, text) [name] = text,
        CHAOS_KINDS(X)
#undef X
    };
    return texts[kind];
}

void chaos_begin(struct chaos *chaos, const struct chaos_policy *policy, uint32_t n_workers) {
    *chaos = (struct chaos){.every = policy->every, .n_workers = n_workers};
    dice_seed(&chaos->dice, policy->seed);
}

struct chaos_fault chaos_next(struct chaos *chaos) {
    double every = (double)chaos->every;
    struct chaos_fault fault = {.after = dice_exponential(&chaos->dice, every)};
    fault.kind = (enum chaos_kind)dice_below(&chaos->dice, CHAOS_KIND_COUNT);
    fault.rank = (uint32_t)dice_below(&chaos->dice, chaos->n_workers);
    fault.length = (nanoseconds)(every * (0.1 + 0.9 * dice_unit(&chaos->dice)));
    return fault;
}
