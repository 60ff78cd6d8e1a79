/* The state of a run as a reader of its journal finds it: nothing is known but the recorded events. Attempts
 * and workers are those of the fold that everybody reads a journal by; the state and the nodes, which no reader
 * asks for, are followed here. */
#ifndef TESTS_SIM_REPLAY_H
#define TESTS_SIM_REPLAY_H

#include "run/replay.h"
#include "run/run.h"

enum { REPLAY_WORKERS = 32, REPLAY_NODES = 8 };

struct replay {
    const struct run_config *config;
    struct run_replay fold;
    enum run_state state;
    bool node_up[REPLAY_NODES];
    bool retries;        /* the last attempt's end said that another one follows */
    bool unsaid;         /* it said nothing: no memory was left for the words */
    char row[64];        /* of the table of checkpoints, the last one */
    char checkpoint[64]; /* the last committed one, "" without */
};

/* Also anew, for a controller that goes on with the run. */
void replay_begin(struct replay *replay, const struct run_config *config);
void replay_plan(struct replay *replay); /* the nodes of the ranks are others from the next attempt on */
/* A row of the table of checkpoints, which comes before its event. */
void replay_row(struct replay *replay, const char *checkpoint);
void replay_event(struct replay *replay, const struct run_event *event);

/* NULL when the live run stands as the journal tells, else in what they differ. */
const char *replay_differs(const struct replay *replay, const struct run *run);

#endif
