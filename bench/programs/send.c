/* send N PAUSE_US: how long one send(2) takes to a process that sleeps in recv(2); the floor of a report that wakes its agent.
 * Prints as programs/reports.c does. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int by_length(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static void receive(int fd) {
    char bytes[4096];
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        ;
    _exit(0);
}

int main(int argc, char **argv) {
    static const char line[] = "report {\"loss\": 0.001, \"step\": 999}\n";
    long n = argc > 2 ? atol(argv[1]) : 0;
    long *took = n > 0 ? malloc((size_t)n * sizeof *took) : NULL;
    int pair[2];
    if (took == NULL || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return 2;
    if (fork() == 0) {
        (void)close(pair[0]);
        receive(pair[1]);
    }
    long began = now();
    for (long i = 0; i < n; i++) {
        (void)usleep((unsigned)atoi(argv[2]));
        long start = now();
        if (send(pair[0], line, sizeof line - 1, 0) < 0) return 1;
        took[i] = now() - start;
    }
    qsort(took, (size_t)n, sizeof *took, by_length);
    printf("%ld %ld %ld %ld %ld\n", began, took[n / 2], took[n * 99 / 100], took[n * 999 / 1000], took[n - 1]);
    free(took);
    return 0;
}
