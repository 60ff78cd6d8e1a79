/* The simulated engine: a cluster that does not exist. Virtual nodes, their agents and workers live on a
 * virtual clock and follow the rules of the real ones (agent/agent.c); the run's own state machine drives them
 * through the ops that the controller gives it. Messages of one node keep their order, as on a stream. One
 * event a step: whoever steps can look at everything between two of them. The same hooks give the same course.
 *
 * What takes time and what goes wrong is asked of the hooks; without them everything happens at once and
 * nothing fails. What workers do (reports, their own end) is told from outside, by the sim_worker_ calls. */
#ifndef ENGINE_SIM_H
#define ENGINE_SIM_H

#include <stdint.h>

#include "base/duration.h"
#include "base/error.h"
#include "loop/loop.h"
#include "run/run.h"

struct sim; /* opaque */

/* Of a worker that was told to stop: it does not obey, and is killed after the grace; nothing but the end of
 * its agent ends it, which waits for it no longer than SIM_STUCK_AFTER. */
#define SIM_DISOBEYS ((nanoseconds)-1)
#define SIM_STUCK ((nanoseconds)-2)

/* Where a message is lost sight of for so long, an agent ends its workers and itself; the controller, which
 * waits longer, can then take the node for lost: never do both sides of a broken link work. */
#define SIM_AGENT_PATIENCE (10 * NS_PER_S)
#define SIM_CONTROLLER_PATIENCE (15 * NS_PER_S)
#define SIM_STUCK_AFTER (10 * NS_PER_S) /* behind the grace an agent that ends gives up what does not */

/* Any member may be NULL. None may step the simulation or destroy it. */
struct sim_hooks {
    /* How long things take. A start that fails is negative: -errno where it may pass, else TY_E... */
    nanoseconds (*start_agent)(void *context, uint32_t node);
    nanoseconds (*start_worker)(void *context, uint32_t rank);
    nanoseconds (*stop_worker)(void *context, uint32_t rank); /* from SIGTERM to its end, or SIM_... */
    nanoseconds (*save_stacks)(void *context, uint32_t node); /* of a node's workers; negative: it never ends */
    nanoseconds (*message)(void *context, uint32_t node, bool to_agent);
    bool (*doubled)(void *context, uint32_t node); /* whether a message arrives twice */
    int (*launch)(void *context, uint32_t node);   /* negative: the launch cannot be sent */
    nanoseconds (*publish)(void *context, const struct run_commit *commit); /* negative: it fails at once */
    bool (*placed)(void *context, uint64_t number); /* it is in its place by now; false: it fails there */
    nanoseconds (*check)(void *context); /* of the latest checkpoint, between two attempts; 0: nobody looks */
    nanoseconds (*sync)(void *context);  /* of an event on record; the controller hears nothing meanwhile */
    uint64_t (*random)(void *context);
    /* Of an elastic run: how many workers fit now, 0 for too few, and the node of each; borrowed as a
     * run_layout's is. NULL where the size is fixed. */
    uint32_t (*layout)(void *context, unsigned flags, const uint32_t **node_of);
    /* What happens. */
    void (*record)(void *context, const struct run_event *event);
    void (*began)(void *context, uint32_t rank);  /* its training function runs */
    void (*gone)(void *context, uint32_t rank);   /* however it ended */
    void (*listed)(void *context, uint32_t rank); /* the answer to its REPORT_LIST */
    void (*answered)(void *context, uint32_t rank, uint64_t number, bool committed); /* to its REPORT_COMMIT */
};

/* `config` is copied but for what it borrows; `hooks` and what `config` borrows must outlive the simulation. */
int sim_create(const struct run_config *config, const struct sim_hooks *hooks, void *context, struct sim **out,
               ty_error *err);
void sim_destroy(struct sim *sim); /* NULL is fine */

struct run *sim_run(struct sim *sim);
struct loop *sim_loop(struct sim *sim); /* for timers of one's own */

/* One event; false when nothing is left to happen. */
bool sim_step(struct sim *sim);
/* Steps until the virtual time, or until the run has ended (true). */
bool sim_step_until(struct sim *sim, nanoseconds time);

/* Faults. */
void sim_kill_node(struct sim *sim, uint32_t node,
                   nanoseconds noticed); /* the controller sees it after so long */
/* The agent is told to end: it stops its workers, says bye, and goes. `preempted`: the signal that says that
 * its node is taken away; 0: none; -1: not even that is said. */
void sim_end_agent(struct sim *sim, uint32_t node, int preempted);
/* Messages wait until the partition is over: those to the agent, those from it, or both. Whoever is patient
 * waits for answers, so that a link that is cut one way is as lost to both sides as one that is cut both
 * ways. */
enum sim_cut { SIM_CUT_NONE, SIM_CUT_TO_AGENT, SIM_CUT_FROM_AGENT, SIM_CUT_BOTH };
void sim_partition(struct sim *sim, uint32_t node, enum sim_cut cut);

/* An agent that is stopped hears and says nothing until it goes on, and nobody notices. Its workers work. */
void sim_freeze(struct sim *sim, uint32_t node, bool frozen);

/* The controller dies, and with it all agents and whatever was on its way; another one goes on with the run as
 * `config` says, which differs in what a journal tells (first_attempt, report_base, checkpoint). Begins with
 * run_start; sim_run has changed. Not from a hook or a timer. 0 or -ENOMEM, after which the simulation can only
 * be destroyed. */
int sim_restart(struct sim *sim, const struct run_config *config, ty_error *err);

/* What workers do. A worker that does not run does nothing. */
bool sim_worker_runs(const struct sim *sim, uint32_t rank);
int sim_worker_attempt(const struct sim *sim,
                       uint32_t rank); /* that it belongs to; 0: nothing of it is there */
void sim_worker_ready(struct sim *sim, uint32_t rank);
void sim_worker_hang(struct sim *sim,
                     uint32_t rank); /* its agent says that it hangs; whether it does is its own affair */
/* The files of a commit are the JSON list [rank]. */
void sim_worker_report(struct sim *sim, uint32_t rank, enum report_kind kind, uint64_t number);
void sim_worker_exit(struct sim *sim, uint32_t rank, int wait_status);

/* What this cluster was asked to do and what must never be asked, in words: a launch where a worker still
 * lives, a second agent beside the first. NULL: nothing of the kind. */
const char *sim_violation(const struct sim *sim);

/* -- goodput */

/* A training of many days on a simulated cluster whose nodes fail: what is left of the time. The run's own
 * state machine decides what follows each failure; the training trains, writes a checkpoint, and trains on. */
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
