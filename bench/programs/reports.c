/* reports N [PAUSE_US]: reports N times and times each call; prints as calls.h does. */
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

#include "calls.h"

static int fail(const ty_error *err) {
    (void)fprintf(stderr, "reports: %s\n", err->message);
    return 1;
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 0;
    unsigned pause_us = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    long *took = n > 0 ? malloc((size_t)n * sizeof *took) : NULL;
    if (took == NULL) return 2;
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    if (worker == NULL) return fail(&err);
    long began = now();
    for (long i = 0; i < n; i++) {
        if (pause_us > 0) (void)usleep(pause_us);
        long start = now();
        int result =
            ty_report(worker, TY_METRICS({"loss", 1.0 / (double)(i + 1)}, {"step", (double)i}), NULL, &err);
        took[i] = now() - start;
        if (result < 0) return fail(&err);
    }
    print_calls(began, took, (size_t)n);
    free(took);
    return 0;
}
