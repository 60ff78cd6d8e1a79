/* Faults one after another, each drawn in the same order, whether its victim is there or not, so that a
 * schedule depends on nothing but its seed and the number of workers. What a fault does is done elsewhere
 * (controller/chaos.c, agent/disturb.c). */
#include "run/chaos.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"

const char *chaos_kind_name(enum chaos_kind kind) {
    static const char *const names[] = {
#define X(name, word, text) [name] = word,
        CHAOS_KINDS(X)
#undef X
    };
    return names[kind];
}

const char *chaos_kind_text(enum chaos_kind kind) {
    static const char *const texts[] = {
#define X(name, word, text) [name] = text,
        CHAOS_KINDS(X)
#undef X
    };
    return texts[kind];
}

int chaos_parse(const char *text, struct chaos_policy *policy, ty_error *err) {
    const char *colon = strchr(text, ':');
    CLEANUP_FREE char *number = strndup(text, colon == NULL ? strlen(text) : (size_t)(colon - text));
    int64_t seed = 0;
    nanoseconds every = CHAOS_EVERY_DEFAULT;
    if (number == NULL) return ty_fail_memory(err);
    if (!str_to_int64(number, 0, INT64_MAX, &seed))
        return ty_fail(err, TY_EUSAGE, "the seed must be a whole number from 0 to 9223372036854775807");
    int result = colon == NULL ? 0 : duration_parse(colon + 1, &every, err);
    if (result < 0) return result;
    if (every < CHAOS_EVERY_LEAST)
        return ty_fail(err, TY_EUSAGE, "faults cannot come more often than every 10ms");
    *policy = (struct chaos_policy){(uint64_t)seed, every};
    return 0;
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
