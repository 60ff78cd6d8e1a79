/* A training of many days on a simulated cluster whose nodes fail: what is left of the time. The run's own
 * state machine decides what follows each failure; the training trains, writes a checkpoint, and trains on. */
#ifndef ENGINE_SIM_TRAINING_H
#define ENGINE_SIM_TRAINING_H

#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"

struct sim_training {
    uint32_t n_nodes, workers_per_node;
    nanoseconds mtbf;     /* of one node; failures are memoryless */
    nanoseconds interval; /* of training between two checkpoints */
    nanoseconds cost;     /* of a checkpoint: nobody trains meanwhile */
    nanoseconds restart;  /* from a failure to training again; longer where the run pauses longer */
    nanoseconds length;   /* of the whole */
    uint64_t seed;
};

/* Where the time went: the first four are the length. */
struct sim_training_result {
    nanoseconds useful;        /* training that counts */
    nanoseconds lost;          /* training, or writing, since the last checkpoint before a failure */
    nanoseconds checkpointing; /* writing what was committed */
    nanoseconds restarting;
    uint64_t failures, checkpoints;
    int attempts;
};

int sim_training_run(const struct sim_training *training, struct sim_training_result *result, ty_error *err);
double sim_training_goodput(const struct sim_training_result *result); /* useful part, 0 to 1 */

/* What arithmetic expects: (1 - f (u + d/2)) / (1 + w/d) for f failures of all nodes a unit of time, restart u,
 * interval d and blocking write w. It leaves out failures while writing or restarting, and falls below 0 where
 * they come faster than they are repaired. Kokolis et al., "Revisiting Reliability in Large-Scale Machine
 * Learning Research Clusters" (2024). */
double sim_training_expected(const struct sim_training *training);
/* The interval that is best where failures may also come while writing and restarting, at least a second: J. T.
 * Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006), without its
 * approximations. */
nanoseconds sim_training_best_interval(const struct sim_training *training);

#endif
