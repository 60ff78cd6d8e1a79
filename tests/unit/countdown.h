/* Counts down to the failure of a call: what failing_memory.h and failing_calls.h share. */
#ifndef UNIT_COUNTDOWN_H
#define UNIT_COUNTDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

struct countdown {
    long left; /* calls that still succeed; negative: all of them */
    bool for_good;
    pid_t spared;             /* meets no failure; 0: no process is spared */
    struct countdown *shared; /* counts in its place */
};
#define COUNTDOWN \
    { .left = -1 }

static inline bool countdown_strikes(struct countdown *countdown) {
    if (countdown->shared != NULL) countdown = countdown->shared;
    if (countdown->left < 0 || (countdown->spared > 0 && getpid() == countdown->spared)) return false;
    if (countdown->left > 0 || !countdown->for_good) return countdown->left-- == 0;
    return true;
}

/* What was left before. */
static inline long countdown_set(struct countdown *countdown, long n, bool for_good) {
    if (countdown->shared != NULL) countdown = countdown->shared;
    long left = countdown->left;
    countdown->left = n;
    countdown->for_good = for_good;
    return left;
}

/* One count for this process, which is spared, and all that it forks from now on; -1 when there is no memory
 * for that. */
static inline int countdown_share(struct countdown *countdown) {
    struct countdown *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return -1;
    *shared = (struct countdown){.left = -1, .spared = getpid()};
    countdown->shared = shared;
    return 0;
}

#endif
