/* A program that drives a run, with the request that it is given: prints where runs are kept that do not
 * say. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/trainyard.h>

int main(int argc, char **argv) {
    ty_run *run = NULL;
    ty_error err = {0};
    char *path = NULL;
    int result = argc == 2 ? ty_storage_path(&path, &err) : TY_EUSAGE;
    if (result >= 0) puts(path);
    free(path);
    if (result >= 0) result = ty_run_open(argv[1], NULL, 0, &run, &err);
    if (result < 0) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    struct pollfd pollfd = {.fd = ty_run_fd(run), .events = POLLIN};
    while (ty_run_dispatch(run, &err) > 0)
        (void)poll(&pollfd, 1, ty_run_timeout_ms(run));
    return ty_run_close(run, NULL, &err) < 0;
}
