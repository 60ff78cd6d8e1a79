/* send N PAUSE_US: how long one send(2) takes to a process that sleeps in recv(2); the floor of a report that
 * wakes its agent. Prints as calls.h does. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls.h"

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
    print_calls(began, took, (size_t)n);
    free(took);
    return 0;
}
