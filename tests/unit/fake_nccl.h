/* What test_nccl and its stand-in for the libraries share. */
#ifndef TESTS_FAKE_NCCL_H
#define TESTS_FAKE_NCCL_H

#include <pthread.h>

enum { FAKE_RANKS = 4, FAKE_DEVICE_BYTES = 4096 };

struct fake_id {
    char bytes[128];
};

struct fake_world {
    pthread_barrier_t barrier;
    int devices; /* a bit for each device of which the primary context was taken */
    int destroyed, aborted;
    char pieces[FAKE_RANKS][FAKE_DEVICE_BYTES];
};

#endif
