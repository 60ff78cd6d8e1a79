/* Choosing by counting, for each checkpoint, how many are better. */
#include "run/retention.h"

#include <math.h>

static bool is_better(const struct checkpoint_policy *policy, const double *scores, size_t a, size_t b) {
    bool scored = policy->score_attribute != NULL;
    if (!scored || (isnan(scores[a]) && isnan(scores[b]))) return a > b;
    if (isnan(scores[a]) || isnan(scores[b])) return isnan(scores[b]);
    if (scores[a] == scores[b]) return a > b;
    return policy->score_min ? scores[a] < scores[b] : scores[a] > scores[b];
}

size_t retention_choose(const struct checkpoint_policy *policy, const double *scores, size_t n, bool *surplus) {
    size_t gone = 0;
    for (size_t i = 0; i < n; i++) {
        size_t better = 0;
        for (size_t j = 0; j < n; j++)
            better += j != i && is_better(policy, scores, j, i);
        surplus[i] = policy->num_to_keep > 0 && i + 1 < n && better >= (size_t)policy->num_to_keep;
        gone += surplus[i];
    }
    return gone;
}
