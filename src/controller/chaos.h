/* Faults on purpose (--chaos): carries out the schedule of run/chaos.h on this run's workers, and tells each as
 * it happens. */
#ifndef CONTROLLER_CHAOS_H
#define CONTROLLER_CHAOS_H

#include "loop/loop.h"
#include "run/chaos.h"

struct drive;

/* Embedded in the drive; zero-initialised does nothing. */
struct chaos_timer {
    struct drive *drive;
    struct chaos schedule;
    struct chaos_fault next;
    nanoseconds began;
    struct loop_timer timer;
};

void chaos_start(struct chaos_timer *chaos, struct drive *drive, const struct chaos_policy *policy);
void chaos_stop(struct chaos_timer *chaos);

#endif
