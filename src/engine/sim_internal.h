/* What the files of the simulated engine share: messages with their ways (sim_network.c), agents and workers
 * (sim_agent.c), and the controller's side (sim.c). Each event is a message that arrives or a timer that fires;
 * nothing else moves. */
#ifndef ENGINE_SIM_INTERNAL_H
#define ENGINE_SIM_INTERNAL_H

#include "engine/sim.h"

/* X(name, who gets it and what it says); what goes to the agent comes first */
#define SIM_MESSAGES(X)                                                                        \
    X(SIM_LAUNCH, "agent: start the workers of this attempt")                                  \
    X(SIM_STOP, "agent: stop them; flag: kill")                                                \
    X(SIM_FINISH, "agent: the run is over")                                                    \
    X(SIM_COMMITTED, "agent: answer to a commit; flag: done")                                  \
    X(SIM_LISTED, "agent: the answer to a REPORT_LIST")                                        \
    X(SIM_SAVE_STACKS, "agent: save the stacks of the workers")                                \
    X(SIM_HELLO, "controller: the agent is up")                                                \
    X(SIM_STARTED, "controller: a worker runs")                                                \
    X(SIM_READY, "controller: it said so")                                                     \
    X(SIM_HUNG, "controller: it says nothing any more")                                        \
    X(SIM_START_FAILED, "controller: status; flag: was told to stop before")                   \
    X(SIM_EXITED, "controller: wait status; flag: was told to stop")                           \
    X(SIM_GONE, "controller: nothing of it is left")                                           \
    X(SIM_REPORT, "controller: status is the kind")                                            \
    X(SIM_STACKS, "controller: they are saved")                                                \
    X(SIM_LEAVING, "controller: it was told to end; status: the signal of a preemption, or 0") \
    X(SIM_BYE, "controller: the agent has ended")                                              \
    X(SIM_LOST, "controller: the channel is closed")

enum sim_message_kind {
#define X(name, meaning) name,
    SIM_MESSAGES(X)
#undef X
};

struct sim_message {
    enum sim_message_kind kind;
    uint32_t node;
    uint32_t life; /* which of the node's agents it is for or from */
    uint32_t rank;
    int attempt;
    int status;
    bool flag;
    uint64_t number;
};

/* A message on its way where that takes time. */
struct sim_parcel {
    struct sim *sim;
    struct sim_parcel *previous, *next; /* all, in order of sending */
    struct loop_timer arrival;          /* not running: it waits for the end of a partition */
    struct sim_message message;
};

/* X(name, what holds in it) */
#define SIM_WORKER_STAGES(X)                     \
    X(SIM_ABSENT, "nothing of it is there")      \
    X(SIM_PLANNED, "its start takes time")       \
    X(SIM_RUNNING, "its training function runs") \
    X(SIM_STOPPING, "it runs, and was told to stop")

enum sim_worker_stage {
#define X(name, meaning) name,
    SIM_WORKER_STAGES(X)
#undef X
};

struct sim_worker {
    struct sim *sim;
    uint32_t rank;
    enum sim_worker_stage stage;
    int attempt;
    int end; /* wait status when the timer fires in SIM_STOPPING */
    bool stuck;
    struct loop_timer timer; /* of its start, then of its end */
};

struct sim_agent {
    struct sim *sim;
    uint32_t node;
    uint32_t life; /* counts the agents of this node */
    bool alive;
    bool open;        /* the controller has a channel to this life */
    enum sim_cut cut; /* by a partition */
    bool frozen;
    bool ending;
    int attempt;         /* whose workers are not all gone; 0 */
    int launched;        /* the last one that was */
    uint32_t n_alive;    /* workers that are not absent */
    nanoseconds last[2]; /* arrival of the last message to the controller, to the agent */
    struct loop_timer start, fence, loss, stacks;
};

struct run_timer_slot {
    struct sim *sim;
    enum run_timer timer;
    struct loop_timer handle;
};

struct sim {
    struct run_config config;
    const struct sim_hooks *hooks;
    void *context;
    struct loop *loop;
    struct run *run;
    struct sim_agent *agents;
    struct sim_worker *workers;
    uint32_t *first_of, *ranks; /* ranks of node n: ranks[first_of[n]] up to ranks[first_of[n + 1]] */
    struct run_timer_slot timers[RUN_TIMERS];
    nanoseconds busy_until; /* the controller hears nothing before */
    uint64_t publishing;    /* number of the checkpoint that is on its way into its place; 0: none */
    struct loop_timer published, checked;
    struct sim_parcel *parcels, *last_parcel;
    struct sim_message *queue; /* a ring: messages that take no time */
    size_t queue_capacity, queue_first, queue_size;
    bool out_of_memory;
    const char *violation;
};

/* -- sim_agent.c */
void sim_agent_init(struct sim_agent *agent, struct sim *sim, uint32_t node);
int sim_agent_start(struct sim_agent *agent);
void sim_agent_die(struct sim_agent *agent); /* its workers with it; nothing is sent */
void sim_agent_hear(struct sim_agent *agent, const struct sim_message *message);

/* -- sim_network.c */
void sim_send(struct sim *sim, const struct sim_message *message);
bool sim_deliver_next(struct sim *sim); /* of those that take no time; false: there is none */
void sim_network_heal(struct sim *sim, uint32_t node);
void sim_network_drop(struct sim *sim); /* whatever is on its way is lost */
void sim_network_done(struct sim *sim);

/* -- sim.c */
void sim_controller_hear(struct sim *sim, const struct sim_message *message);

#endif
