/* The last word of a run that succeeded, in one line: its name, how long its attempts took, the last metrics of
 * rank 0, the best checkpoint where they are ranked by a metric, else the last one, and where all of it is. */
#ifndef CONTROLLER_SUMMARY_H
#define CONTROLLER_SUMMARY_H

#include "controller/checkpoints.h"
#include "worker/driver.h"

void summary_format(const struct ty_result *result, const struct checkpoints *checkpoints, struct buffer *out);

#endif
