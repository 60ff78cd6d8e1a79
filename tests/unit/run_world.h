/* A world for the run's state machine: it has a time of its own, nodes with room for workers, and writes
 * each op to a log as one word, so that a course of events reads as a line. Nothing happens by itself: a
 * test says what the nodes and workers do. */
#ifndef UNIT_RUN_WORLD_H
#define UNIT_RUN_WORLD_H

#include "base/buffer.h"
#include "run/run.h"

enum { WORLD_WORKERS = 8, WORLD_NODES = 3 };

/* Of elastic runs: between two looks at their size, and how small and large they may be. */
#define WORLD_INTERVAL (60 * NS_PER_S)
#define WORLD_GRACE (5 * NS_PER_S)
enum { WORLD_LEAST = 2, WORLD_MOST = 6 };

struct world {
    struct run *run;
    struct buffer log;     /* ops but records, in order */
    struct buffer reasons; /* of attempts and waits (late checkpoints too), as they went on record */
    nanoseconds timers[RUN_TIMERS], now;
    unsigned unstartable; /* nodes whose agents cannot be started: one bit each */
    int start_code;       /* with which */
    int fail_launch;      /* node whose launch cannot be sent, -1 */
    bool fail_publish;    /* no checkpoint can be published */
    bool publish_later;   /* the test says when, by run_published */
    bool checks; /* the latest checkpoint is looked at before another attempt: run_checked is the test's */
    bool quiet;  /* what becomes of checkpoints is not logged */
    bool ended;
    char refusal[128];               /* what the last rank was told whose checkpoint failed */
    uint32_t node_of[WORLD_WORKERS]; /* of the first attempt */
    uint32_t room[WORLD_NODES], layouts[2][WORLD_MOST]; /* elastic runs: looked at, claimed */
};

void world_init(struct world *world); /* takes all memory that the world itself needs; world_done for each */
/* Workers 0 to n - 1 spread over the nodes in blocks; what run_create answers. */
int world_open(struct world *world, uint32_t n_workers, uint32_t n_nodes,
               const struct failure_policy *failures);
/* An elastic run whose first attempt fills the nodes that have room; `checkpoint`: that it begins from, or
 * NULL. */
int world_open_elastic(struct world *world, const uint32_t room[WORLD_NODES],
                       const struct failure_policy *failures, const char *checkpoint);
void world_done(struct world *world);

void expect(struct world *world, const char *log); /* the log since the last look */
void forget_log(struct world *world);

void start_workers(struct world *world); /* every worker of the attempt has started */
/* A worker exited and is gone; `stopped`: after it was told to. */
void end_worker(struct world *world, uint32_t rank, int wait_status, bool stopped);
void report(struct world *world, uint32_t rank, enum report_kind kind, uint64_t number, const char *files,
            uint32_t channel);
void pass(struct world *world, enum run_timer timer); /* time passes until this timer, which is set */

#endif
