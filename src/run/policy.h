/* What a run may cost and what it keeps: how many attempts each kind of failure may lead to, and which checkpoints stay. Set by
 * whoever asks for the run, read by run/ (failures) and the controller (checkpoints). */
#ifndef RUN_POLICY_H
#define RUN_POLICY_H

#include <stdbool.h>

/* How many further attempts each kind of failure may lead to; -1: without bound. */
struct failure_policy {
    int max_failures;             /* a worker or a node failed */
    int controller_failure_limit; /* workers could not be started */
    int max_preemption_failures;  /* a node was taken away */
};

/* What keeps a node from starting workers (no process or descriptor left, an agent that is slow to come up) passes within
 * seconds or not at all: three more tries take three seconds, and whoever waits for the run is told soon. */
enum { CONTROLLER_FAILURE_LIMIT_DEFAULT = 3 };
#define FAILURE_POLICY_DEFAULT ((struct failure_policy){0, CONTROLLER_FAILURE_LIMIT_DEFAULT, 0})

/* What becomes of the training when a checkpoint could not be written. The one before it is kept in any case. */
enum checkpoint_error { CHECKPOINT_ERROR_FAIL, CHECKPOINT_ERROR_CONTINUE };

struct checkpoint_policy {
    int num_to_keep;             /* 0: all */
    const char *score_attribute; /* the metric that tells which are best; NULL: the newest are; borrowed */
    bool score_min;              /* the smallest is best, else the largest */
    enum checkpoint_error on_error;
};

#endif
