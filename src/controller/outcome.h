/* What a run came to, told to whoever asked for it. */
#ifndef CONTROLLER_OUTCOME_H
#define CONTROLLER_OUTCOME_H

#include "controller/drive.h"

struct outcome {
    const struct drive_config *config;
    struct drive_end *end;
    int directory; /* of the run */
};

/* The result (with parts of `end` taken into it), and the code and error of ty_fit; on success 0. Without
 * memory no result. `err` is not NULL. */
int outcome_tell(const struct outcome *outcome, ty_result **result, ty_error *err);

#endif
