/* Choosing which checkpoints stay, by counting, for each, how many are better: there are few of them, and no
 * order need be kept. Also what metrics say of a score. Whoever has the checkpoints removes them
 * (checkpoint/remove.c); the latest stays whatever its score. */
#include "run/settings.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/str.h"

double retention_score(const char *metrics, const char *attribute) {
    json_t *tree = metrics == NULL || attribute == NULL ? NULL : metrics_read(metrics, strlen(metrics));
    const json_t *value = json_object_get(tree, attribute), *at = tree;
    CLEANUP_FREE char *path = attribute == NULL ? NULL : strdup(attribute);
    char *rest = path;
    for (char *part; value == NULL && (part = strsep(&rest, "/")) != NULL; at = json_object_get(at, part))
        if (rest == NULL) value = json_object_get(at, part);
    /* A number, a truth (1 or 0), or one of the texts that stand for what JSON has no number for. */
    double score = (double)NAN;
    if (json_is_number(value))
        score = json_number_value(value);
    else if (json_is_boolean(value))
        score = json_is_true(value) ? 1 : 0;
    else if (str_equal(json_string_value(value), "Infinity"))
        score = (double)INFINITY;
    else if (str_equal(json_string_value(value), "-Infinity"))
        score = -(double)INFINITY;
    json_decref(tree);
    return score;
}

bool retention_is_awaited(const char *metrics) {
    static const char name[] = "$validation";
    if (metrics == NULL || strstr(metrics, name) == NULL) return false;
    json_t *tree = metrics_read(metrics, strlen(metrics));
    bool awaited = json_is_object(json_object_get(tree, name));
    json_decref(tree);
    return awaited;
}

static bool is_better(const struct checkpoint_policy *policy, const double *scores, size_t a, size_t b) {
    bool scored = policy->score_attribute != NULL;
    if (!scored || (isnan(scores[a]) && isnan(scores[b]))) return a > b;
    if (isnan(scores[a]) || isnan(scores[b])) return isnan(scores[b]);
    if (scores[a] == scores[b]) return a > b;
    return policy->score_order == SCORE_MIN ? scores[a] < scores[b] : scores[a] > scores[b];
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

size_t retention_best(const struct checkpoint_policy *policy, const double *scores, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (is_better(policy, scores, i, best)) best = i;
    return best;
}
