/* Which checkpoints stay: the best ones by their score, or the newest, and the latest in any case. Pure:
 * whoever has the checkpoints asks after each commit. */
#ifndef RUN_RETENTION_H
#define RUN_RETENTION_H

#include <stddef.h>

#include "run/settings.h"

/* Marks those that go: surplus[i] belongs to the checkpoint i, of which scores[i] is the score, NaN for
 * none. They stand in the order of their numbers, the last is the latest. One without a score is worse than
 * any other; of equals the newer is better. The number of those marked. */
size_t retention_choose(const struct checkpoint_policy *policy, const double *scores, size_t n, bool *surplus);
/* Which of the n is best, by the same order; 0 without any. */
size_t retention_best(const struct checkpoint_policy *policy, const double *scores, size_t n);

/* What a checkpoint's metrics (the text of a JSON object, or NULL) give for the score: the metric of this
 * name, "a/b" is also b in the object a. NaN where there is no such number, or no name. */
double retention_score(const char *metrics, const char *attribute);

#endif
