/* Runs in which every rank waits for the others, in the store or, some of them, for a checkpoint: no agent sees
 * that, as each of its workers only waits its turn. */
#ifndef CONTROLLER_STALL_H
#define CONTROLLER_STALL_H

#include "loop/loop.h"

struct drive;

/* Embedded in the drive; zero-initialised watches nothing. */
struct stall {
    struct drive *drive;
    nanoseconds limit;
    uint64_t turn;    /* of the store and of what ranks say, when they were last seen stuck */
    unsigned n_looks; /* in a row that found it so */
    struct loop_timer timer;
};

/* From now on: a stand-still for so long (0: any) is a hang. */
void stall_watch(struct stall *stall, struct drive *drive, nanoseconds limit);
void stall_end(struct stall *stall);

#endif
