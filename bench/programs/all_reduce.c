/* all_reduce BYTES ITERATIONS: the time of one all-reduce of float32 numbers among the workers of a run, in
 * seconds, by rank 0: the least of five series, each after a barrier. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <trainyard/trainyard.h>

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    ty_comm *comm = worker != NULL ? ty_comm_get(worker, &err) : NULL;
    if (comm == NULL || argc != 3) {
        (void)fprintf(stderr, "all_reduce BYTES ITERATIONS, under trainyard run: %s\n", err.message);
        return 1;
    }
    size_t count = strtoul(argv[1], NULL, 10) / sizeof(float);
    long iterations = strtol(argv[2], NULL, 10);
    float *numbers = calloc(count, sizeof *numbers);
    double best = 1e9;
    for (int series = 0, rc = 0; series < 5 && numbers != NULL; series++) {
        rc = ty_barrier(comm, &err);
        double begin = now();
        for (long i = 0; i < iterations && rc == 0; i++)
            rc = ty_all_reduce(comm, numbers, count, TY_FLOAT32, TY_SUM, &err);
        if (rc < 0) {
            (void)fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        double one = (now() - begin) / (double)iterations;
        if (one < best) best = one;
    }
    if (ty_comm_rank(comm) == 0) printf("%.9f\n", best);
    free(numbers);
    return 0;
}
