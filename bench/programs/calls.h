/* How long each of many calls takes, for programs/reports.c and programs/send.c. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* CLOCK_MONOTONIC, ns. */
static inline long now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static inline int by_length(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* A line: when the first call began, and the 50th, 99th and 99.9th percentile and the longest of them (ns).
 * Sorts `took`. */
static inline void print_calls(long began, long *took, size_t n) {
    qsort(took, n, sizeof *took, by_length);
    printf("%ld %ld %ld %ld %ld\n", began, took[n / 2], took[n * 99 / 100], took[n * 999 / 1000], took[n - 1]);
}

#endif
